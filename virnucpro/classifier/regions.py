"""Divide long records into viral and non-viral stretches, from the log-odds of their windows.

The evidence of a window is its calibrated log-odds less the bias of its record. Genomes differ in
the level of their windows, so the bias follows the median of the record, within limits; a record
whose median is clearly viral has no bias. A window without a score has no evidence: it belongs to
the stretch of the next window. If genes of spans are scored, half of this evidence and the window's
part of the span's log odds count, with other costs. Constants were chosen on genomes that the
classifier had not seen (decisions 0063 and 0086).
"""

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from virnucpro.arrays import AnyArray, BoolArray, FloatArray, IntArray
from virnucpro.classifier.calibration import LOGIT_LIMIT, Calibration, RecordCalibration
from virnucpro.classifier.consensus import RecordScores, Status, WindowCalls
from virnucpro.classifier.decision import Reason, RecordCalls
from virnucpro.classifier.prevalence import posterior
from virnucpro.classifier.run_scores import WindowBlocks, record_blocks
from virnucpro.encoders.genes.genes import SPAN
from virnucpro.encoders.genes.inputs import FACTS
from virnucpro.sequences.index import SequenceIndex
from virnucpro.store.coverage import Coverage
from virnucpro.store.schema import RowState


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of the model, in the unit of the evidence.

    Attributes
    ----------
    enter, leave
        Cost of a change from non-viral to viral, and from viral to non-viral; 0 or more.
    start
        Lead of viral before the first window of a record.
    """

    enter: int
    leave: int
    start: int


def viral_windows(evidence: IntArray, first: IntArray, costs: Costs) -> BoolArray:
    """Return which windows are viral on the best path of each record.

    Parameters
    ----------
    evidence
        ``(n_windows,)``, evidence for viral of each window; 0 for a window without a score.
        Integers, so that a result does not depend on the order of the additions.
    first
        ``(n_records + 1,)``, the first window of each record, then ``n_windows``.
    costs
        Costs of the changes.

    Returns
    -------
    ``(n_windows,)`` bool
    """
    filled = np.diff(first) > 0
    heads, tails = first[:-1][filled], first[1:][filled] - 1
    low, high = np.full(len(evidence), -costs.enter), np.full(len(evidence), costs.leave)
    low[heads] = high[heads] = costs.start
    total = evidence.astype(np.int64)
    # After each round, `clip(x, low, high) + total` of a window stands for `reach` steps. A window
    # with low == high is known; the heads of records are, so no step joins two records.
    reach, unknown = 1, np.flatnonzero(low < high)
    while len(unknown):
        before = unknown - reach
        shift = total[before]
        least, most = low[unknown] - shift, high[unknown] - shift
        low[unknown] = np.clip(low[before], least, most)
        high[unknown] = np.clip(high[before], least, most)
        total[unknown] += shift
        unknown = unknown[low[unknown] < high[unknown]]
        reach *= 2
    lead = low + total
    viral = lead > costs.leave
    decided = viral | (lead < -costs.enter)
    viral[tails], decided[tails] = lead[tails] > 0, True
    places = np.where(decided, np.arange(len(lead)), len(lead))
    return viral[np.minimum.accumulate(places[::-1])[::-1]]


@dataclass(frozen=True, slots=True)
class SpanScores:
    """Logits of the spans of a run: what genes and protein words say of a part of a record.

    The encoder of genes adds up the sums of spans of at most `SPAN` bases to those of a piece. The
    head judges the spans, too, and their logits are stored behind the facts of the piece.

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
    errors: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Return the evidence of spans by window, and the logit of the window's span.

    The log odds of a span are those of a record with its logit and the mean logit of its windows.

    Parameters
    ----------
    record, middle
        As for `SpanScores.of_windows`; windows of a span are neighbours.
    logit
        ``(n,)``, logits of windows; NaN without a score.
    errors
        ``(n,)``, `share_of_errors` of each window's record.

    Returns
    -------
    tuple of ``(n,)`` float64
        The log odds of a span divided by its windows, 0 without a span; the span's logit, NaN.
    """
    of_span, number, n_bases = scores.of_windows(record, middle)
    heads, sizes = _groups(number)
    owner = np.repeat(np.arange(len(heads)), sizes)
    scored = np.isfinite(logit)
    n_scored = np.bincount(owner, scored, len(heads))
    with np.errstate(invalid="ignore"):
        mean = np.bincount(owner[scored], logit[scored], len(heads)) / n_scored
    odds = calibration.log_odds(of_span[heads], mean, n_bases[heads], errors[heads])
    odds[np.isnan(of_span[heads])] = 0
    return (odds / sizes)[owner], of_span


LEAST_WINDOWS: Final = 10
"""Windows of the shortest record that is divided."""

_UNIT: Final = 1000
"""Units of evidence per unit of log-odds."""
_COSTS: Final = Costs(enter=5 * _UNIT, leave=6 * _UNIT, start=-3 * _UNIT)
_COSTS_WITH_SPANS: Final = Costs(enter=6 * _UNIT, leave=3 * _UNIT, start=-3 * _UNIT)
_WINDOWS_BESIDE_SPANS: Final = 0.5
"""Weight of the evidence of windows beside that of spans."""
_LEAST_END: Final = 3
"""Windows of the shortest stretch at the end of a record of both kinds."""
_LEAST_ODDS: Final = 1.0
"""Log odds of the weakest viral stretch with spans; as the best one was chosen, 0 is too few."""
_ABOVE_MEDIAN: Final = 0.6
_BIAS: Final = (-0.2, 0.6)
_VIRAL_MEDIAN: Final = 0.5
"""Records with a higher median have the bias 0."""


@dataclass(frozen=True, slots=True)
class Regions:
    """Stretches of records, in the order of the records: arrays with one entry per stretch.

    Attributes
    ----------
    record
        (n,) int64, number of the record.
    start, end
        (n,) int64, bases, 0-based and half open. The stretches of a record cover its
        windows; none starts or ends in a run of unknown letters.
    viral
        (n,) bool; neighbours in a record differ.
    n_windows, n_scored
        (n,) int64, number of windows, and of windows with a score.
    score, log_odds
        (n,) float64, mean score, and mean calibrated log-odds of the scored windows; NaN without.
    probability
        (n,) float64, calibrated probability of a record with the windows of the stretch.
    """

    record: IntArray
    start: IntArray
    end: IntArray
    viral: BoolArray
    n_windows: IntArray
    n_scored: IntArray
    score: FloatArray
    log_odds: FloatArray
    probability: FloatArray

    def in_both(self, n_records: int) -> BoolArray:
        """Return for each record, ``(n_records,)``, whether it has stretches of both kinds."""
        return np.bincount(self.record, minlength=n_records) > 1

    def select(self, chosen: BoolArray | IntArray) -> "Regions":
        """Return the stretches where `chosen`, ``(n,)``, is true, or those with its numbers."""
        return Regions(*(getattr(self, field.name)[chosen] for field in fields(self)))


def find_regions(
    index: SequenceIndex,
    windows: WindowBlocks,
    records: RecordScores,
    calls: RecordCalls,
    calibration: Calibration,
    spans: SpanScores | None = None,
) -> Regions:
    """Return the stretches of all records of at least 10 windows that can be called.

    Left out are records with missing windows or without a score, and those whose call is ambiguous
    for another reason than its probability. About 65 bytes per stretch, and one block of windows,
    are in memory. Without a calibration of records, `spans` are not used.
    """
    able = (records.n_windows >= LEAST_WINDOWS) & (records.status == Status.SCORED)
    able &= (calls.reason == Reason.NONE) | (calls.reason == Reason.UNCERTAIN)
    prevalence = calls.prevalence.value if calls.prevalence else 0.5
    spans = None if calibration.records is None else spans
    given = calibration, prevalence, spans
    parts = [_in_block(index, windows, np.zeros(0, np.int64), np.empty(0), *given)]
    for first, last in record_blocks(index):
        chosen = first + np.flatnonzero(able[first:last])
        if len(chosen):
            parts.append(_in_block(index, windows, chosen, records.errors(chosen), *given))
    names = [field.name for field in fields(Regions)]
    return Regions(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _in_block(
    index: SequenceIndex,
    windows: WindowBlocks,
    chosen: IntArray,
    errors: FloatArray,
    calibration: Calibration,
    prevalence: float,
    spans: SpanScores | None,
) -> Regions:
    """Return the stretches of some records of a block, of which all have windows."""
    bounds = index.record_first_window
    counts = bounds[chosen + 1] - bounds[chosen]
    first = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    owner = np.repeat(np.arange(len(chosen)), counts)
    origin, after = (int(bounds[chosen[0]]), int(bounds[chosen[-1] + 1])) if len(chosen) else (0, 0)
    calls = windows.block(origin, after)
    place = bounds[chosen][owner] + np.arange(len(owner)) - first[owner] - origin
    starts, ends = index.window_starts[origin:after][place], index.window_ends[origin:after][place]
    log_odds = window_log_odds(calls, ends - starts, calibration, place)
    scored = np.isfinite(log_odds)
    logits = calls.logits()[place]
    evidence, costs, of_span = evidence_of(log_odds, first), _COSTS, np.full(len(owner), np.nan)
    of_records = None if spans is None else calibration.records
    if spans is not None and of_records is not None:
        record, middle = chosen[owner], (starts + ends) // 2
        own = errors[owner]
        local, of_span = local_log_odds(spans, record, middle, logits, of_records, own)
        evidence = np.rint(_WINDOWS_BESIDE_SPANS * evidence + _UNIT * local).astype(np.int64)
        costs = _COSTS_WITH_SPANS
    viral = without_short_ends(viral_windows(evidence, first, costs), owner)
    stretch = owner

    def total(values: AnyArray, chosen: BoolArray = scored) -> FloatArray:
        sums = np.bincount(stretch[chosen], values[chosen], stretch.max(initial=-1) + 1)
        return sums.astype(np.float64)  # integers for no stretch at all

    denied = np.ones(1, np.bool_)
    while denied.any():
        heads, sizes = _groups(viral, owner)
        stretch = np.repeat(np.arange(len(heads)), sizes)
        n_scored, n_bases = total(scored), total(ends - starts).astype(np.int64)
        counted = n_scored.astype(np.int64)
        with np.errstate(invalid="ignore"):
            logit = total(logits) / n_scored
            if of_records is None:
                odds = calibration.log_odds(logit, counted, n_bases)
                break
            known = np.isfinite(of_span)
            by_spans = total(of_span, known) / total(known, known)
            odds = of_records.log_odds(by_spans, logit, n_bases, errors[owner[heads]])
        # Its best windows found a stretch, and its genes as a whole may deny it.
        denied = viral[heads] & (odds < _LEAST_ODDS)
        viral[np.repeat(denied, sizes)] = False
    with np.errstate(invalid="ignore"):
        score, mean = total(calls.score[place]) / n_scored, total(log_odds) / n_scored
    cut_starts, cut_ends = window_spans(starts, ends, owner)
    return Regions(
        record=chosen[owner[heads]],
        start=cut_starts[heads],
        end=cut_ends[heads + sizes - 1],
        viral=viral[heads],
        n_windows=sizes,
        n_scored=counted,
        score=score,
        log_odds=mean,
        probability=posterior(odds, prevalence),
    )


def without_short_ends(viral: BoolArray, owner: IntArray) -> BoolArray:
    """Return the states of windows, (n,), where short ends of records have the neighbours' state.

    A change inside a record costs two changes of state, at its end only one: a stretch of fewer
    than `_LEAST_END` windows is too little for that. `owner`, (n,), is the record of each window.
    """
    heads, sizes = _groups(viral, owner)
    ends = np.zeros((2, len(heads)), np.bool_)
    of_record, n_stretches = _groups(owner[heads])
    ends[0, of_record] = ends[1, of_record + n_stretches - 1] = True
    short = (sizes < _LEAST_END) & (ends[0] != ends[1])
    joined: BoolArray = viral ^ np.repeat(short, sizes)
    return joined


def _groups(*keys: AnyArray) -> tuple[IntArray, IntArray]:
    """Return the first row and the size of each group of neighbours that are equal in all keys."""
    begins = np.ones(len(keys[0]), np.bool_)
    begins[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
    heads = np.flatnonzero(begins)
    return heads, np.diff(heads, append=len(begins))


def window_log_odds(
    calls: WindowCalls, lengths: IntArray, calibration: Calibration, place: IntArray | slice
) -> FloatArray:
    """Return the calibrated log-odds of the windows at `place`; NaN for a window without a score.

    `lengths` are their bases. The prevalence is one half.
    """
    single = np.ones(len(lengths), np.int64)
    fitted = calibration.log_odds(calls.logits()[place], single, lengths)
    odds: FloatArray = np.clip(fitted, -LOGIT_LIMIT, LOGIT_LIMIT)
    odds[calls.status[place] != Status.SCORED] = np.nan
    return odds


def evidence_of(log_odds: FloatArray, first: IntArray) -> IntArray:
    """Return the evidence of windows for `viral_windows`: thousandths of log-odds less a bias.

    `first` is as for `viral_windows`; each record has a window, NaN is not evidence.
    """
    owner = np.repeat(np.arange(len(first) - 1), np.diff(first))
    known = np.flatnonzero(np.isfinite(log_odds))
    counts = np.bincount(owner[known], minlength=len(first) - 1)
    begin = np.cumsum(counts) - counts
    ordered = log_odds[known[np.lexsort((log_odds[known], owner[known]))]]
    ordered = np.append(ordered, 0)  # a record without a score may stand last
    low, high = (begin + (counts - 1).clip(0) // 2, begin + counts // 2)
    median = (ordered[low] + ordered[high]) / 2
    bias = np.where(median > _VIRAL_MEDIAN, 0, np.clip(median + _ABOVE_MEDIAN, *_BIAS))
    return np.rint(_UNIT * np.nan_to_num(log_odds - bias[owner])).astype(np.int64)


def window_spans(starts: IntArray, ends: IntArray, owner: IntArray) -> tuple[IntArray, IntArray]:
    """Return starts and ends of windows, cut in the middle of each overlap of two neighbours.

    `owner` is the record of each window. Windows beside a run of unknown letters end at the run.
    """
    starts, ends = starts.copy(), ends.copy()
    inner = np.flatnonzero((owner[1:] == owner[:-1]) & (ends[:-1] > starts[1:]))
    middle = (ends[inner] + starts[inner + 1]) // 2
    ends[inner] = starts[inner + 1] = middle
    return starts, ends
