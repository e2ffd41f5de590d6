"""Search for input files, and distribution of the files over GPUs."""

import logging
import math
import os
import queue
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, TypeVar

from virnucpro.errors import UsageError
from virnucpro.launch.results import ResultQueue
from virnucpro.launch_dir import TSV_NAME, is_launch
from virnucpro.run_dir import is_run

TaskQueue = queue.SimpleQueue["Path | None"]
"""Queue of files, followed by one None for each worker."""

Item = TypeVar("Item")

_ANY_DEPTH = "**"

_log = logging.getLogger("virnucpro.launch")


Found = dict[Path, str]
"""Paths that match a pattern. The value is "" for a usable file, else the reason of the problem.

Not usable are broken links, devices, pipes, and folders that cannot be listed.
"""


def contiguous(items: Sequence[Item], n: int) -> list[Sequence[Item]]:
    """Divide a sequence into `n` consecutive parts of equal length.

    The last parts may be shorter or empty.

    Raises
    ------
    ValueError
        If `n` is below 1.
    """
    if n < 1:
        raise ValueError(f"cannot divide work into {n} parts: give a number of at least 1.")
    size = math.ceil(len(items) / n)
    return [items[start : start + size] for start in (size * part for part in range(n))]


class ResourceAllocator:
    """Finds input files and distributes them over workers."""

    def validate_input_dir(self, input_dir: Path | str) -> tuple[bool, str]:
        """Return two values: whether `input_dir` is a folder, and an error message or ""."""
        folder = Path(input_dir)
        if not folder.is_dir():
            return False, f"{folder} is not a folder: give the folder of the input files."
        return True, ""

    def discover_files(self, input_dir: Path | str, pattern: str = "*") -> list[Path]:
        """Return the files below a folder that match a pattern, sorted.

        Matching paths that cannot be read, such as broken links, are not returned, but logged as
        warnings; see `look_through`. Matching folders are ignored.

        Parameters
        ----------
        pattern
            Shell pattern relative to the folder; ``**/`` matches any number of subfolders. As in a
            shell, a name that begins with a dot matches only a pattern that does.

        Raises
        ------
        UsageError
            If the folder does not exist, or the pattern is invalid, absolute or contains "..".
        """
        found = sorted(self.look_through(input_dir, pattern).items())
        for path, reason in found:
            if reason:
                _log.warning("%s: %s", path, reason)
        return [path for path, reason in found if not reason]

    def look_through(self, input_dir: Path | str, pattern: str = "*") -> Found:
        """Return a dict of the paths that match a pattern, and of folders that cannot be listed.

        The value of a path is "" for a usable file, else the reason why the path cannot be read.
        All other folders are omitted.

        See `discover_files` for parameters and errors. ``**/`` does not follow symbolic links to
        folders. Folders of runs and launches below `input_dir` are not searched.
        """
        ok, error = self.validate_input_dir(input_dir)
        if not ok:
            raise UsageError(error)
        parts = Path(pattern).parts
        if not parts or Path(pattern).is_absolute() or ".." in parts:
            raise UsageError(
                f"pattern {pattern!r} does not name files below the folder: use a "
                "pattern such as '*.fa' or '**/*.fa.gz'."
            )
        if any(_ANY_DEPTH in part and part != _ANY_DEPTH for part in parts):
            raise UsageError(
                f"pattern {pattern!r}: '**' matches whole folder names only; write '**/*.fa'."
            )
        found: Found = {}
        _search(Path(input_dir), (*parts, "*") if parts[-1] == _ANY_DEPTH else parts, found)
        return found

    def distribute_workload(
        self,
        files: Sequence[Path],
        num_gpus: int,
        strategy: Literal["size", "round_robin", "contiguous"] = "size",
    ) -> list[list[Path]]:
        """Distribute files over GPUs in advance. A launch assigns files dynamically instead.

        Parameters
        ----------
        strategy
            ``size``: largest file first, each to the GPU with the fewest bytes. ``round_robin``:
            largest file first, to each GPU in turn. ``contiguous``: consecutive files together, in
            equal numbers.

        Returns
        -------
        A list with one list of files for each GPU; the list of a GPU may be empty.

        Raises
        ------
        ValueError
            If `num_gpus` is below 1.
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
        """Return the files sorted by size (largest first), then by name."""
        return sorted(files, key=lambda file: (-_size(file), file))

    def create_task_queue(self, files: Sequence[Path], num_workers: int) -> TaskQueue:
        """Return a queue of the files, largest first, followed by one None for each worker.

        Raises
        ------
        ValueError
            If `num_workers` is below 1.
        """
        if num_workers < 1:
            raise ValueError("at least one worker is needed.")
        tasks: TaskQueue = queue.SimpleQueue()
        for file in (*self.largest_first(files), *([None] * num_workers)):
            tasks.put(file)
        return tasks

    def create_result_queue(self) -> ResultQueue:
        """Return an empty queue for the workers' results."""
        return ResultQueue()

    def estimate_workload(self, files: Sequence[Path]) -> dict[str, Any]:
        """Return the number and the sizes of files.

        Returns
        -------
        A dict: file_count; total_size, average_size and largest_size in bytes; largest_file (a
        path, or None without files).
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
    """Return the size of a file in bytes; 0 if it is missing (the worker reports the error)."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _search(folder: Path, parts: Sequence[str], found: Found) -> None:
    first, rest = parts[0], parts[1:]
    if first == _ANY_DEPTH:
        _search(folder, rest, found)
    for entry in _entries(folder, found):
        path = folder / entry.name
        if entry.name.startswith(".") and not first.startswith("."):
            continue
        if first == _ANY_DEPTH:
            if entry.is_dir(follow_symlinks=False) and not _is_output(path):
                _search(path, parts, found)
        elif fnmatchcase(entry.name, first):
            if not rest:
                _add(path, found)
            elif entry.is_dir() and not _is_output(path):
                _search(path, rest, found)


def _is_output(folder: Path) -> bool:
    """Return whether a folder is that of a run or launch of this program."""
    try:
        return (is_launch(folder) and (folder / TSV_NAME).is_file()) or is_run(folder)
    except OSError:  # the search reports the folder
        return False


def _entries(folder: Path, found: Found) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from list(entries)
    except OSError as error:
        found[folder] = f"the folder cannot be listed ({error.strerror})."


def _add(path: Path, found: Found) -> None:
    try:
        if path.is_file():
            found[path] = ""
        elif not path.is_dir():
            found[path] = "neither a file nor a folder, or a broken link."
    except OSError as error:
        found[path] = f"the file cannot be examined ({error.strerror})."
