"""Log odds of the spans of records: what genes and protein words say of a part of a record.

The encoder of genes adds up the sums of spans of at most `SPAN` bases to those of a piece. The head
judges each span, and each group of neighbouring spans (`SCALES`), of a piece; their logits are
stored behind the facts of the piece. A group of spans is known more surely than one span, which is
known in its place.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from virnucpro.arrays import FloatArray, IntArray
from virnucpro.classifier.calibration import RecordCalibration
from virnucpro.encoders.genes.encoder import MOST_SPANS, SCALES
from virnucpro.encoders.genes.genes import SPAN
from virnucpro.encoders.genes.inputs import FACTS
from virnucpro.sequences.index import SequenceIndex
from virnucpro.store.coverage import Coverage
from virnucpro.store.schema import RowState

_WEIGHTS: Final = (0.9, 0.4)
"""Weights of the log odds of each of `SCALES` in the evidence of a window."""


@dataclass(frozen=True, slots=True)
class SpanOdds:
    """Log odds of the spans of some windows.

    Attributes
    ----------
    head, size
        ``(n,)``, the first window of each span, and the number of its windows.
    odds
        For each of `SCALES`, ``(n,)`` float64: log odds of as many spans from this one on; NaN if
        the piece has fewer, or no score.
    """

    head: IntArray
    size: IntArray
    odds: tuple[FloatArray, ...]

    def of_windows(self) -> FloatArray:
        """Return the evidence of each window: its part of that of its span."""
        total = np.zeros(len(self.size))
        for scale, weight, odds in zip(SCALES, _WEIGHTS, self.odds, strict=True):
            known = np.isfinite(odds)
            values = np.where(known, odds, 0)
            sums, n_known = values.copy(), known.astype(np.int64)
            for shift in range(1, scale):
                sums[shift:] += values[:-shift]
                n_known[shift:] += known[:-shift]
            total += weight * sums / np.maximum(n_known, 1)
        return np.repeat(total / self.size, self.size)

    def of_stretches(self, first: IntArray, size: IntArray) -> FloatArray:
        """Return the log odds of stretches of windows; NaN without a score.

        They are the mean over `SCALES` of the mean of the groups of spans in the stretch. A span
        belongs to the stretch of its middle window.

        Parameters
        ----------
        first, size
            ``(n,)``, first window and number of windows of each stretch; together all windows.
        """
        n = len(first)
        own = np.searchsorted(first, self.head + self.size // 2, side="right") - 1
        total, n_scales = np.zeros((2, n))
        for scale, odds in zip(SCALES, self.odds, strict=True):
            inside = np.isfinite(odds)
            inside[: len(own) - scale + 1] &= own[scale - 1 :] == own[: len(own) - scale + 1]
            counts = np.bincount(own[inside], minlength=n)
            sums = np.bincount(own[inside], odds[inside], n)
            total += sums / np.maximum(counts, 1)
            n_scales += counts > 0
        middle = np.searchsorted(self.head, first + size // 2, side="right") - 1
        with np.errstate(invalid="ignore"):
            return np.where(n_scales > 0, total / n_scales, self.odds[0][middle])


@dataclass(frozen=True, slots=True)
class SpanScores:
    """Logits of the spans of a run.

    Attributes
    ----------
    column
        Position of the first span of a piece in the scores of `coverage`.
    """

    index: SequenceIndex
    coverage: Coverage
    column: int

    @classmethod
    def of(cls, index: SequenceIndex, coverage: Coverage, n_classes: int) -> "SpanScores | None":
        """Return the scores of spans; None for a run that has none."""
        column = 2 + n_classes + len(FACTS)
        return cls(index, coverage, column) if coverage.scores.shape[1] > column else None

    def log_odds(
        self,
        record: IntArray,
        middle: IntArray,
        logit: FloatArray,
        calibration: RecordCalibration,
        errors: FloatArray,
    ) -> SpanOdds:
        """Return the log odds of the spans in which windows have their middle.

        They are those of a record with the logit of the spans and the mean logit of their windows.

        Parameters
        ----------
        record, middle
            ``(n,)``, record of each window, and the base of its middle in the record, ascending.
        logit
            ``(n,)``, logits of windows; NaN without a score.
        errors
            ``(n,)``, `share_of_errors` of each window's record.
        """
        first = self.index.record_first_piece
        length = self.index.record_lengths[record]
        pieces = np.maximum(first[record + 1] - first[record], 1)
        number, start, n_bases = _part(middle, length, pieces)
        spans = np.maximum(-(-n_bases // SPAN), 1)
        span, _, n_bases = _part(middle - start, n_bases, spans)
        piece = np.where(first[record] + number < first[record + 1], first[record] + number, -1)
        changes = (np.diff(values, prepend=-1) != 0 for values in (record, number, span))
        head = np.flatnonzero(np.logical_or.reduce([*changes]))
        size = np.diff(head, append=len(record))
        piece, span, spans, n_bases = (part[head] for part in (piece, span, spans, n_bases))
        owner = np.repeat(np.arange(len(head)), size)
        scored = np.isfinite(logit)
        n_scored = np.bincount(owner, scored, len(head))
        total = np.bincount(owner[scored], logit[scored], len(head))
        row = self.index.piece_row[piece]
        spans = np.where((piece < 0) | (spans < SCALES[-1]), 0, np.minimum(spans, MOST_SPANS))
        spans[self.coverage.row_state[row] != RowState.DONE] = 0
        found, column = [], self.column
        for scale in SCALES:
            odds, last = np.full(len(head), np.nan), np.arange(scale - 1, len(head))
            at = np.arange(len(last))
            # Without a window in one of the spans, the next entry is not the next span.
            at = at[(piece[at] == piece[last]) & (span[last] - span[at] == scale - 1)]
            at = at[span[at] + scale <= spans[at]]
            sums = (sum(v[at + n] for n in range(scale)) for v in (total, n_scored, n_bases))
            logits, windows, bases = sums
            with np.errstate(invalid="ignore"):
                mean = logits / windows
            own = self.coverage.scores[row[at], column + span[at]]
            odds[at] = calibration.log_odds(own, mean, bases, errors[head[at]])
            found.append(odds)
            column += MOST_SPANS - scale + 1
        return SpanOdds(head, size, tuple(found))


def _part(
    place: IntArray, length: IntArray, parts: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return number, start and length of the part at a place; parts are almost equally long.

    Part k of n begins at ``k * length // n``, as pieces of a record and spans of a piece do.
    """
    number = ((place + 1) * parts - 1) // np.maximum(length, 1)
    start = number * length // parts
    return number, start, (number + 1) * length // parts - start
