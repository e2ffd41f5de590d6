"""Compute the scores of windows and records from scores of items and pieces; call windows.

An item has two scores, one for each class: others and virus.
Window: ``others`` and ``virus`` are the highest scores of each class over the window's items. The
call is viral if ``virus >= others``, as in the published tool. The window's score is
``virus / (others + virus)``.
Record: the score is the mean score of its scored windows, and the logit is the mean logit of these
windows. The logit of its pieces is their mean logit, weighted by length.
`virnucpro.classifier.decision` calls the record.

A missing item or piece can still be computed by a resume, so its window has no score and its record
has no call. A quarantined one will never have a score, so the call ignores it.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from virnucpro.arrays import (
    AnyArray,
    BoolArray,
    ByteArray,
    Float32Array,
    FloatArray,
    Int32Array,
    IntArray,
)
from virnucpro.classifier.calibration import log_ratio, share_of_errors
from virnucpro.encoders.genes.inputs import FACTS
from virnucpro.sequences.items import WINDOW_ITEM
from virnucpro.sequences.spec import RecordStatus
from virnucpro.store.schema import RowState

Number = TypeVar("Number", np.int64, np.float32, np.float64)


class Call(IntEnum):
    """Codes for the call of a window or a record."""

    NOT_SCORED = 0
    VIRAL = 1
    NON_VIRAL = 2
    AMBIGUOUS = 3


class Status(IntEnum):
    """Codes for a window or a record: scored, or the reason why it has no call."""

    SCORED = 0
    NO_OPEN_FRAME = 1
    TOO_SHORT = 2
    AMBIGUOUS_BASES = 3
    QUARANTINED = 4
    MISSING = 5
    INVALID_LETTERS = 6
    TOO_LONG = 7


class Evidence(IntEnum):
    """Codes for the items that gave a window or a record its score; the bits can be combined."""

    NONE = 0
    FRAMES = 1
    COMPOSITION = 2
    BOTH = 3


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits for the call of a record.

    A score >= `viral` is viral, a score < `non_viral` is non-viral, any other score is ambiguous.
    """

    viral: float = 0.5
    non_viral: float = 0.5


