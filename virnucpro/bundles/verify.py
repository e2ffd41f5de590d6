"""Whether a bundle's files are the ones that its manifest was written for."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from virnucpro.bundles.permissions import DENIED, advice_on_reading
from virnucpro.errors import BundleError

__all__ = ["FileDigest", "digest", "verify_file"]


@dataclass(frozen=True, slots=True)
class FileDigest:
    """What identifies a file's content: SHA-256 in hexadecimal, and size in bytes."""

    sha256: str
    bytes: int


def digest(path: Path) -> FileDigest:
    """Read a file through.

    Raises
    ------
    OSError
        When it cannot be read.
    """
    with path.open("rb") as stream:
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        return FileDigest(sha256, stream.tell())


def verify_file(folder: Path, name: str, wanted: FileDigest) -> None:
    """Hold one file of a bundle against its manifest.

    Raises
    ------
    BundleError
        When the file is missing, cannot be read, or has other content.
    """
    path = folder / name
    try:
        found = digest(path)
    except OSError as error:
        advice = advice_on_reading(path, error, "Get the bundle again.")
        raise BundleError(
            f"{path}: the bundle's file cannot be read ({error.strerror}). {advice}"
        ) from (None if error.errno in DENIED else error)
    if found.bytes != wanted.bytes:
        raise BundleError(
            f"{path}: has {found.bytes:,} bytes where the bundle's manifest says "
            f"{wanted.bytes:,}. The file is damaged or of another bundle: get the bundle again."
        )
    if found.sha256 != wanted.sha256:
        raise BundleError(
            f"{path}: its SHA-256 is {found.sha256}, the bundle's manifest says {wanted.sha256}. "
            "The file is damaged or of another bundle: get the bundle again."
        )
