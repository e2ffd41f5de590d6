"""The folder in which bundles are installed: the only place that knows a path inside it."""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from virnucpro.bundles.manifest import MANIFEST
from virnucpro.durable import finished_name, sync_folder, temporary_beside
from virnucpro.errors import BundleError

__all__ = [
    "DATA_VARIABLE",
    "DataFolder",
    "check_name",
    "data_folder",
    "require_space",
    "require_text",
]

DATA_VARIABLE: Final = "VIRNUCPRO_DATA"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SPARE: Final = 16_000_000
"""Bytes that stay free whatever is installed: manifests, cards, the file system's own."""


@dataclass(frozen=True, slots=True)
class DataFolder:
    """Names everything below the folder of installed bundles.

    ::

        bundles/virnucpro-500/          one installed bundle
        downloads/esm2_t6_8M_UR50D.pt   whole; removed once its bundle is installed
        downloads/....pt.part           what has arrived so far, with .part.json beside it
        made_here/<sha256>.json         which parts of the bundle of that manifest were made here
        lock                            held by the process that fetches or installs
    """

    root: Path

    @property
    def bundles(self) -> Path:
        """The folder of all installed bundles."""
        return self.root / "bundles"

    @property
    def downloads(self) -> Path:
        """The folder of files that are on their way."""
        return self.root / "downloads"

    @property
    def records(self) -> Path:
        """The folder of what is known of installed bundles, apart from their own word."""
        return self.root / "made_here"

    def bundle(self, name: str) -> Path:
        """Name the folder of an installed bundle."""
        return self.bundles / name

    def installed(self) -> dict[str, Path]:
        """Find the bundles that are installed, by name."""
        return {
            path.parent.name: path.parent
            for path in sorted(self.bundles.glob(f"*/{MANIFEST}"))
            if _NAME.fullmatch(path.parent.name) and finished_name(path.parent) is None
        }

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Let one process at a time fetch and install; the kernel lets go when it ends.

        Raises
        ------
        BundleError
            At once, when another process is at work there; when the system fails to read or write
            anything meanwhile; when the folder's path is no text.
        """
        require_text(self.root)
        with _told(self.root), _opened(self) as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(handle, 64, 0).decode(errors="replace").strip() or "unknown"
                raise BundleError(
                    f"{self.root}: another process (pid {holder}) is installing a bundle there. "
                    f"Wait for it, or install into another folder ({DATA_VARIABLE})."
                ) from None
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            yield

    @contextmanager
    def staging(self, name: str) -> Iterator[Path]:
        """Give an empty folder that becomes the installed bundle `name` when the block ends well.

        What was installed under that name is replaced. Only while holding the lock: what killed
        processes left half-made is removed.
        """
        final = self.bundle(name)
        for path in self.bundles.glob("*.tmp"):
            if finished_name(path) is not None:
                shutil.rmtree(path)
        folder = temporary_beside(final)
        folder.mkdir()
        try:
            yield folder
            _sync_members(folder)
            self._put_in_place(folder, final)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _put_in_place(self, folder: Path, final: Path) -> None:
        """Rename; a former bundle is out of the way for the shortest time that two renames take."""
        if not final.exists():
            folder.rename(final)
            sync_folder(self.bundles)
            return
        former = temporary_beside(final)
        final.rename(former)
        folder.rename(final)
        sync_folder(self.bundles)
        shutil.rmtree(former)


@contextmanager
def _opened(data: DataFolder) -> Iterator[int]:
    data.bundles.mkdir(parents=True, exist_ok=True)
    data.downloads.mkdir(exist_ok=True)
    handle = os.open(data.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        yield handle
    finally:
        os.close(handle)


@contextmanager
def _told(root: Path) -> Iterator[None]:
    """Say what to do about the system's errors; the command line's advice is about runs."""
    try:
        yield
    except OSError as error:
        raise BundleError(
            f"{error.filename or root}: {error.strerror or error}. See to the disk and to its "
            f"permissions, or name another folder ({DATA_VARIABLE}), and repeat the command: what "
            "has arrived is kept."
        ) from None


def data_folder(environ: Mapping[str, str] = os.environ) -> DataFolder:
    """Find the folder: VIRNUCPRO_DATA, or ``virnucpro`` where the XDG rules put users' data.

    Source: XDG Base Directory Specification 0.8 (a relative XDG_DATA_HOME is ignored).
    """
    if own := environ.get(DATA_VARIABLE):
        return DataFolder(Path(own).absolute())
    home = Path(environ.get("XDG_DATA_HOME", ""))
    if not home.is_absolute():
        home = Path.home() / ".local" / "share"
    return DataFolder(home / "virnucpro")


def require_text(path: Path) -> None:
    """Refuse a path that is no text: torch and safetensors open no file there.

    Raises
    ------
    BundleError
        When there are bytes in it that are not UTF-8.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise BundleError(
            f"{path}: there are bytes in this path that are not UTF-8, and the libraries that read "
            "and write tensors open no such file. Rename it, or name it by a link without them."
        ) from None


def check_name(name: str) -> None:
    """Refuse a bundle's name that could not be the name of its folder.

    Raises
    ------
    BundleError
        When it is empty, longer than 100 letters, or has others than letters, digits, ``._-``.
    """
    if not _NAME.fullmatch(name) or finished_name(Path(name)) is not None:
        raise BundleError(
            f"{name!r} cannot be a bundle's name: take up to 100 letters, digits, '.', '_' and "
            "'-', the first one a letter or a digit."
        )


def require_space(folder: Path, needed: int) -> None:
    """Compare the bytes that will be written with those that are free.

    Raises
    ------
    BundleError
        When they do not fit, with both figures.
    """
    usage = shutil.disk_usage(folder)
    # some network mounts do not tell
    if usage.total and needed + _SPARE > usage.free:
        raise BundleError(
            f"{folder}: {(needed + _SPARE) / 1e9:.2f} GB of disk are needed there, and "
            f"{usage.free / 1e9:.2f} GB are free. Free space, or name a folder on another disk "
            f"({DATA_VARIABLE}), and repeat the command."
        )


def _sync_members(folder: Path) -> None:
    for path in folder.iterdir():
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    sync_folder(folder)
