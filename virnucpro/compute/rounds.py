"""Rounds: lists of units to compute, divided into strides. Each round is one file, written once.

A round has a fixed number of strides. Task k of n tasks owns consecutive strides, and its workers
own every stride of them in turn. So any number of tasks and workers can compute a round.
"""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any

from virnucpro.durable import sync_folder
from virnucpro.errors import RunError, RunExistsError
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.partition import deal
from virnucpro.sequences.spec import json_digest


@dataclass(frozen=True, slots=True)
class Round:
    """Units that the tasks of one round compute.

    Attributes
    ----------
    number
        Number of the round, from 1.
    units
        Ascending numbers of the units that were missing when the round began.
    strides
        Number of strides; stride s has the units ``units[s::strides]``.
    model
        Bundle or encoder as the user named it; a path is absolute.
    rejected
        Segment files that could not be used when the round began: paths within the run.
    """

    number: int
    units: tuple[int, ...]
    strides: int
    model: str
    rejected: tuple[str, ...] = ()

    def stride(self, number: int) -> Sequence[int]:
        """Return the units of a stride, in the order of computation."""
        return deal(self.units, number, self.strides)


def own_strides(strides: int, task: int, tasks: int, rank: int, ranks: int) -> range:
    """Return the strides of one worker of one task.

    Parameters
    ----------
    strides
        Number of strides of the round.
    task, tasks
        Number of the task, from 0, and number of all tasks.
    rank, ranks
        Number of the worker within the task, from 0, and number of the task's workers.
    """
    first, end = task * strides // tasks, (task + 1) * strides // tasks
    return range(first + rank, end, ranks)


def write_round(
    run: RunDirectory,
    units: Sequence[int],
    strides: int,
    model: str,
    rejected: Iterable[Path] = (),
) -> Round:
    """Write the next round; no process ever changes its file.

    Raises
    ------
    RunExistsError
        If another process writes the same round at this moment.
    OSError
        If the file cannot be written.
    """
    number = 1 + max(run.round_numbers(), default=0)
    unusable = tuple(str(path.relative_to(run.root)) for path in rejected)
    new = Round(number, tuple(units), strides, model, unusable)
    content = {
        "number": number,
        "strides": strides,
        "model": model,
        "units": _spans(new.units),
        "rejected": new.rejected,
    }
    text = json.dumps({**content, "sha256": json_digest(content)}).encode() + b"\n"
    run.rounds.mkdir(exist_ok=True)
    path = run.round(number)
    try:
        stream = path.open("xb")
    except FileExistsError:
        raise RunExistsError(
            f"{path} was just written by another process. Rerun the command if units are missing."
        ) from None
    try:
        with stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        sync_folder(run.rounds)
    except OSError as error:
        path.unlink(missing_ok=True)
        error.add_note(f"{path} could not be written; no round was begun")
        raise
    return new


def read_latest_round(run: RunDirectory) -> Round:
    """Return the latest round whose file is complete.

    Raises
    ------
    RunError
        If the run has no round: one machine computes it. Or as `find_latest_round`.
    """
    found = find_latest_round(run)
    if found is not None:
        return found
    raise RunError(
        f"{run.root}: the run has no round of units for several machines. Begin one with virnucpro "
        f"rescue {run.root}, or compute the run on this machine with --resume."
    )


def find_latest_round(run: RunDirectory) -> Round | None:
    """Return the latest round whose file is complete; None if there is none.

    Raises
    ------
    RunError
        If a folder or a pipe has the name of a round.
    """
    for path in map(run.round, reversed(run.round_numbers())):
        if not path.is_file():
            raise RunError(f"{path} is not a regular file. Remove it, then rerun the command.")
        if (found := _parse(path.read_bytes())) is not None:
            return found
    return None


def _parse(text: bytes) -> Round | None:
    """Return the round in a file; None while it is incomplete, or if it is damaged."""
    try:
        content: dict[str, Any] = json.loads(text)
        digest, strides = content.pop("sha256"), int(content["strides"])
        units = (unit for first, end in content["units"] for unit in range(first, end))
        number, model = int(content["number"]), str(content["model"])
        found = Round(number, tuple(units), strides, model, tuple(content["rejected"]))
        inside = not any(map(_leads_out, found.rejected))
        return found if digest == json_digest(content) and strides > 0 and inside else None
    except (ValueError, KeyError, AttributeError, TypeError):
        return None


def _leads_out(path: str) -> bool:
    """Return whether a path within a run leads out of it."""
    return PurePath(path).is_absolute() or ".." in PurePath(path).parts


def _spans(units: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first unit and the end of each run of consecutive numbers in `units`."""
    runs = groupby(enumerate(units), lambda pair: pair[1] - pair[0])
    grouped = ([unit for _, unit in run] for _, run in runs)
    return [(run[0], run[-1] + 1) for run in grouped]
