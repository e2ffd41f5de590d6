"""Tables of a run: predictions.tsv, windows.tsv, sequences.tsv, missing.tsv, quarantine.tsv."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from virnucpro.classifier.call_options import PRESETS
from virnucpro.classifier.consensus import Call, Evidence, RecordScores, Status
from virnucpro.classifier.decision import Decision, Flag, Reason
from virnucpro.classifier.run_scores import WindowBlocks
from virnucpro.report.tsv import NA, Cells, codes, decimals, integer_texts, integers, write_tsv
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.items import ITEM_NAMES
from virnucpro.sequences.windows import IntArray
from virnucpro.store.coverage import Coverage
from virnucpro.store.schema import RowState

__all__ = [
    "CALL_NAMES",
    "STATUS_NAMES",
    "TABLE_VERSION",
    "origin_columns",
    "window_columns",
    "write_missing",
    "write_predictions",
    "write_quarantine",
    "write_sequences",
    "write_windows",
]

CALL_NAMES = tuple("non-viral" if call is Call.NON_VIRAL else call.name.lower() for call in Call)
"""Output name of each `Call` code."""
TABLE_VERSION: Final = 5
"""Version of the outputs: versions 2 to 4 added last columns of predictions.tsv and windows.tsv,
version 5 file and record in the headers of sequences.
"""
STATUS_NAMES = tuple(status.name.lower() for status in Status)
"""Output name of each `Status` code."""

_EVIDENCE_NAMES = tuple(NA if one is Evidence.NONE else one.name.lower() for one in Evidence)
_REASON_NAMES = tuple(NA if one is Reason.NONE else one.name.lower() for one in Reason)
_TIER_NAMES = (NA, *PRESETS)
_FLAG_NAMES = tuple(
    ",".join(flag.name.lower() for flag in Flag if flag.name and number & flag) or NA
    for number in range(1 << len(Flag))
)
"""Output names of each code, or combination of flags."""


def write_predictions(
    path: Path,
    index: SequenceIndex,
    records: RecordScores,
    decision: Decision,
    sources: IntArray,
    class_names: Sequence[str],
    *,
    provirus: NDArray[np.bool_],
    version: int = TABLE_VERSION,
) -> None:
    """Write predictions.tsv: one row per record, in input order.

    `n_windows` and `n_scored` are numbers of windows, `scored_fraction` is their ratio, `score`
    and `call` are results of the record. `best_window` is ``start-end`` of the window with the
    highest score, 1-based and inclusive. `probability`, `fdr` (q-value) and `tier` are results of
    the calibration, `evidence` names the items that were scored, `reason` explains an ambiguous
    call, and `flags` lists properties that make a call less certain. `likely_source` is the most
    probable class of the classifier: `sources` has the position in `class_names` for each record,
    -1 if it is unknown. `file` and `record` are the input file and the number of the record in it,
    from 1. `topology` is `provirus_candidate` where `provirus`, ``(n_records,)``, is true. A
    missing value is `NA`. Tables of version 1 end with `best_window`, those of version 2 with
    `likely_source`, those of version 3 with `record`.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file is unchanged.
    """
    with np.errstate(invalid="ignore"):
        fraction = records.n_scored / records.n_windows
    write_tsv(
        path,
        index.n_records,
        {
            "seq_name": index.record_names,
            "length": integers(index.record_lengths),
            "n_windows": integers(records.n_windows),
            "n_scored": integers(records.n_scored),
            "scored_fraction": decimals(fraction),
            "score": decimals(records.score),
            "call": codes(decision.call, CALL_NAMES),
            "status": codes(records.status, STATUS_NAMES),
            "best_window": lambda rows: _spans(index, records.best_window[rows]),
        }
        | (
            {
                "probability": decimals(decision.probability),
                "fdr": decimals(decision.fdr),
                "tier": codes(decision.tier, _TIER_NAMES),
                "evidence": codes(records.evidence, _EVIDENCE_NAMES),
                "reason": codes(decision.reason, _REASON_NAMES),
                "flags": codes(decision.flags, _FLAG_NAMES),
                "likely_source": codes(sources + 1, (NA, *class_names)),
            }
            if version > 1
            else {}
        )
        | (origin_columns(index, lambda rows: rows) if version > 2 else {})
        | ({"topology": codes(provirus, (NA, "provirus_candidate"))} if version > 3 else {}),
    )


def write_windows(
    path: Path, index: SequenceIndex, windows: WindowBlocks, *, version: int = TABLE_VERSION
) -> None:
    """Write windows.tsv: one row per window, in input order.

    `window` is the window name as in the published tool, `start` and `end` are 1-based and
    inclusive. `n_items` and `n_scored` are numbers of items, `best_frame` is the frame with the
    highest virus score, W for a whole window. `evidence` is `frames` or `composition` (of a whole
    window); tables of version 1 lack it. `file` and `record` are as in predictions.tsv.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file is unchanged.
    """
    column = window_columns(windows)
    write_tsv(
        path,
        index.n_windows,
        {
            "seq_name": lambda rows: _record_names(index, rows),
            "window": index.window_names,
            "start": integers(index.window_starts, 1),
            "end": integers(index.window_ends),
            "n_items": column("n_items", integers),
            "n_scored": column("n_scored", integers),
            "score": column("score", decimals),
            "call": column("call", _named(CALL_NAMES)),
            "status": column("status", _named(STATUS_NAMES)),
            "best_frame": column(
                "best_item", lambda items: lambda rows: _frames(index, items[rows])
            ),
        }
        | ({"evidence": column("evidence", _named(_EVIDENCE_NAMES))} if version > 1 else {})
        | (origin_columns(index, lambda rows: _records(index, rows)) if version > 2 else {}),
    )


def write_sequences(path: Path, index: SequenceIndex, records: RecordScores) -> None:
    """Write the table of ``virnucpro embed``: one row per record, in input order.

    The column `embedding` contains the 0-based index of the record in embeddings.h5. The value is
    `NA` for an empty record, because it has no embedding.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file is unchanged.
    """
    write_tsv(
        path,
        index.n_records,
        {
            "seq_name": index.record_names,
            "length": integers(index.record_lengths),
            "status": codes(records.status, STATUS_NAMES),
            "embedding": lambda rows: _first_items(index, rows),
        },
    )


def _first_items(index: SequenceIndex, records: IntArray) -> list[str]:
    """Return the number of each record's first item; `NA` for a record without items."""
    first, after = (
        index.window_first_item[index.record_first_window[some]].tolist()
        for some in (records, records + 1)
    )
    return [str(a) if b > a else NA for a, b in zip(first, after, strict=True)]


