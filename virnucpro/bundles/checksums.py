"""Checksums of files, from their publishers and from a bundle's manifest."""

import errno
import hashlib
import os
import shlex
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from virnucpro.errors import BundleError

Kind: TypeAlias = Literal["sha256", "md5", "git-blob"]


@dataclass(frozen=True, slots=True)
class Checksum:
    """A hexadecimal digest and its algorithm.

    The kind ``git-blob`` is git's blob id: SHA-1 of ``blob <size>``, a zero byte, and the content.
    MD5 and SHA-1 detect damaged and wrong files, but not forged files. Therefore this program
    never executes code in a downloaded file.
    """

    kind: Kind
    value: str

    def __str__(self) -> str:
        """Return algorithm and digest in the format of a manifest, such as ``md5 0a1b...``."""
        return f"{self.kind} {self.value}"


@dataclass(frozen=True, slots=True)
class FileDigest:
    """A file's SHA-256 (hexadecimal) and size in bytes, as listed in a manifest."""

    sha256: str
    bytes: int


def digest_of(kind: Kind, path: Path) -> Checksum:
    """Return the checksum of a file, computed with the algorithm `kind`.

    Raises
    ------
    OSError
        If the file cannot be read.
    """
    # usedforsecurity: systems in FIPS mode allow MD5 for checksums only
    digest = hashlib.new("sha1" if kind == "git-blob" else kind, usedforsecurity=False)
    if kind == "git-blob":
        digest.update(b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as stream:
        return Checksum(kind, hashlib.file_digest(stream, lambda: digest).hexdigest())


def file_digest(path: Path) -> FileDigest:
    """Return SHA-256 and size of a file, as listed in a manifest.

    Raises
    ------
    OSError
        If the file cannot be read.
    """
    return FileDigest(digest_of("sha256", path).value, path.stat().st_size)


def require_content(path: Path, wanted: Checksum, origin: str) -> None:
    """Raise BundleError if a file does not have its published checksum.

    Parameters
    ----------
    path
        The file.
    wanted
        The published checksum.
    origin
        Address or path that the file was copied from, for the error message.

    Raises
    ------
    BundleError
        If the content differs.
    OSError
        If the file cannot be read.
    """
    found = digest_of(wanted.kind, path)
    if found == wanted:
        return
    with path.open("rb") as stream:
        page = stream.read(64).lstrip().startswith(b"<")
    hint = " It looks like a web page: a proxy or a login page may have sent it." if page else ""
    raise BundleError(
        f"{path}: is not the published file ({found}, published {wanted.value}, "
        f"{path.stat().st_size:,} bytes, from {origin}).{hint} Get the file again. If this error "
        "persists, its source serves another file."
    )


def verify_file(folder: Path, name: str, wanted: FileDigest) -> None:
    """Raise BundleError if a bundle's file differs from its manifest entry.

    Raises
    ------
    BundleError
        If the file is missing, cannot be read, or has another size or SHA-256.
    """
    path = folder / name
    try:
        about = path.stat()
        # A named pipe would block the reader.
        readable = stat.S_ISREG(about.st_mode) and about.st_size == wanted.bytes
        found = file_digest(path) if readable else FileDigest("", about.st_size)
    except OSError as error:
        cause = None if error.errno in DENIED else error
        raise unreadable(path, folder, error, "Get the bundle again.") from cause
    if found.bytes != wanted.bytes:
        problem = f"has {found.bytes:,} bytes, and the bundle's manifest lists {wanted.bytes:,}"
    elif not found.sha256:
        problem = "is not a file"
    elif found.sha256 != wanted.sha256:
        problem = f"its SHA-256 is {found.sha256}, and the bundle's manifest lists {wanted.sha256}"
    else:
        return
    raise BundleError(
        f"{path}: {problem}. The file is damaged or from another bundle: get the bundle again."
    )


DENIED: Final = (errno.EACCES, errno.EPERM)


def unreadable(path: Path, folder: Path, error: OSError, advice: str) -> BundleError:
    """Return the error for a file `path` of the bundle in `folder` that cannot be read.

    `advice` is for the user, if the cause is not a missing permission.
    """
    if error.errno in DENIED:
        advice = (
            "You have no permission to read it. Its owner can grant it: chmod -R a+rX "
            f"{shlex.quote(str(folder.absolute()))} (its parent folders need a+x)."
        )
    return BundleError(f"{path}: cannot be read ({error.strerror}). {advice}")


def writable_by_others(folder: Path, names: Iterable[str]) -> str | None:
    """Return a warning if users other than the owner and root can change a bundle, else None.

    Group write permission is accepted for files of this user or root, because many systems give
    each user a private group.

    Parameters
    ----------
    folder
        Folder of the bundle.
    names
        Names of the files of the bundle.
    """
    for path in (folder, *(folder / name for name in names)):
        found = path.stat()
        foreign = found.st_uid not in (0, os.geteuid())
        if found.st_mode & stat.S_IWOTH or (foreign and found.st_mode & stat.S_IWGRP):
            return (
                f"{path} is writable by other users (mode {stat.S_IMODE(found.st_mode):04o}), who "
                "can change the results. Its owner can protect the bundle: chmod -R go-w "
                f"{shlex.quote(str(folder))}"
            )
    return None
