"""What identifies a published file's content, in the three forms that publishers give."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from virnucpro.errors import BundleError

__all__ = ["Checksum", "require_content"]


@dataclass(frozen=True, slots=True)
class Checksum:
    """A digest in hexadecimal, and how it is made.

    ``git-blob`` is git's name of a file's content: SHA-1 of ``blob <size>``, a zero byte, and the
    content. MD5 and SHA-1 tell damage and mix-ups apart; against a forger they are weak, which is
    why nothing that is downloaded can run, whatever its digest.
    """

    kind: Literal["sha256", "md5", "git-blob"]
    value: str

    def of(self, path: Path) -> str:
        """Compute this kind of digest of a file, in hexadecimal.

        Raises
        ------
        OSError
            When the file cannot be read.
        """
        with path.open("rb") as stream:
            if self.kind == "git-blob":
                size = path.stat().st_size
                digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
                while block := stream.read(1 << 20):
                    digest.update(block)
                return digest.hexdigest()
            if self.kind == "md5":
                return hashlib.file_digest(stream, _md5).hexdigest()
            return hashlib.file_digest(stream, "sha256").hexdigest()


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
    found = wanted.of(path)
    if found != wanted.value:
        with path.open("rb") as stream:
            page = stream.read(64).lstrip().startswith(b"<")
        looks = " It begins like a web page, as a proxy or a login would send." if page else ""
        raise BundleError(
            f"{path}: is not the published file ({wanted.kind} {found}, published "
            f"{wanted.value}, {path.stat().st_size:,} bytes, from {origin}).{looks} "
            "Get the file again; when it differs again, its source serves another file."
        )


def _md5() -> "hashlib._Hash":
    return hashlib.md5(usedforsecurity=False)
