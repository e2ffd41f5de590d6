"""Paths, lock and installation steps of the data folder, which contains the bundles."""

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from virnucpro.bundles.manifest import MANIFEST
from virnucpro.durable import finished_name, refuse_links, remove_unfinished, write_folder
from virnucpro.errors import BundleError, RunLockedError
from virnucpro.folder_lock import folder_lock

_VARIABLE: Final = "VIRNUCPRO_DATA"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_RESERVE: Final = 16_000_000
"""Bytes of disk that an installation leaves free."""


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The data folder: installed bundles, downloads and a lock.

    ::

        bundles/virnucpro-500/          one installed bundle
        downloads/esm2_t6_8M_UR50D.pt   complete download; removed when its bundle is installed
        downloads/....pt.part           interrupted download
        lock                            held by the process that fetches or installs
    """

    root: Path
    is_default: bool = False
    """Whether the user did not name the folder: then it may be in a home folder of others."""

    @property
    def hidden(self) -> bool:
        """Whether it is the default folder, and this user cannot look into it."""
        try:
            (self.bundles / MANIFEST).lstat()
        except FileNotFoundError:
            return False
        except OSError:
            return self.is_default
        return False

    @property
    def bundles(self) -> Path:
        """The folder of all installed bundles."""
        return self.root / "bundles"

    @property
    def downloads(self) -> Path:
        """The folder of complete and interrupted downloads."""
        return self.root / "downloads"

    def bundle(self, name: str) -> Path:
        """Return the folder path of the bundle `name`, whether the bundle is installed or not."""
        return self.bundles / name

    def installed(self) -> dict[str, Path]:
        """Return the folder of each installed bundle by name; none if the folder is `hidden`."""
        if self.hidden:
            return {}
        return {
            path.parent.name: path.parent
            for path in sorted(self.bundles.glob(f"*/{MANIFEST}"))
            if _NAME.fullmatch(path.parent.name) and finished_name(path.parent) is None
        }

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the data folder during the block; create the folder if it is missing.

        Raises
        ------
        BundleError
            If another process holds the lock (this function does not wait for it), if a file cannot
            be read or written during the block, or if the folder's path is not UTF-8.
        """
        require_utf8(self.root)
        advice = f"Wait for that process, or set {_VARIABLE} to another folder."
        try:
            self.bundles.mkdir(parents=True, exist_ok=True)
            self.downloads.mkdir(exist_ok=True)
            with folder_lock(self.root / "lock", advice):
                yield
        except RunLockedError as error:
            raise BundleError(str(error)) from None
        except OSError as error:
            raise BundleError(
                f"{error.filename or self.root}: {error.strerror or error}. Check the disk and its "
                f"permissions, or set {_VARIABLE} to another folder. Then rerun the command. "
                "Downloads are kept."
            ) from None

    @contextmanager
    def staging(self, name: str) -> Iterator[Path]:
        """Yield an empty folder that becomes the installed bundle `name` when the block succeeds.

        An installed bundle of that name is replaced. The caller must hold the lock, because this
        function removes unfinished folders of killed processes.

        Raises
        ------
        RunError
            If the bundle's folder is a symbolic link.
        """
        refuse_links([self.bundle(name)])
        remove_unfinished(self.bundles, _NAME.fullmatch)
        with write_folder(self.bundle(name)) as folder:
            yield folder


def data_folder(environ: Mapping[str, str] = os.environ) -> DataFolder:
    """Return the data folder: ``$VIRNUCPRO_DATA``, or ``virnucpro`` in the XDG data folder.

    Source: XDG Base Directory Specification 0.8 (a relative XDG_DATA_HOME is ignored).
    """
    if own := environ.get(_VARIABLE):
        return DataFolder(Path(own).absolute())
    home = Path(environ.get("XDG_DATA_HOME", ""))
    if not home.is_absolute():
        # A user of a container may have no home folder: then `~` stays, in a folder of root.
        home = Path("/", os.path.expanduser("~"), ".local", "share")  # noqa: PTH111
    return DataFolder(home / "virnucpro", is_default=True)


def require_utf8(path: Path) -> None:
    """Raise BundleError if a path is not UTF-8: torch and safetensors cannot open such a path.

    Raises
    ------
    BundleError
        If the path contains bytes that are not UTF-8.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise BundleError(
            f"{path}: this path contains bytes that are not UTF-8, and torch and safetensors "
            "cannot open such a file. Rename it, or give a symbolic link to it."
        ) from None


def require_space(folder: Path, needed: int) -> None:
    """Raise BundleError if the disk of `folder` has less free space than `needed` bytes.

    Raises
    ------
    BundleError
        If the free space is less than `needed` plus a small reserve; the message states both sizes.
    """
    usage = shutil.disk_usage(folder)
    # some network file systems report a size of 0
    if usage.total and needed + _RESERVE > usage.free:
        raise BundleError(
            f"{folder}: {(needed + _RESERVE) / 1e9:.2f} GB of disk space are needed, but "
            f"only {usage.free / 1e9:.2f} GB are free. Free space, or set {_VARIABLE} to a folder "
            "on another disk. Then rerun the command."
        )
