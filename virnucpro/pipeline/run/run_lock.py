"""Lock of a run folder."""

from contextlib import AbstractContextManager

from virnucpro.folder_lock import folder_lock, is_held
from virnucpro.run_dir import RunDirectory

__all__ = ["is_locked", "run_lock"]


def run_lock(run: RunDirectory) -> AbstractContextManager[None]:
    """Return a context manager that holds the lock of a run.

    Raises
    ------
    RunLockedError
        If another process holds it.
    OSError
        If the folder is not writable.
    """
    advice = f"Wait for it (virnucpro status {run.root}), or choose another folder."
    return folder_lock(run.lock, advice)


def is_locked(run: RunDirectory) -> bool:
    """Return whether a process works in the folder now, without taking the lock."""
    return is_held(run.lock)
