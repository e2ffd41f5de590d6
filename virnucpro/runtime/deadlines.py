"""How long a worker may be silent, and what counts as a silence. Pure."""

from dataclasses import dataclass

from virnucpro.runtime.status import WorkerStatus

__all__ = ["NEVER", "Deadlines", "limit_of"]


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Longest times without progress, in seconds; None for as long as it takes.

    A slow worker that makes progress is never late, however little it makes.

    Attributes
    ----------
    start
        From the start of the process to its first mark: imports, loading of weights. Words of
        progress before that begin it anew.
    progress
        From one word of progress to the next: longer than the longest piece of work.
    stop
        From the return of the worker's function to the end of its process.
    """

    start: float | None = None
    progress: float | None = None
    stop: float | None = None


NEVER = Deadlines()
"""Nobody is ever late."""


def limit_of(status: WorkerStatus, deadlines: Deadlines) -> tuple[float | None, str]:
    """Say how long the worker may go on without progress, and what it is doing meanwhile."""
    if status.returned:
        return deadlines.stop, "its function had returned, but its process did not end"
    if not status.begun:
        return deadlines.start, "it did not begin to work"
    return deadlines.progress, "it made no progress"
