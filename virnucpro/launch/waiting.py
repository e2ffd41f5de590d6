"""What a launch waits for, when nothing comes. Pure."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["Patience", "waiting_for"]

_FIRST_S = 10.0
_FIRST_AT_THE_END_S = 2.0


def waiting_for(workers: Mapping[int, Mapping[str, Any]], *, files_left: bool) -> str:
    """Say in a line what a launch waits for.

    Parameters
    ----------
    workers
        As `ProcessSpawner.get_process_status` gives them.
    files_left
        Whether some files are not answered.
    """
    if not files_left:
        number = sum(one["status"] not in {"finished", "error"} for one in workers.values())
        return f"waiting for {number:,} workers to put away"
    doing = [
        f"worker {worker} to set up"
        if one["status"] == "initializing"
        else f"worker {worker} at {Path(one['current_task']).name}"
        for worker, one in workers.items()
        if one["status"] == "initializing" or one["current_task"] is not None
    ]
    return f"waiting for {', '.join(doing)}" if doing else "waiting"


class Patience:
    """Says when to tell of a silence: the longer it lasts, the more seldom."""

    def __init__(self) -> None:
        self._told_at = 0.0

    def is_over(self, silent: float, *, files_left: bool) -> bool:
        """Say whether to tell now, after so many seconds of silence."""
        if silent < self._told_at:  # there was a word in between
            self._told_at = 0.0
        first = _FIRST_S if files_left else _FIRST_AT_THE_END_S
        if silent < max(first, 2 * self._told_at):
            return False
        self._told_at = silent
        return True
