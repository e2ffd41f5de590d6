"""Which rows are done, quarantined, missing: told by the valid segments and by nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from virnucpro.errors import DamagedSegmentError, SegmentError
from virnucpro.run_dir import RunDirectory
from virnucpro.store.copies import difference
from virnucpro.store.schema import RowState
from virnucpro.store.segment import Segment, read_segment

__all__ = ["Coverage", "RejectedFile", "survey", "valid_segment"]


class RejectedFile(NamedTuple):
    """A file named like a segment that does not count, and why: its path is part of the reason.

    One that is `damaged` was this run's and holds nothing any more: it may be deleted.
    """

    path: Path
    reason: str
    damaged: bool


@dataclass(frozen=True, eq=False, slots=True)
class Coverage:
    """What the segments of a run cover.

    Attributes
    ----------
    bounds : numpy.ndarray
        int64 (n_units + 1,); unit u holds the rows ``bounds[u]:bounds[u + 1]``.
    fingerprint : str
        The run's fingerprint, borne by every segment that counts.
    done : mapping of int to Path
        Unit -> the segment that counts for it, by ascending unit.
    missing : tuple of int
        The units without a valid segment, ascending: the next launch's plan.
    rejected : tuple of RejectedFile
        Files named like segments that do not count.
    row_state : numpy.ndarray
        uint8 (n_rows,), codes of `RowState`.
    scores : numpy.ndarray
        float32 (n_rows, 2), scores of `others` and `virus`; NaN where the row is not done, and
        everywhere in a run without a head.
    reasons : mapping of int to str
        Row -> why it is quarantined, where that is known.
    """

    bounds: npt.NDArray[np.int64]
    fingerprint: str
    done: Mapping[int, Path]
    missing: tuple[int, ...]
    rejected: tuple[RejectedFile, ...]
    row_state: npt.NDArray[np.uint8]
    scores: npt.NDArray[np.float32]
    reasons: Mapping[int, str]

    @property
    def complete(self) -> bool:
        """No row is missing."""
        return not self.missing


def survey(run: RunDirectory, bounds: npt.NDArray[np.int64], fingerprint: str) -> Coverage:
    """Read and verify every segment of every shard, those brought in from elsewhere included.

    A unit found more than once counts once: the first valid segment by path is taken. A copy that
    differs from it beyond rounding (`copies.ROUNDING`) is rejected by name. Holds two segments in
    memory at a time, and 9 bytes a row.

    Parameters
    ----------
    run : RunDirectory
        Its shards are read; nothing is written.
    bounds : numpy.ndarray
        int64 (n_units + 1,), ascending from 0: the rows of the units.
    fingerprint : str
        Segments that bear another one are rejected.

    Raises
    ------
    OSError
        When the machine is at fault and not a file; see `read_segment`.
    """
    n_rows = int(bounds[-1])
    state = np.full(n_rows, RowState.MISSING, np.uint8)
    scores = np.full((n_rows, 2), np.nan, np.float32)
    reasons: dict[int, str] = {}
    done: dict[int, Path] = {}
    rejected: list[RejectedFile] = []
    for unit, path in run.segments():
        segment = _own_segment(path, bounds, fingerprint)
        if isinstance(segment, RejectedFile):
            rejected.append(segment)
        elif unit not in done:
            done[unit] = path
            _record(segment, state, scores)
            reasons.update(segment.reasons)
        elif differs := _difference(done[unit], segment):
            reason = f"{path}: has {differs} than {done[unit]}, which counts; move one of them out"
            rejected.append(RejectedFile(path, reason, damaged=False))
    missing = tuple(unit for unit in range(len(bounds) - 1) if unit not in done)
    return Coverage(bounds, fingerprint, done, missing, tuple(rejected), state, scores, reasons)


def valid_segment(
    run: RunDirectory, unit: int, bounds: npt.NDArray[np.int64], fingerprint: str
) -> Path | None:
    """Find the segment that counts for `unit` at this moment, in any shard; None where none does.

    Costs a look at each shard where there is none, and the reading of one segment where there is.
    For parameters and errors see `survey`, which would choose the same one.
    """
    for path in run.copies(unit):
        if isinstance(_own_segment(path, bounds, fingerprint), Segment):
            return path
    return None


def _own_segment(
    path: Path, bounds: npt.NDArray[np.int64], fingerprint: str
) -> Segment | RejectedFile:
    """Read a segment, or say why it does not count in this run."""
    try:
        segment = read_segment(path)
    except SegmentError as error:
        return RejectedFile(path, str(error), isinstance(error, DamagedSegmentError))
    misfit = _misfit(segment, bounds, fingerprint)
    return RejectedFile(path, f"{path}: {misfit}", damaged=False) if misfit else segment


def _misfit(segment: Segment, bounds: npt.NDArray[np.int64], fingerprint: str) -> str:
    """Say why a valid segment is none of this run; empty when it is one."""
    if segment.fingerprint != fingerprint:
        return (
            f"belongs to a run with fingerprint {segment.fingerprint}, this one has {fingerprint}; "
            "move it out of the run"
        )
    if segment.unit >= len(bounds) - 1:
        return f"unit {segment.unit} is none of the run's {len(bounds) - 1} units; move it out"
    first, last = int(bounds[segment.unit]), int(bounds[segment.unit + 1])
    if not np.array_equal(segment.rows, np.arange(first, last)):
        return f"its rows are not {first} to {last - 1}; move it out, --resume redoes its unit"
    return ""


def _difference(path: Path, copy: Segment) -> str:
    """Say what a copy tells differently from the segment that counts; empty for nothing."""
    try:
        return difference(read_segment(path), copy)
    except SegmentError:
        return ""  # damaged since it was surveyed: whoever needs its vectors will say so


def _record(
    segment: Segment, state: npt.NDArray[np.uint8], scores: npt.NDArray[np.float32]
) -> None:
    """Write what `segment` knows into the columns over all rows."""
    first, last = int(segment.rows[0]), int(segment.rows[-1]) + 1
    state[first:last] = segment.state
    if segment.scores is not None:
        done = segment.state == RowState.DONE
        scores[first:last][done] = segment.scores[done]
