"""The run folder of a call of the Python API, which is temporary unless the caller names one."""

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Final, Self

from virnucpro.errors import NotARunError, RunError, UsageError
from virnucpro.run_dir import RunDirectory

__all__ = ["RunFolder", "RunOutput", "run_of"]

_NAMED: Final = 5
"""Number of runs that a message names."""


class RunFolder:
    """A run folder; a temporary folder is removed by `close`, or with this object.

    Parameters
    ----------
    outdir
        Folder of the run; None for a temporary folder in TMPDIR.

    Attributes
    ----------
    temporary
        Whether the folder is temporary.

    Raises
    ------
    UsageError
        If `outdir` is empty or not a path.
    """

    def __init__(self, outdir: str | os.PathLike[str] | None) -> None:
        self.temporary = outdir is None
        if outdir is not None:
            self._path: Path | None = _absolute(outdir)
            return
        parent = Path(tempfile.mkdtemp(prefix="virnucpro-run-"))
        self._path = parent / "run"
        self._remove = weakref.finalize(self, _remove, parent, os.getpid())

    @property
    def path(self) -> Path:
        """The absolute path of the folder.

        Raises
        ------
        RunError
            If the folder was temporary and is removed.
        """
        if self._path is None:
            raise RunError(
                "the temporary run folder is removed, because its object was closed; read the "
                "tables before, or give an outdir"
            )
        return self._path

    def close(self) -> None:
        """Remove the folder, if it is temporary."""
        if self.temporary:
            self._path = None
            self._remove()


def _absolute(outdir: object) -> Path:
    if isinstance(outdir, str | os.PathLike) and os.fspath(outdir):
        return Path(outdir).absolute()
    raise UsageError(
        f"invalid outdir {outdir!r}: give the path of a folder, or None for a temporary folder"
    )


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a fork has a copy of this object
        shutil.rmtree(folder, ignore_errors=True)


class RunOutput:
    """Base class of objects that read from a run folder, and own it if it is temporary."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

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
    NotARunError
        If the path is a file, or a folder of several runs, such as that of ``launch``.
    """
    if isinstance(run, RunOutput):
        return RunDirectory(run.outdir)
    paths = RunDirectory(Path(run))
    if paths.root.is_file():
        raise NotARunError(f"{paths.root} is a file: give the run folder, {paths.root.parent}")
    if not paths.run_json.exists():
        inner = sorted(path.parent for path in paths.root.glob(f"*/{paths.run_json.name}"))
        if inner:
            names = ", ".join(str(path) for path in inner[:_NAMED])
            more = f" and {len(inner) - _NAMED:,} more" if len(inner) > _NAMED else ""
            raise NotARunError(f"{paths.root} is a folder of runs: give one of {names}{more}")
    return paths
