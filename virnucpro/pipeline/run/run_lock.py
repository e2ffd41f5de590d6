"""One process at a time in a run folder."""

from contextlib import AbstractContextManager

from virnucpro.folder_lock import folder_lock, is_held
from virnucpro.run_dir import RunDirectory

__all__ = ["is_locked", "run_lock"]


def run_lock(run: RunDirectory) -> AbstractContextManager[None]:
    """Hold the run's lock, as `folder_lock` does.

    Raises
    ------
    RunLockedError
        At once, when another process holds it, or was removing the folder just now.
    OSError
        When the folder cannot be written to.
    """
    advice = f"Wait for it (virnucpro status {run.root}), or choose another folder."
    return folder_lock(run.lock, advice)


def is_locked(run: RunDirectory) -> bool:
    """Tell whether a process is at work in the folder now, without taking the lock."""
    return is_held(run.lock)
