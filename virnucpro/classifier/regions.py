"""Divide long records into viral and non-viral stretches, from the log-odds of their windows.

The evidence of a window is its calibrated log-odds less the bias of its record. Genomes differ in
the level of their windows, so the bias follows the median of the record, within limits; a record
whose median is clearly viral has no bias. A window without a score has no evidence: it belongs to
the stretch of the next window. If genes of spans are scored, half of this evidence and the window's
part of the log odds of its spans count, with other costs. Constants were chosen on genomes that the
classifier had not seen (decisions 0063, 0086 and 0105).
"""

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from virnucpro.arrays import AnyArray, BoolArray, FloatArray, IntArray
from virnucpro.classifier.calibration import LOGIT_LIMIT, Calibration
from virnucpro.classifier.consensus import Call, RecordScores, Status, WindowCalls
from virnucpro.classifier.decision import Reason, RecordCalls
from virnucpro.classifier.prevalence import PRIOR, Prevalence, posterior
from virnucpro.classifier.run_scores import WindowBlocks, record_blocks
from virnucpro.classifier.spans import SpanOdds, SpanScores
from virnucpro.sequences.index import SequenceIndex


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


LEAST_WINDOWS: Final = 10
"""Windows of the shortest record that is divided."""

_UNIT: Final = 1000
"""Units of evidence per unit of log-odds."""
_COSTS: Final = Costs(enter=5 * _UNIT, leave=6 * _UNIT, start=-3 * _UNIT)
_COSTS_WITH_SPANS: Final = Costs(enter=4 * _UNIT, leave=2 * _UNIT, start=-3 * _UNIT)
_WINDOWS_BESIDE_SPANS: Final = 0.4
_LEAD: Final = 0.3
"""Weight of the evidence of windows beside that of spans, and log odds added to both: the evidence
of a piece of a virus in its host is less than that of a virus alone."""
_LEAST_END: Final = 3
"""Windows of the shortest stretch at the end of a record of both kinds."""
LEAST_DIVIDED: Final = 10_000
"""Bases of the shortest record that is divided."""
STRETCH_PRIOR: Final = 0.1
"""Prevalence of stretches of sequences that are not viral."""
_HOST_ODDS: Final = -2.0
_LEAST_HOST: Final = 2_000
"""Highest log odds, and least bases, of a stretch that is cut off a viral record."""
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
    whole: BoolArray | None = None,
) -> Regions:
    """Return the stretches of all records of at least 10 windows that can be called.

    Left out are records with missing windows or without a score, and those whose call is ambiguous
    for another reason than its probability. About 65 bytes per stretch, and one block of windows,
    are in memory. Without a calibration of records, `spans` are not used. Viral records in `whole`,
    ``(n_records,)``, are not divided.
    """
    able = (records.n_windows >= LEAST_WINDOWS) & (records.status == Status.SCORED)
    able &= (calls.reason == Reason.NONE) | (calls.reason == Reason.UNCERTAIN)
    spans = None if calibration.records is None else spans
    given = calls, calibration, spans
    none = np.zeros(0, np.int64)
    parts = [_in_block(index, windows, none, none.astype(np.bool_), np.empty(0), *given)]
    for first, last in record_blocks(index):
        chosen = first + np.flatnonzero(able[first:last])
        if len(chosen):
            kept = records.fact("known host words")[chosen] == 0
            kept |= False if whole is None else whole[chosen]
            parts.append(_in_block(index, windows, chosen, kept, records.errors(chosen), *given))
    names = [field.name for field in fields(Regions)]
    return Regions(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _in_block(
    index: SequenceIndex,
    windows: WindowBlocks,
    chosen: IntArray,
    kept: BoolArray,
    errors: FloatArray,
    calls: RecordCalls,
    calibration: Calibration,
    scores: SpanScores | None,
) -> Regions:
    """Return the stretches of some records of a block, of which all have windows.

    Viral records that are `kept` are not divided.
    """
    bounds = index.record_first_window
    counts = bounds[chosen + 1] - bounds[chosen]
    first = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    owner = np.repeat(np.arange(len(chosen)), counts)
    origin, after = (int(bounds[chosen[0]]), int(bounds[chosen[-1] + 1])) if len(chosen) else (0, 0)
    window_calls = windows.block(origin, after)
    place = bounds[chosen][owner] + np.arange(len(owner)) - first[owner] - origin
    starts, ends = index.window_starts[origin:after][place], index.window_ends[origin:after][place]
    log_odds = window_log_odds(window_calls, ends - starts, calibration, place)
    logits = window_calls.logits()[place]
    evidence, costs, spans = evidence_of(log_odds, first), _COSTS, None
    if scores is not None and calibration.records is not None:
        middle, of_records = (starts + ends) // 2, calibration.records
        spans = scores.log_odds(chosen[owner], middle, logits, of_records, errors[owner])
        evidence = np.rint(_WINDOWS_BESIDE_SPANS * evidence + _UNIT * (spans.of_windows() + _LEAD))
        costs = _COSTS_WITH_SPANS
    viral = viral_windows(evidence.astype(np.int64), first, costs)
    own = _Windows(owner, ends - starts, log_odds, logits, errors, calibration, spans)
    called = calls.call[chosen] == Call.VIRAL
    short = index.record_lengths[chosen] < LEAST_DIVIDED
    viral = own.agreeing(without_short_ends(viral, owner), called, short | called & kept, calls)
    heads, sizes, odds = own.stretches(viral)
    record = chosen[owner[heads]]
    n_scored = own.total(np.isfinite(log_odds), heads)
    probability = posterior(odds + prior_odds(calls.prevalence, called)[owner[heads]], 0.5)
    with np.errstate(invalid="ignore"):
        score = own.total(window_calls.score[place], heads) / n_scored
        mean = own.total(log_odds, heads) / n_scored
    cut_starts, cut_ends = window_spans(starts, ends, owner)
    return Regions(
        record=record,
        start=cut_starts[heads],
        end=cut_ends[heads + sizes - 1],
        viral=viral[heads],
        n_windows=sizes,
        n_scored=n_scored.astype(np.int64),
        score=score,
        log_odds=mean,
        probability=np.where(sizes == counts[owner[heads]], calls.probability[record], probability),
    )


@dataclass(frozen=True, slots=True)
class _Windows:
    """Windows of records: ``(n,)`` record, bases, log odds and logit; `errors` of each record."""

    owner: IntArray
    bases: IntArray
    log_odds: FloatArray
    logits: FloatArray
    errors: FloatArray
    calibration: Calibration
    spans: SpanOdds | None

    def total(self, values: AnyArray, heads: IntArray) -> FloatArray:
        """Return the sums of values of the scored windows of each stretch."""
        scored = np.where(np.isfinite(self.log_odds), values, 0)
        return np.add.reduceat(scored, heads, dtype=np.float64) if len(heads) else np.empty(0)

    def stretches(self, viral: BoolArray) -> tuple[IntArray, IntArray, FloatArray]:
        """Return first window, number of windows, and log odds of each stretch of one state."""
        heads, sizes = _groups(viral, self.owner)
        n_scored = self.total(np.ones(len(viral)), heads)
        n_bases = self.total(self.bases, heads).astype(np.int64)
        with np.errstate(invalid="ignore"):
            logit = self.total(self.logits, heads) / n_scored
        if (of_records := self.calibration.records) is None:
            odds = self.calibration.log_odds(logit, n_scored.astype(np.int64), n_bases)
            return heads, sizes, odds
        unknown, errors = np.full(len(heads), np.nan), self.errors[self.owner[heads]]
        odds = of_records.log_odds(unknown, logit, n_bases, errors)
        if self.spans is not None:
            of_spans = self.spans.of_stretches(heads, sizes)
            odds = np.where(np.isnan(of_spans), odds, of_spans)
        return heads, sizes, odds

    def agreeing(
        self, viral: BoolArray, called: BoolArray, whole: BoolArray, calls: RecordCalls
    ) -> BoolArray:
        """Return the states of windows, changed so that none contradicts a probability.

        A viral stretch is viral by the rule of the calls. A stretch of a viral record is non-viral
        only if it is a host by itself. A record of one kind has the state of its call.

        Parameters
        ----------
        viral
            ``(n,)``, states of windows.
        called, whole
            ``(n_records,)``, which records are viral, and which are not divided.
        """
        owner, limits = self.owner, calls.limits
        prior = prior_odds(calls.prevalence, called)
        viral = np.where(whole[owner], called[owner], viral)

        def states() -> tuple[IntArray, IntArray, IntArray, FloatArray, BoolArray]:
            heads, sizes, odds = self.stretches(viral)
            record = owner[heads]
            doubtful = viral[heads] & ~(posterior(odds + prior[record], 0.5) >= limits.viral)
            return heads, sizes, record, odds, doubtful

        heads, sizes, record, odds, doubtful = states()
        while (doubtful & (np.bincount(record)[record] > 1)).any():
            # Its best windows found a stretch, and its genes as a whole may deny it.
            viral[np.repeat(doubtful, sizes)] = False
            heads, sizes, record, odds, doubtful = states()
        host = (odds < _HOST_ODDS) & (posterior(odds + prior[record], 0.5) < limits.non_viral)
        host &= np.add.reduceat(self.bases, heads) >= _LEAST_HOST if len(heads) else False
        viral[np.repeat(called[record] & ~host, sizes)] = True
        heads, sizes, record, _, doubtful = states()
        one_state = np.zeros(len(called), np.bool_)
        one_state[record[doubtful | (np.bincount(record)[record] == 1)]] = True
        return np.where(one_state[owner], called[owner], viral)


def prior_odds(prevalence: Prevalence | None, called: BoolArray) -> FloatArray:
    """Return the log odds, ``(n,)``, of the prevalence of stretches in records that are `called`.

    A prevalence, given or estimated (from `PRIOR` to one half), is that of records. It says nothing
    of viruses inside of other sequences, which have `STRETCH_PRIOR`: the contigs of an isolate are
    rarely viral, but have prophages.
    """
    if prevalence is None:
        return np.zeros(len(called))
    estimate = prevalence.value if prevalence.given else min(max(prevalence.value, PRIOR), 0.5)
    share = np.where(called, estimate, STRETCH_PRIOR)
    odds: FloatArray = np.log(share) - np.log1p(-share)
    return odds


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
