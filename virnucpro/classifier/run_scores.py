"""Scores of all windows and records of a run, computed in blocks from the scores of its rows.

Memory does not grow with the number of windows: a reader of `RunWindows` gets one block at a time.
Small runs have one block.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from virnucpro.arrays import ByteArray, large_array
from virnucpro.classifier.consensus import (
    PieceScores,
    RecordScores,
    Status,
    WindowCalls,
    call_windows,
    score_records,
)
from virnucpro.encoders.genes.inputs import FACTS
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.items import LEAST_BASES
from virnucpro.store.coverage import Coverage

_WINDOWS_AT_ONCE = 1 << 16
_WINDOWS_KEPT = 1 << 18


class WindowBlocks(Protocol):
    """Interface of `RunWindows` and `WindowCalls`."""

    def block(self, first: int, last: int) -> WindowCalls:
        """Return the calls of the windows ``first`` to ``last - 1``."""


class RunWindows:
    """Calls of all windows of a run; each block is computed when it is needed."""

    def __init__(self, index: SequenceIndex, coverage: Coverage) -> None:
        self._index = index
        self._coverage = coverage

    def block(self, first: int, last: int) -> WindowCalls:
        """Return the calls of the windows ``first`` to ``last - 1``, as `call_windows`."""
        index, coverage = self._index, self._coverage
        first_item = index.window_first_item[first : last + 1]
        start, stop = (int(first_item[0]), int(first_item[-1])) if last > first else (0, 0)
        calls = call_windows(
            first_item - start,
            index.item_row[start:stop],
            coverage.scores[:, :2],
            coverage.row_state,
            index.item_frame[start:stop],
            _status_without_item(index, first, last),
        )
        calls.best_item[calls.best_item >= 0] += start
        return calls


def run_windows(index: SequenceIndex, coverage: Coverage) -> WindowBlocks:
    """Return the calls of all windows of a run; up to 262,144 windows are computed once, here."""
    windows = RunWindows(index, coverage)
    few = index.n_windows <= _WINDOWS_KEPT
    return windows.block(0, index.n_windows) if few else windows


def record_blocks(index: SequenceIndex) -> Iterator[tuple[int, int]]:
    """Yield ``(first, last)`` of blocks of records with together about 65,000 windows.

    A block has at least one record, and at most 65,536.
    """
    windows, first = index.record_first_window, 0
    while first < index.n_records:
        most = min(first + _WINDOWS_AT_ONCE, index.n_records)
        wanted = windows[first] + _WINDOWS_AT_ONCE
        last = first + int(np.searchsorted(windows[first + 1 : most + 1], wanted, side="right"))
        last = max(last, first + 1)
        yield first, last
        first = last


def score_run(
    index: SequenceIndex, windows: WindowBlocks, coverage: Coverage, n_classes: int = 0
) -> RecordScores:
    """Return the scores of all records of a run, as `score_records`.

    About 70 bytes per record, and 8 for each fact, are in `large_array`. `n_classes` is the number
    of classes in the scores of `coverage`: 0 for a classifier of two classes.
    """

    def scored(first: int, last: int) -> RecordScores:
        first_window = index.record_first_window[first : last + 1]
        start, stop = int(first_window[0]), int(first_window[-1])
        records = score_records(
            first_window - start,
            index.record_status[first:last],
            index.judged_letters[first:last],
            windows.block(start, stop),
            index.window_ends[start:stop] - index.window_starts[start:stop],
            piece_scores(index, coverage, n_classes, first, last),
        )
        records.best_window[records.best_window >= 0] += start
        return records

    empty = scored(0, 0)
    names = RecordScores.__slots__
    shapes = [(getattr(empty, name).shape[1:], getattr(empty, name).dtype) for name in names]
    result = RecordScores(*(large_array((index.n_records, *rest), kind) for rest, kind in shapes))
    for first, last in record_blocks(index):
        block = scored(first, last)
        for name in names:
            getattr(result, name)[first:last] = getattr(block, name)
    return result


def piece_scores(
    index: SequenceIndex, coverage: Coverage, n_classes: int, first: int, last: int
) -> PieceScores:
    """Return the scores of the pieces of the records ``first`` to ``last - 1``, as `score_run`."""
    first_piece = index.record_first_piece[first : last + 1]
    rows = index.piece_row[int(first_piece[0]) : int(first_piece[-1])]
    facts = range(2 + n_classes, coverage.scores.shape[1])[: len(FACTS)]
    columns = [0, 1, *facts]
    return PieceScores(
        first_piece - first_piece[0],
        index.row_lengths[rows],
        coverage.scores[rows[:, None], columns],
        coverage.row_state[rows],
    )


def _status_without_item(index: SequenceIndex, first: int, last: int) -> ByteArray:
    """Return the status of each of the windows ``first`` to ``last - 1`` if it has no item."""
    if index.spec.kind != "windows":
        return np.full(last - first, Status.NO_OPEN_FRAME, np.uint8)
    lengths = index.window_ends[first:last] - index.window_starts[first:last]
    short = lengths < LEAST_BASES
    return np.where(short, Status.TOO_SHORT, Status.AMBIGUOUS_BASES).astype(np.uint8)
