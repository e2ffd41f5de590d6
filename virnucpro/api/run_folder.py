"""The run folder of a call of the Python API, which is temporary unless the caller names one."""

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from virnucpro.errors import RunError, UsageError
from virnucpro.run_dir import RunDirectory
from virnucpro.temporary import owned_prefix

if TYPE_CHECKING:
    from collections.abc import Callable

    from virnucpro.compute.in_memory import MemoryRun

TEMPORARY: Final = "virnucpro-run-"
"""Beginning of the names of temporary folders."""


class RunFolder:
    """A run folder; a temporary folder is removed by `close`, or with this object.

    Parameters
    ----------
    outdir
        Folder of the run; None for a temporary folder in TMPDIR, made when its path is first read.
    memory
        The run, if it was computed in memory; it is written when the path is first read.
    name
        Last part of the path of a temporary folder: the name of the sample in a report.

    Attributes
    ----------
    temporary
        Whether the folder is temporary.

    Raises
    ------
    UsageError
        If `outdir` is empty or not a path.
    """

    def __init__(
        self,
        outdir: str | os.PathLike[str] | None,
        memory: "MemoryRun | None" = None,
        *,
        name: str = "sequences",
    ) -> None:
        self.temporary = outdir is None
        self.memory = memory
        self.name = name
        if outdir is not None and not os.fspath(outdir):
            raise UsageError(f"invalid outdir {outdir!r}: give the path of a folder, or None")
        self._path = None if outdir is None else Path(outdir).absolute()
        self._remove: Callable[[], object] | None = None
        self._closed = False

    @property
    def path(self) -> Path:
        """The absolute path of the folder.

        Raises
        ------
        RunError
            If the folder was temporary and is removed.
        """
        if self._closed:
            raise RunError(
                "the temporary run folder is removed, because its object was closed, or belongs to "
                "another process; read the tables before, or give an outdir"
            )
        if self._path is None:
            parent = Path(tempfile.mkdtemp(prefix=owned_prefix("run")))
            self._remove = weakref.finalize(self, _remove, parent, os.getpid())
            if self.memory is not None:
                self.memory.write(parent / self.name)
            self._path = parent / self.name
        return self._path

    def copy(self) -> "RunFolder":
        """Return a temporary copy; files are hard links, as programs replace them and write none.

        The lock is not copied.
        """
        new = RunFolder(None, self.memory, name=self.name)
        if self.memory is None:
            ignored = shutil.ignore_patterns(RunDirectory(self.path).lock.name)
            shutil.copytree(self.path, new.path, copy_function=_link, ignore=ignored)
        return new

    def __deepcopy__(self, _memo: object) -> "RunFolder":
        """Return a copy of a temporary folder, so that each object removes its own."""
        return self.copy() if self.temporary and not self._closed else self

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process can use: a run in memory, or the path of a lasting folder."""
        state = vars(self) | {"_remove": None}
        if self.temporary:
            state |= {"_path": None, "_closed": self.memory is None}
        return state

    def close(self) -> None:
        """Remove the folder, if it is temporary, and forget the run in memory."""
        self._closed, self.memory = self.temporary, None
        if self._remove is not None:
            self._remove()


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # the file system has no hard links
        shutil.copy2(source, target)


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a fork has a copy of this object
        shutil.rmtree(folder, ignore_errors=True)


class RunOutput:
    """Base class of objects that read from a run, and own its folder if it is temporary."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def _run(self) -> RunDirectory:
        """Return the paths of the run."""
        return RunDirectory(self._folder.path)

    @property
    def outdir(self) -> Path:
        """Absolute path of the run folder.

        Raises
        ------
        RunError
            If the folder was temporary and is removed.
        """
        return self._folder.path

    def close(self) -> None:
        """Remove the run folder, if it is temporary; what has been read is kept."""
        self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


def run_of(run: str | os.PathLike[str] | RunOutput) -> RunDirectory:
    """Return the paths of the run in a folder, or of a result.

    Raises
    ------
    RunError
        If the folder of a result has another run or rule now.
    """
    return run._run() if isinstance(run, RunOutput) else RunDirectory(Path(run))  # noqa: SLF001 - no name for users
