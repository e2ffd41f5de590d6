"""Atomic files and folders: write to a temporary file, fsync, rename, fsync the folder."""

import errno
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO

from virnucpro.errors import RunError, UsageError

_NO_FOLDER_HERE = {errno.EEXIST, errno.ELOOP, errno.ENOENT, errno.ENOTDIR, errno.EPERM}
_TEMPORARY = re.compile(r"(.+)\.\d+-[0-9a-f]{8}\.tmp")


def temporary_beside(path: Path) -> Path:
    """Return a temporary name for `path` in its folder, unique among processes and hosts."""
    return path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


def finished_name(path: Path) -> str | None:
    """Return the final name of a temporary file of this program; None for other files.

    For example, ``a.h5`` for ``a.h5.17-0123abcd.tmp``. No program reads a temporary file. It may be
    deleted after the process that wrote the file has ended.
    """
    match = _TEMPORARY.fullmatch(path.name)
    return match and match[1]


def remove_unfinished(folder: Path, owned: Callable[[str], object]) -> None:
    """Remove the temporary files and folders that killed processes left in a folder.

    Parameters
    ----------
    folder
        A folder in which no other process writes now; it may be missing, but is no link elsewhere.
    owned
        Whether a final name is one of the caller's files.
    """
    for path in folder.glob("*.tmp"):
        if not owned(finished_name(path) or ""):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


@contextmanager
def output_folder(path: Path) -> Iterator[None]:
    """Create the output folder `path` in the block.

    Raises
    ------
    RunError
        If the folder cannot be there: a part of its path is a file or a folder of the kernel.
    """
    try:
        yield
    # FileNotFoundError, EPERM: the parent exists, but it is one of the kernel's folders
    except OSError as error:
        if error.errno not in _NO_FOLDER_HERE:
            raise
        why = f"{error.strerror}: {error.filename}"
        for place in (Path(error.filename), *Path(error.filename).parents):
            if place.is_symlink() and not place.exists():
                why = f"{place} is a symbolic link without a target"
        raise RunError(
            f"{path}: no folder can be created here ({why}). Choose another output folder."
        ) from None


def make_folder(path: Path) -> None:
    """Create a folder, and its parents, if it is missing; errors as for `output_folder`."""
    with output_folder(path):
        path.mkdir(parents=True, exist_ok=True)


def sync_folder(folder: Path) -> None:
    """Sync a folder to disk, so that new and renamed files in it survive a power failure."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def refuse_links(paths: Iterable[Path]) -> None:
    """Raise RunError if one of the files or folders is a symbolic link to a place elsewhere."""
    for path in paths:
        if path.is_symlink():
            raise RunError(
                f"{path} is a symbolic link. Files outside of its folder could be changed or "
                "deleted. Put the files themselves in its place, or remove the link, then rerun "
                "the command."
            )


def require_regular(paths: Iterable[Path]) -> None:
    """Raise RunError if an existing path is not a regular file: a named pipe would block."""
    for path in paths:
        if path.exists() and not path.is_file():
            raise RunError(f"{path} is not a regular file. Remove it, then rerun the command.")


def real_path(path: Path) -> Path:
    """Return a path without symbolic links; `Path.resolve` of Python 3.11 raises for a loop."""
    return Path(os.path.realpath(path))


def first_inside(paths: Iterable[Path], places: Collection[Path]) -> Path | None:
    """Return the first of the paths that is, or is in, one of the places; None without one.

    A place is a file or folder, which may be missing. Symbolic links are followed, but a path or
    place is the link, too.
    """
    real = cache(real_path)  # of folders: a network file system answers slowly
    # Path.is_symlink raises for a name that is too long
    links = {path for path in places if os.path.islink(path)}  # noqa: PTH114
    owned = {real(place.parent) / place.name for place in places}
    owned |= {real(link) for link in links}

    @cache
    def is_inside(folder: Path) -> bool:
        return not owned.isdisjoint((folder, *folder.parents))

    for path in paths:
        for name in (path, real(path)) if os.path.islink(path) else (path,):  # noqa: PTH114
            folder = real(name.parent)
            if is_inside(folder) or folder / name.name in owned:
                return path
    return None


def refuse_inputs(paths: Iterable[Path], places: Collection[Path], owner: str) -> None:
    """Raise UsageError if an input is in a place that `owner`, such as a run, writes or deletes."""
    if path := first_inside(paths, places):
        raise UsageError(
            f"the input {path} has the name of a file of {owner}, and would be overwritten or "
            "deleted; move the input out of the folder, or choose another output folder"
        )


@contextmanager
def write_file(path: Path, *, lasting: bool = True) -> Iterator[IO[bytes]]:
    """Open a temporary file for writing and reading; it replaces `path` at the end of the block.

    If the block raises an exception, `path` is unchanged. With ``lasting=False`` the file is not
    synced to disk: the replacement is atomic, but a power failure may lose the file.

    Raises
    ------
    OSError
        If the file cannot be written (disk full, no permission). `path` is unchanged; a note of
        the exception names the path.
    """
    temporary = temporary_beside(path)
    try:
        with temporary.open("w+b") as stream:
            yield stream
            stream.flush()
            if lasting:
                os.fsync(stream.fileno())
        temporary.replace(path)
        if lasting:
            sync_folder(path.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.add_note(f"{path} could not be written; an existing file is unchanged")
        raise


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically; errors as for `write_file`."""
    with write_file(path) as stream:
        stream.write(content)


@contextmanager
def write_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder for files; it replaces `path` at the end of the block, synced.

    If the block raises an exception, `path` is unchanged.

    Raises
    ------
    OSError
        If the folder or a file in it cannot be written.
    """
    temporary, former = temporary_beside(path), temporary_beside(path)
    temporary.mkdir()
    try:
        yield temporary
        for file in temporary.iterdir():
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
        sync_folder(temporary)
        if path.exists():
            path.rename(former)
        temporary.rename(path)
        sync_folder(path.parent)
        shutil.rmtree(former, ignore_errors=True)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