def write_missing(path: Path, index: SequenceIndex, records: RecordScores) -> None:
    """Write missing.tsv: one line per record that has windows without a result yet.

    `n_missing` is the number of these windows.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file is unchanged.
    """
    write_tsv(
        path,
        np.flatnonzero(records.status == Status.MISSING),
        {
            "seq_name": index.record_names,
            "length": integers(index.record_lengths),
            "n_windows": integers(records.n_windows),
            "n_missing": integers(records.n_missing),
        },
    )


def write_quarantine(path: Path, index: SequenceIndex, coverage: Coverage) -> None:
    """Write quarantine.tsv: one row per item that failed permanently.

    `start` and `end` are positions of the item's window, 1-based and inclusive. `row` is the row
    number of the item in segments and logs, `reason` is one word, `evidence` describes the failure.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file is unchanged.
    """
    items = np.flatnonzero((coverage.row_state == RowState.QUARANTINED)[index.item_row])
    rows = index.item_row[items]
    windows = np.searchsorted(index.window_first_item, items, side="right") - 1
    reasons = [coverage.reasons.get(row, NA).partition(": ") for row in rows.tolist()]
    write_tsv(
        path,
        len(items),
        {
            "seq_name": lambda block: _record_names(index, windows[block]),
            "item": lambda block: index.item_names(items[block]),
            "row": integers(rows),
            "start": integers(index.window_starts[windows], 1),
            "end": integers(index.window_ends[windows]),
            "reason": lambda block: [reasons[number][0] for number in block.tolist()],
            "evidence": lambda block: [reasons[number][2] or NA for number in block.tolist()],
        },
    )


def _record_names(index: SequenceIndex, windows: IntArray) -> list[str]:
    """Return, for each window, the name of the record that contains this window."""
    return index.record_names(_records(index, windows))


def _records(index: SequenceIndex, windows: IntArray) -> IntArray:
    """Return, for each window, the number of the record that contains this window."""
    return np.searchsorted(index.record_first_window, windows, side="right") - 1


def origin_columns(
    index: SequenceIndex, records_of: Callable[[IntArray], IntArray]
) -> dict[str, Cells]:
    """Return the columns `file` and `record`; `records_of` returns the records of table rows.

    A file is shown by its name, or by its path as given if two files have one name.
    """
    cells = index.input_names
    return {
        "file": lambda rows: [cells[n] for n in index.record_origins(records_of(rows))[0].tolist()],
        "record": lambda rows: integer_texts(index.record_origins(records_of(rows))[1]),
    }


def _spans(index: SequenceIndex, windows: IntArray) -> list[str]:
    """Return ``start-end`` of each window (1-based, inclusive); `NA` for window number -1."""
    if not index.n_windows:
        return [NA] * len(windows)
    starts, ends = index.window_starts[windows] + 1, index.window_ends[windows]
    spans = zip(windows.tolist(), starts.tolist(), ends.tolist(), strict=True)
    return [NA if window < 0 else f"{start}-{end}" for window, start, end in spans]


def _frames(index: SequenceIndex, items: IntArray) -> list[str]:
    """Return the frame name of each item, W for a whole window; `NA` for item number -1."""
    if not index.n_items:
        return [NA] * len(items)
    pairs = zip(items.tolist(), index.item_frame[items].tolist(), strict=True)
    return [NA if item < 0 else ITEM_NAMES[frame] for item, frame in pairs]


def _named(names: Sequence[str]) -> Callable[[Any], Cells]:
    return lambda values: codes(values, names)


def window_columns(windows: WindowBlocks) -> Callable[[str, Callable[[Any], Cells]], Cells]:
    """Return a function that makes a column for `write_tsv` from an attribute of `WindowCalls`.

    The calls of a block of windows are computed once for all columns.
    """
    block = lru_cache(maxsize=1)(windows.block)

    def column(name: str, formatted: Callable[[Any], Cells]) -> Cells:
        def cells(rows: IntArray) -> list[str]:
            first = int(rows[0])
            return formatted(getattr(block(first, int(rows[-1]) + 1), name))(rows - first)

        return cells

    return column
