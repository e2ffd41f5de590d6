"""Scores of spans: what genes and protein words say of a part of a record.

The encoder of genes adds up the sums of spans of at most `SPAN` bases to those of a piece. The head
judges the spans, too, and their logits are stored behind the facts of the piece.
"""

from dataclasses import dataclass

import numpy as np

from virnucpro.arrays import FloatArray, IntArray
from virnucpro.classifier.calibration import RecordCalibration
from virnucpro.encoders.genes.genes import SPAN
from virnucpro.encoders.genes.inputs import FACTS
from virnucpro.sequences.index import SequenceIndex
from virnucpro.store.coverage import Coverage
from virnucpro.store.schema import RowState


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

    def of_windows(
        self, record: IntArray, middle: IntArray
    ) -> tuple[FloatArray, IntArray, IntArray]:
        """Return logit, number and bases of the span in which each window has its middle.

        Parameters
        ----------
        record, middle
            ``(n,)``, record of each window, and the base of its middle in the record.

        Returns
        -------
        tuple of ``(n,)`` arrays
            The logit is NaN if the piece has one span only, or no score. Windows of one span have
            one number, which no other span of the run has.
        """
        first, most = self.index.record_first_piece, self.coverage.scores.shape[1] - self.column
        length = self.index.record_lengths[record]
        pieces = np.maximum(first[record + 1] - first[record], 1)
        piece, start, size = _part(middle, length, pieces)
        spans = np.maximum(-(-size // SPAN), 1)
        span, _, n_bases = _part(middle - start, size, spans)
        has_piece = first[record] + piece < first[record + 1]
        known = np.flatnonzero(has_piece & (spans > 1) & (span < most))
        rows = self.index.piece_row[(first[record] + piece)[known]]
        logit = np.full(len(record), np.nan)
        done = self.coverage.row_state[rows] == RowState.DONE
        found = self.coverage.scores[rows, self.column + span[known]]
        logit[known] = np.where(done, found, np.nan)
        number = (record << _BITS) + (piece << _BITS_OF_SPAN) + span
        return logit, number, n_bases


_BITS_OF_SPAN = 8
_BITS = 32


def _part(
    place: IntArray, length: IntArray, parts: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Return number, start and length of the part at a place; parts are almost equally long.

    Part k of n begins at ``k * length // n``, as pieces of a record and spans of a piece do.
    """
    number = ((place + 1) * parts - 1) // np.maximum(length, 1)
    start = number * length // parts
    return number, start, (number + 1) * length // parts - start


def local_log_odds(
    scores: SpanScores,
    record: IntArray,
    middle: IntArray,
    logit: FloatArray,
    calibration: RecordCalibration,
) -> tuple[FloatArray, FloatArray]:
    """Return the evidence of spans by window, and the logit of the window's span.

    The log odds of a span are those of a record with its logit and the mean logit of its windows.

    Parameters
    ----------
    record, middle
        As for `SpanScores.of_windows`; windows of a span are neighbours.
    logit
        ``(n,)``, logits of windows; NaN without a score.

    Returns
    -------
    tuple of ``(n,)`` float64
        The log odds of a span divided by its windows, 0 without a span; the span's logit, NaN.
    """
    of_span, number, n_bases = scores.of_windows(record, middle)
    heads = np.flatnonzero(np.diff(number, prepend=-1))
    owner = np.repeat(np.arange(len(heads)), np.diff(np.append(heads, len(number))))
    scored = np.isfinite(logit)
    n_windows, n_scored = (np.bincount(owner, on, len(heads)) for on in (None, scored))
    with np.errstate(invalid="ignore"):
        mean = np.bincount(owner[scored], logit[scored], len(heads)) / n_scored
    odds = calibration.log_odds(of_span[heads], mean, n_bases[heads])
    odds[np.isnan(of_span[heads])] = 0
    return (odds / np.maximum(n_windows, 1))[owner], of_span
