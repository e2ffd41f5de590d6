"""Which files there are, and how they are divided."""

import logging
import math
import queue
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from virnucpro.errors import UsageError
from virnucpro.launch.discovery import Found, find_files
from virnucpro.launch.results import ResultQueue

__all__ = ["ResourceAllocator", "TaskQueue", "contiguous"]

TaskQueue = queue.SimpleQueue["Path | None"]
"""Files, then None for each worker."""

Piece = TypeVar("Piece")

_log = logging.getLogger("virnucpro.launch")


def contiguous(items: Sequence[Piece], n: int) -> list[Sequence[Piece]]:
    """Cut into `n` runs of neighbours, of ``ceil(len(items) / n)`` each as far as there are any.

    Raises
    ------
    ValueError
        When `n` is below 1.
    """
    if n < 1:
        raise ValueError(f"cannot divide work among {n}: at least 1 is needed.")
    size = math.ceil(len(items) / n)
    return [items[start : start + size] for start in (size * part for part in range(n))]


class ResourceAllocator:
    """Finds files and divides them."""

    def validate_input_dir(self, input_dir: Path | str) -> tuple[bool, str]:
        """Say whether it is a folder that can be looked into, and why not."""
        folder = Path(input_dir)
        if not folder.is_dir():
            return False, f"{folder} is no folder: name one with the files in it."
        return True, ""

    def discover_files(self, input_dir: Path | str, pattern: str = "*") -> list[Path]:
        """Find the files below a folder, sorted; folders of that name do not count.

        What else the pattern names, such as a link that leads nowhere, is logged as a warning;
        `look_through` gives it.

        Parameters
        ----------
        pattern
            As a shell's, relative to the folder; ``**/`` stands for any folders in between.

        Raises
        ------
        UsageError
            When the folder is none, or the pattern leads out of it.
        """
        found = self.look_through(input_dir, pattern)
        for path, why in sorted(found.unusable.items()):
            _log.warning("%s: %s", path, why)
        return sorted(found.files)

    def look_through(self, input_dir: Path | str, pattern: str = "*") -> Found:
        """Find files as `discover_files` does, and what the pattern names that is none.

        Raises
        ------
        UsageError
            As `discover_files` does.
        """
        ok, error = self.validate_input_dir(input_dir)
        if not ok:
            raise UsageError(error)
        return find_files(Path(input_dir), pattern)

    def distribute_workload(
        self,
        files: Sequence[Path],
        num_gpus: int,
        strategy: Literal["size", "round_robin", "contiguous"] = "size",
    ) -> list[list[Path]]:
        """Divide files among GPUs beforehand. A launch does without: who is free takes the next.

        Parameters
        ----------
        strategy
            ``size``: largest first, each to whoever has least; ``round_robin``: by turns, largest
            first; ``contiguous``: neighbours together, as many to each, rounded up.

        Returns
        -------
        A list for each GPU, maybe empty.

        Raises
        ------
        ValueError
            When `num_gpus` is below 1.
        """
        if strategy == "contiguous" or num_gpus < 1:
            return [list(part) for part in contiguous(files, num_gpus)]
        ordered = self.largest_first(files)
        if strategy == "round_robin":
            return [ordered[first::num_gpus] for first in range(num_gpus)]
        parts: list[list[Path]] = [[] for _ in range(num_gpus)]
        loads = [0] * num_gpus
        for file in ordered:
            least = min(range(num_gpus), key=lambda gpu: (loads[gpu], len(parts[gpu])))
            parts[least].append(file)
            loads[least] += _size(file)
        return parts

    def largest_first(self, files: Sequence[Path]) -> list[Path]:
        """Order files by size, then by name: what takes longest is not begun last."""
        return sorted(files, key=lambda file: (-_size(file), file))

    def create_task_queue(self, files: Sequence[Path], num_workers: int) -> TaskQueue:
        """Put files into a queue, largest first, and behind them None for each worker.

        Raises
        ------
        ValueError
            When `num_workers` is below 1.
        """
        if num_workers < 1:
            raise ValueError("at least one worker is needed.")
        tasks: TaskQueue = queue.SimpleQueue()
        for file in (*self.largest_first(files), *([None] * num_workers)):
            tasks.put(file)
        return tasks

    def create_result_queue(self) -> ResultQueue:
        """Make the queue that workers' results go to."""
        return ResultQueue()

    def estimate_workload(self, files: Sequence[Path]) -> dict[str, Any]:
        """Say how much there is to do.

        Returns
        -------
        file_count, total_size, average_size, largest_size (bytes), largest_file (None of none).
        """
        ordered = self.largest_first(files)
        total = sum(map(_size, ordered))
        return {
            "file_count": len(ordered),
            "total_size": total,
            "average_size": total / len(ordered) if ordered else 0.0,
            "largest_size": _size(ordered[0]) if ordered else 0,
            "largest_file": ordered[0] if ordered else None,
        }


def _size(file: Path) -> int:
    """Bytes; 0 for what is not there: whoever takes the file will say so."""
    try:
        return file.stat().st_size
    except OSError:
        return 0
