"""What identifies a published file's content, in the three forms that publishers give."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from virnucpro.errors import BundleError

__all__ = ["Checksum", "Kind", "digest_of", "require_content"]

Kind: TypeAlias = Literal["sha256", "md5", "git-blob"]


@dataclass(frozen=True, slots=True)
class Checksum:
    """A digest in hexadecimal, and how it is made.

    ``git-blob`` is git's name of a file's content: SHA-1 of ``blob <size>``, a zero byte, and the
    content. MD5 and SHA-1 tell damage and mix-ups apart; against a forger they are weak, which is
    why nothing that is downloaded can run, whatever its digest.
    """

    kind: Kind
    value: str

    def __str__(self) -> str:
        """Write it as a bundle's provenance holds it."""
        return f"{self.kind} {self.value}"


def digest_of(kind: Kind, path: Path) -> Checksum:
    """Read a file through.

    Raises
    ------
    OSError
        When it cannot be read.
    """
    with path.open("rb") as stream:
        match kind:
            case "sha256":
                digest = hashlib.file_digest(stream, "sha256")
            case "md5":
                digest = hashlib.file_digest(stream, _md5)
            case "git-blob":
                head = b"blob %d\0" % path.stat().st_size
                digest = hashlib.file_digest(stream, lambda: _sha1(head))
    return Checksum(kind, digest.hexdigest())


def require_content(path: Path, wanted: Checksum, origin: str) -> None:
    """Hold a file against its publisher's digest.

    Parameters
    ----------
    path
        The file.
    wanted
        What it must hold.
    origin
        Where it came from, for the message.

    Raises
    ------
    BundleError
        When it holds something else.
    OSError
        When it cannot be read.
    """
    found = digest_of(wanted.kind, path)
    if found != wanted:
        with path.open("rb") as stream:
            page = stream.read(64).lstrip().startswith(b"<")
        looks = " It begins like a web page, as a proxy or a login would send." if page else ""
        raise BundleError(
            f"{path}: is not the published file ({found}, published "
            f"{wanted.value}, {path.stat().st_size:,} bytes, from {origin}).{looks} "
            "Get the file again; when it differs again, its source serves another file."
        )


def _md5() -> "hashlib._Hash":
    return hashlib.md5(usedforsecurity=False)


def _sha1(beginning: bytes) -> "hashlib._Hash":
    return hashlib.sha1(beginning, usedforsecurity=False)
