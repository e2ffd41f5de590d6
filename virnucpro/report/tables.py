"""The tables of a run: every record, every window, and what is missing or was given up."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from virnucpro.classify.consensus import Call, RecordCalls, Status, WindowCalls
from virnucpro.report.tsv import NA, blocks, codes, decimals, integers, write_tsv
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.translation import FRAMES
from virnucpro.store.coverage import Coverage
from virnucpro.store.schema import RowState

__all__ = [
    "CALL_NAMES",
    "STATUS_NAMES",
    "write_missing",
    "write_predictions",
    "write_quarantine",
    "write_sequences",
    "write_windows",
]

CALL_NAMES = tuple("non-viral" if call is Call.NON_VIRAL else call.name.lower() for call in Call)
"""What the codes of `Call` are called in every output."""
STATUS_NAMES = tuple(status.name.lower() for status in Status)
"""What the codes of `Status` are called in every output."""

_PREDICTIONS = (
    "seq_name",
    "length",
    "n_windows",
    "n_scored",
    "scored_fraction",
    "score",
    "call",
    "status",
    "best_window",
)
_WINDOWS = (
    "seq_name",
    "window",
    "start",
    "end",
    "n_items",
    "n_scored",
    "score",
    "call",
    "status",
    "best_frame",
)
_SEQUENCES = ("seq_name", "length", "status", "embedding")
_MISSING = ("seq_name", "length", "n_windows", "n_missing")
_QUARANTINE = ("seq_name", "item", "row", "start", "end", "reason", "evidence")


def write_predictions(path: Path, index: SequenceIndex, records: RecordCalls) -> None:
    """Write one row a record, in input order.

    `n_windows` and `n_scored` count windows, `scored_fraction` is the one over the other, `score`
    and `call` are the record's, `best_window` is ``start-end`` of its highest-scoring window,
    counted from 1, both ends included. `NA` where there is no such value.

    Raises
    ------
    OSError
        When the file cannot be written; an older one is untouched.
    """
    with np.errstate(invalid="ignore"):
        fraction = records.n_scored / records.n_windows
    write_tsv(
        path,
        _PREDICTIONS,
        (
            (
                index.record_names(np.arange(block.start, block.stop)),
                integers(index.record_lengths[block]),
                integers(records.n_windows[block]),
                integers(records.n_scored[block]),
                decimals(fraction[block]),
                decimals(records.score[block]),
                codes(records.call[block], CALL_NAMES),
                codes(records.status[block], STATUS_NAMES),
                _spans(index, records.best_window[block]),
            )
            for block in blocks(index.n_records)
        ),
    )


def write_windows(path: Path, index: SequenceIndex, windows: WindowCalls) -> None:
    """Write one row a window, in input order.

    `window` is the published tool's name, `start` and `end` count from 1, both included,
    `n_items` and `n_scored` count the window's open frames, `best_frame` is the one with the
    highest virus score.

    Raises
    ------
    OSError
        When the file cannot be written; an older one is untouched.
    """
    write_tsv(
        path,
        _WINDOWS,
        (
            (
                _owner_names(index, np.arange(block.start, block.stop)),
                index.window_names(np.arange(block.start, block.stop)),
                integers(index.window_starts[block] + 1),
                integers(index.window_ends[block]),
                integers(windows.n_items[block]),
                integers(windows.n_scored[block]),
                decimals(windows.score[block]),
                codes(windows.call[block], CALL_NAMES),
                codes(windows.status[block], STATUS_NAMES),
                _frames(index, windows.best_item[block]),
            )
            for block in blocks(index.n_windows)
        ),
    )


def write_sequences(path: Path, index: SequenceIndex, records: RecordCalls) -> None:
    """Write one row a record of a run of whole sequences, in input order.

    `embedding` is the record's row in embeddings.h5, counted from 0; `NA` for a record without a
    letter, which has none.

    Raises
    ------
    OSError
        When the file cannot be written; an older one is untouched.
    """
    item = index.window_first_item[index.record_first_window]
    rows = np.where(np.diff(item) > 0, item[:-1], -1)
    write_tsv(
        path,
        _SEQUENCES,
        (
            (
                index.record_names(np.arange(block.start, block.stop)),
                integers(index.record_lengths[block]),
                codes(records.status[block], STATUS_NAMES),
                [NA if row < 0 else str(row) for row in rows[block].tolist()],
            )
            for block in blocks(index.n_records)
        ),
    )


def write_missing(path: Path, index: SequenceIndex, records: RecordCalls) -> None:
    """Write the records with a window that no segment answers; `n_missing` counts those windows.

    Raises
    ------
    OSError
        When the file cannot be written; an older one is untouched.
    """
    missing = np.flatnonzero(records.status == Status.MISSING)
    write_tsv(
        path,
        _MISSING,
        (
            (
                index.record_names(missing[block]),
                integers(index.record_lengths[missing[block]]),
                integers(records.n_windows[missing[block]]),
                integers(records.n_missing[missing[block]]),
            )
            for block in blocks(len(missing))
        ),
    )


def write_quarantine(path: Path, index: SequenceIndex, coverage: Coverage) -> None:
    """Write the items that were tried and given up, and why.

    `start` and `end` are those of the item's window, counted from 1, both included. `row` is what
    segments and logs call the item by; `reason` is a word, `evidence` what was seen.

    Raises
    ------
    OSError
        When the file cannot be written; an older one is untouched.
    """
    items = _quarantined_items(index, coverage)
    window = np.searchsorted(index.window_first_item, items, side="right") - 1
    rows = index.item_row[items]
    told = [coverage.reasons.get(row, NA).partition(": ") for row in rows.tolist()]
    write_tsv(
        path,
        _QUARANTINE,
        (
            (
                _owner_names(index, window[block]),
                index.item_names(items[block]),
                integers(rows[block]),
                integers(index.window_starts[window[block]] + 1),
                integers(index.window_ends[window[block]]),
                [reason for reason, _, _ in told[block]],
                [evidence or NA for _, _, evidence in told[block]],
            )
            for block in blocks(len(items))
        ),
    )


def _quarantined_items(index: SequenceIndex, coverage: Coverage) -> npt.NDArray[np.int64]:
    found = [
        np.flatnonzero(coverage.row_state[index.item_row[block]] == RowState.QUARANTINED)
        + block.start
        for block in blocks(index.n_items)
    ]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _owner_names(index: SequenceIndex, windows: npt.NDArray[np.int64]) -> list[str]:
    """Name the records that the windows are pieces of."""
    owners = np.searchsorted(index.record_first_window, windows, side="right") - 1
    return index.record_names(owners)


def _spans(index: SequenceIndex, windows: npt.NDArray[np.int64]) -> list[str]:
    """Format windows as ``start-end`` counted from 1, both included; `NA` for -1."""
    known = np.maximum(windows, 0)
    if not index.n_windows:
        return [NA] * len(windows)
    starts, ends = index.window_starts[known] + 1, index.window_ends[known]
    spans = zip(windows.tolist(), starts.tolist(), ends.tolist(), strict=True)
    return [NA if window < 0 else f"{start}-{end}" for window, start, end in spans]


def _frames(index: SequenceIndex, items: npt.NDArray[np.int64]) -> list[str]:
    """Name the items' frames; `NA` for -1."""
    if not index.n_items:
        return [NA] * len(items)
    frames = index.item_frame[np.maximum(items, 0)].tolist()
    return [
        NA if item < 0 else FRAMES[frame]
        for item, frame in zip(items.tolist(), frames, strict=True)
    ]