@dataclass(frozen=True, slots=True)
class WindowCalls:
    """Scores and calls of all windows: arrays with one entry per window, in input order.

    Attributes
    ----------
    others, virus
        (n_windows,) float32, highest score of each class over the scored items; NaN if not scored.
    score
        (n_windows,) float32, ``virus / (others + virus)``; NaN if not scored.
    n_items, n_scored
        (n_windows,) int64, number of all items, and number of items with a score.
    best_item
        (n_windows,) int64, index (over all items) of the first item with the highest virus score;
        -1 if not scored.
    call, evidence, status
        (n_windows,) uint8, codes of `Call`, `Evidence` and `Status`.
    """

    others: Float32Array
    virus: Float32Array
    score: Float32Array
    n_items: IntArray
    n_scored: IntArray
    best_item: IntArray
    call: ByteArray
    evidence: ByteArray
    status: ByteArray

    def logits(self) -> FloatArray:
        """Return ``log(virus) - log(others)``, limited as by `log_ratio`; NaN if not scored."""
        return log_ratio(self.others, self.virus)

    def block(self, first: int, last: int) -> "WindowCalls":
        """Return the calls of the windows ``first`` to ``last - 1``."""
        return self.select(slice(first, last))

    def select(self, chosen: IntArray | slice) -> "WindowCalls":
        """Return the calls of the chosen windows."""
        return WindowCalls(*(getattr(self, name)[chosen] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class PieceScores:
    """Scores of the pieces of records.

    Attributes
    ----------
    first
        (n_records + 1,) int64, index of the first piece of each record.
    length
        (n_pieces,), bases of each piece.
    scores
        (n_pieces, 2 + n_facts) float32, scores of `others` and `virus`, then facts: numbers of
        which a record has the sum.
    state
        (n_pieces,) uint8, codes of `RowState`.
    """

    first: IntArray
    length: Int32Array
    scores: Float32Array
    state: ByteArray


@dataclass(frozen=True, slots=True)
class RecordScores:
    """Scores of all records: arrays with one entry per record, in input order.

    Attributes
    ----------
    score
        (n_records,) float32, mean score of the scored windows; NaN if none is scored.
    logit
        (n_records,) float64, mean logit of the scored windows; NaN if none is scored.
    length
        (n_records,) int64, bases of each record.
    record_logit
        (n_records,) float64, mean logit of the scored pieces; NaN if none is scored.
    facts
        (n_records, n_facts) float64, sums over the scored pieces; NaN if none is scored.
    n_windows, n_scored
        (n_records,) int64, number of windows, and of windows with a score.
    n_missing
        (n_records,) int64, number of windows with a missing item, and of missing pieces.
    scored_bases
        (n_records,) int64, total length of the scored windows; an overlap is counted twice.
    best_window
        (n_records,) int64, number (in the whole index) of the first window with the highest
        score; -1 if no window is scored.
    evidence, status
        (n_records,) uint8, codes of `Evidence` and `Status`.
    """

    score: Float32Array
    logit: FloatArray
    length: IntArray
    record_logit: FloatArray
    facts: FloatArray
    n_windows: IntArray
    n_scored: IntArray
    n_missing: IntArray
    scored_bases: IntArray
    best_window: IntArray
    evidence: ByteArray
    status: ByteArray

    def errors(self, rows: IntArray | slice = slice(None)) -> FloatArray:
        """Return `share_of_errors` of some records; 0 if it is not known."""
        return share_of_errors(self.fact("frame shifts")[rows], self.fact("path codons")[rows])

    def fact(self, name: str) -> FloatArray:
        """Return the fact of this name, one of `FACTS`, (n_records,); NaN if it is not known."""
        number = FACTS.index(name)
        if number >= self.facts.shape[1]:
            return np.full(len(self.facts), np.nan)
        return self.facts[:, number]


def call_windows(
    window_first_item: IntArray,
    item_row: IntArray,
    scores: Float32Array,
    state: ByteArray,
    item_frame: ByteArray,
    without_item: ByteArray,
) -> WindowCalls:
    """Compute the call of each window from the scores of its items.

    Parameters
    ----------
    window_first_item
        (n_windows + 1,) int64, index of the first item of each window. With this array as f,
        window w has the items ``f[w]`` to ``f[w + 1] - 1``.
    item_row
        (n_items,) int64, row of each item in `scores` and `state`.
    scores
        (n_rows, 2) float32, scores of `others` and `virus`.
    state
        (n_rows,) uint8, codes of `RowState`.
    item_frame
        (n_items,) uint8, frame of each item; `WINDOW_ITEM` for a whole window.
    without_item
        (n_windows,) uint8, code of `Status` of each window if it has no item.
    """
    item_state = state[item_row]
    done = item_state == RowState.DONE
    others = np.where(done, scores[item_row, 0], np.float32(-np.inf))
    virus = np.where(done, scores[item_row, 1], np.float32(-np.inf))
    n_scored = _count(window_first_item, done)
    n_missing = _count(window_first_item, item_state == RowState.MISSING)
    n_items = np.diff(window_first_item)

    status = np.full(len(n_items), Status.SCORED, np.uint8)
    status[n_items == 0] = without_item[n_items == 0]
    status[(n_items > 0) & (n_scored == 0)] = Status.QUARANTINED
    status[n_missing > 0] = Status.MISSING
    scored = status == Status.SCORED

    best_others = np.where(scored, _max(window_first_item, others), np.float32(np.nan))
    best_virus = np.where(scored, _max(window_first_item, virus), np.float32(np.nan))
    kind = np.where(item_frame == WINDOW_ITEM, Evidence.COMPOSITION, Evidence.FRAMES)
    evidence = _group(np.bitwise_or, window_first_item, np.where(done, kind, 0), 0, np.int64)
    call = np.full(len(n_items), Call.NOT_SCORED, np.uint8)
    call[scored & (best_virus >= best_others)] = Call.VIRAL
    call[scored & (best_virus < best_others)] = Call.NON_VIRAL
    return WindowCalls(
        others=best_others,
        virus=best_virus,
        score=best_virus / (best_others + best_virus),
        n_items=n_items,
        n_scored=n_scored,
        best_item=np.where(scored, _argmax(window_first_item, virus), -1),
        call=call,
        evidence=np.where(scored, evidence, Evidence.NONE).astype(np.uint8),
        status=status,
    )


def score_records(
    record_first_window: IntArray,
    record_status: ByteArray,
    record_lengths: IntArray,
    windows: WindowCalls,
    window_lengths: IntArray,
    pieces: PieceScores,
) -> RecordScores:
    """Compute the score of each record from its windows and pieces.

    Parameters
    ----------
    record_first_window
        (n_records + 1,) int64, index of the first window of each record. With this array as f,
        record r has the windows ``f[r]`` to ``f[r + 1] - 1``.
    record_status
        (n_records,) uint8, codes of `RecordStatus` from the sequence index.
    record_lengths
        (n_records,) int64, bases of each record.
    windows
        Result of `call_windows`.
    window_lengths
        (n_windows,) int64, bases of each window.
    pieces
        Scores of the pieces; without pieces, each record has 0.
    """
    scored = windows.status == Status.SCORED
    n_windows = np.diff(record_first_window)
    n_scored = _count(record_first_window, scored)
    n_missing = _count(record_first_window, windows.status == Status.MISSING)
    n_missing += _count(pieces.first, pieces.state == RowState.MISSING)
    n_quarantined = _count(record_first_window, windows.status == Status.QUARANTINED)

    status = _structural_status(record_status)
    status[n_quarantined > 0] = Status.QUARANTINED
    status[n_scored > 0] = Status.SCORED
    status[n_missing > 0] = Status.MISSING

    logit = windows.logits()

    def total(values: AnyArray) -> FloatArray:
        return _group(np.add, record_first_window, np.where(scored, values, 0), 0, np.float64)

    with np.errstate(invalid="ignore"):
        score = (total(windows.score) / n_scored).astype(np.float32)
        mean_logit = total(logit) / n_scored
    ranking = np.where(scored, windows.score, np.float32(-np.inf))
    evidence = _group(np.bitwise_or, record_first_window, windows.evidence, 0, np.int64)
    record_logit, facts = _of_pieces(pieces)
    return RecordScores(
        score=score,
        logit=mean_logit,
        length=np.asarray(record_lengths, np.int64),
        record_logit=record_logit,
        facts=facts,
        n_windows=n_windows,
        n_scored=n_scored,
        n_missing=n_missing,
        scored_bases=total(window_lengths).astype(np.int64),
        best_window=np.where(n_scored > 0, _argmax(record_first_window, ranking), -1),
        evidence=evidence.astype(np.uint8),
        status=status,
    )


def _of_pieces(pieces: PieceScores) -> tuple[FloatArray, FloatArray]:
    """Return mean logit and sums of facts of each record; NaN without a scored piece."""
    done = pieces.state == RowState.DONE
    weight = np.where(done, pieces.length, 0).astype(np.float64)
    logit = np.where(done, log_ratio(pieces.scores[:, 0], pieces.scores[:, 1]), 0)
    scored = _count(pieces.first, done) > 0
    with np.errstate(invalid="ignore"):
        mean = _group(np.add, pieces.first, weight * logit, 0, np.float64) / _group(
            np.add, pieces.first, weight, 0, np.float64
        )
    facts = np.full((len(scored), pieces.scores.shape[1] - 2), np.nan)
    for number, values in enumerate(pieces.scores[:, 2:].T):
        total = _group(np.add, pieces.first, np.where(done, values, 0), 0, np.float64)
        facts[:, number] = np.where(scored, total, np.nan)
    return mean, facts


def _structural_status(record_status: ByteArray) -> ByteArray:
    """Translate `RecordStatus` codes of the sequence index into `Status` codes.

    Records with windows first get the code `NO_OPEN_FRAME`. The caller replaces this code if a
    window of the record has an item.
    """
    known = Status.__members__
    codes = [known.get(reason.name, Status.NO_OPEN_FRAME) for reason in RecordStatus]
    return np.array(codes, np.uint8)[record_status]


def _group(
    ufunc: np.ufunc, first: IntArray, values: AnyArray, empty: float, dtype: type[Number]
) -> NDArray[Number]:
    """Reduce the values of each group to one number with `ufunc`; return one number per group.

    A group is the items of a window, or the windows of a record. Group g has the values
    ``values[first[g]:first[g + 1]]``. The result of a group without values is `empty`.
    """
    result = np.full(len(first) - 1, empty, dtype)
    filled = first[1:] > first[:-1]
    if len(values) == np.count_nonzero(filled):  # one value each
        result[filled] = values
    else:
        result[filled] = ufunc.reduceat(values, first[:-1][filled], dtype=dtype)
    return result


def _count(first: IntArray, values: BoolArray) -> IntArray:
    return _group(np.add, first, values, 0, np.int64)


def _max(first: IntArray, values: Float32Array) -> Float32Array:
    return _group(np.maximum, first, values, -np.inf, np.float32)


def _argmax(first: IntArray, values: Float32Array) -> IntArray:
    """Return the position in `values` of each group's first maximum; -1 for an empty group.

    Group g has the values ``values[first[g]:first[g + 1]]``.
    """
    sizes = np.diff(first)
    hits = np.flatnonzero(values == np.repeat(_max(first, values), sizes))
    result = np.full(len(sizes), -1, np.int64)
    group = np.repeat(np.arange(len(sizes)), sizes)[hits]
    result[group[::-1]] = hits[::-1]
    return result
