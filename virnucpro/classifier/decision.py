"""Decide the call of each record from its score, by a stated rule.

A record is viral from one threshold on, non-viral below another, and ambiguous between the two.
With a calibrated bundle, the thresholds apply to the probability, and the rule abstains (ambiguous,
with a reason) if the evidence is too small or the sequence is of low complexity.
"""

from dataclasses import dataclass, fields
from enum import IntEnum, IntFlag
from typing import Final, TypeVar

import numpy as np

from virnucpro.arrays import BoolArray, ByteArray, FloatArray, large_array, slices
from virnucpro.classifier.calibration import Calibration, Preset, q_values
from virnucpro.classifier.call_options import PRESETS, CallOptions
from virnucpro.classifier.consensus import Call, RecordScores, Status, Thresholds
from virnucpro.classifier.prevalence import (
    LEAST_BASES,
    Expectation,
    Prevalence,
    estimate_prevalence,
    posterior,
)
from virnucpro.errors import UsageError

Arrays = TypeVar("Arrays", RecordScores, "RecordQuality")
_KNOWN: Final = 0.98
"""Least share of A, C, G and T of a record without the flag. A genome with every 11th base unknown
is scored, but its frames and words are broken.
"""
_GENE, _GENES = 0.97, 0.75
"""Least share of the bases of a record in its one gene, and of such records, of a set of genes."""
_ENOUGH: Final = 10
"""Scored windows that suffice as evidence, however many windows of the record have no score."""


class Reason(IntEnum):
    """Codes for the reason why a scored record is ambiguous."""

    NONE = 0
    UNCERTAIN = 1
    TOO_SHORT = 2
    FEW_WINDOWS = 3
    LOW_COMPLEXITY = 4


class Flag(IntFlag):
    """Properties of a record that make its call less certain; the bits can be combined."""

    LOW_COMPLEXITY = 1
    AMBIGUOUS_BASES = 2
    UNUSUAL_GC = 4
    OTHER_WINDOW = 8
    BY_PREVALENCE = 16


@dataclass(frozen=True, slots=True)
class RecordQuality:
    """Composition of records, for flags: arrays with one entry per record.

    Attributes
    ----------
    gc
        (n_records,) float64, share of G and C among A, C, G, T; NaN without such a letter.
    known
        (n_records,) float64, share of A, C, G, T among all letters; NaN for an empty record.
    complex
        (n_records,) bool, False for a record of low complexity.
    """

    gc: FloatArray
    known: FloatArray
    complex: BoolArray


@dataclass(frozen=True, slots=True)
class RecordCalls:
    """Calls of all records, with their reasons: arrays with one entry per record.

    Attributes
    ----------
    call
        (n_records,) uint8, codes of `Call`.
    calibrated, probability, fdr
        (n_records,) float64: probability at a prevalence of one half, probability at `prevalence`,
        and q-value; NaN without a score or without a calibration. A record that cannot be called
        has no q-value.
    tier
        (n_records,) uint8: 0 if no preset calls the record viral, else 1 plus the position in
        `PRESETS` of the strictest preset that does.
    reason, flags
        (n_records,) uint8, codes of `Reason` and `Flag`.
    prevalence
        Share of viral records that was assumed; None without a calibration or a scored record.
    limits
        Probabilities from which the rule calls a sequence viral, and below which non-viral.
    """

    call: ByteArray
    calibrated: FloatArray
    probability: FloatArray
    fdr: FloatArray
    tier: ByteArray
    reason: ByteArray
    flags: ByteArray
    prevalence: Prevalence | None
    limits: Preset

    @property
    def expectation(self) -> Expectation | None:
        """Return what is expected of the viral calls; None without a prevalence."""
        if self.prevalence is None:
            return None
        known, called, false, resting = 0, 0, 0.0, 0
        for part in slices(len(self.call)):
            probability, flags = self.probability[part], self.flags[part]
            viral = probability[self.call[part] == Call.VIRAL]
            known += int(np.isfinite(probability).sum())
            called, false = called + len(viral), false + float((1 - viral).sum())
            resting += int(np.count_nonzero(flags & np.uint8(Flag.BY_PREVALENCE)))
        return Expectation.of(self.prevalence, known, called, false, resting)


def call_records(
    records: RecordScores,
    thresholds: Thresholds,
    calibration: Calibration | None = None,
    options: CallOptions | None = None,
    quality: RecordQuality | None = None,
    *,
    other_window: bool = False,
) -> RecordCalls:
    """Return the calls of all records.

    Parameters
    ----------
    records
        Scores of the records.
    thresholds
        Thresholds of the score, for a bundle without calibration.
    calibration
        Calibration of the bundle; None if it has none.
    options
        The rule; by default the preset ``default``.
    quality
        Composition of the records; None to skip the check for low complexity.
    other_window
        Whether the windows have another length than those of the bundle: scored records are called
        all the same, and get a flag.

    Raises
    ------
    UsageError
        If the options need a calibration and the bundle has none.
    """
    options = options or CallOptions()
    scored = records.status == Status.SCORED
    if calibration is None:
        calls = _by_score(records, scored, thresholds, options)
    else:
        calls = _by_probability(records, scored, calibration, options, quality)
    if other_window:
        calls.flags[scored] |= np.uint8(Flag.OTHER_WINDOW)
    return calls


def _by_probability(
    records: RecordScores,
    scored: BoolArray,
    calibration: Calibration,
    options: CallOptions,
    quality: RecordQuality | None,
) -> RecordCalls:
    """Return the calls of a calibrated bundle.

    Memory does not grow with the number of records, but for five bytes of each.
    """
    n_records = len(scored)
    log_odds, able, calibrated, probability = (
        large_array((n_records,), np.float64) for _ in range(4)
    )
    reason = np.empty(n_records, np.uint8)
    n_able, n_genes = 0, 0
    for part in slices(n_records):
        of, composition = _part(records, part), quality and _part(quality, part)
        own = _log_odds(of, calibration, composition)
        own[~scored[part]] = np.nan
        reason[part] = _abstentions(of, scored[part], calibration, composition)
        log_odds[part] = own
        long = _known_bases(of, composition) >= LEAST_BASES
        counts = (reason[part] == Reason.NONE) & long
        able[part] = np.where(counts, own, np.nan)
        n_able += int(np.isfinite(able[part]).sum())
        n_genes += int((_are_genes(of) & np.isfinite(able[part])).sum())
    share = options.prevalence
    if isinstance(share, float):
        prevalence = Prevalence(share, share, share)
    else:
        genes = n_genes > _GENES * n_able
        prevalence = estimate_prevalence(able, calibration.tails, records.length, genes=genes)
    for part in slices(n_records):
        calibrated[part] = posterior(log_odds[part], 0.5)
        probability[part] = posterior(log_odds[part], prevalence.value)
        # Records that cannot be called do not count in the false discovery rate.
        able[part] = np.where(reason[part] == Reason.NONE, probability[part], np.nan)
    fdr = q_values(able)
    preset = calibration.presets[options.preset or "default"]
    call, tier, flags = np.zeros((3, n_records), np.uint8)
    limit = preset.viral if options.threshold is None else options.threshold
    # A sequence of this probability alone keeps the FDR, as does one like the weakest viral record.
    least = limit if options.fdr is None else 1 - options.fdr
    for part in slices(n_records):
        own, abstained = probability[part], reason[part] != Reason.NONE
        viral = own >= limit if options.fdr is None else fdr[part] <= options.fdr
        least = min(least, own[viral].min(initial=least))
        called = _three_way(scored[part], viral, own < min(limit, preset.non_viral))
        called[abstained] = Call.AMBIGUOUS
        reason[part][(called == Call.AMBIGUOUS) & ~abstained] = Reason.UNCERTAIN
        call[part] = called
        if quality is not None:
            flags[part] = _flags(_part(quality, part), calibration)
        resting = (called == Call.VIRAL) & (calibrated[part] < limit)
        flags[part][resting] |= np.uint8(Flag.BY_PREVALENCE)
        for number, name in enumerate(PRESETS, 1):
            strict = own >= calibration.presets[name].viral
            tier[part][strict & ~abstained] = number
    assumed = prevalence if scored.any() else None
    limits = Preset(least, min(least, preset.non_viral))
    return RecordCalls(call, calibrated, probability, fdr, tier, reason, flags, assumed, limits)


def _part(values: Arrays, part: slice) -> Arrays:
    """Return a dataclass of arrays with a part of each."""
    return type(values)(*(getattr(values, field.name)[part] for field in fields(values)))


def _log_odds(
    records: RecordScores, calibration: Calibration, quality: RecordQuality | None
) -> FloatArray:
    if calibration.records is None:
        return calibration.log_odds(records.logit, records.n_scored, records.scored_bases)
    length = _known_bases(records, quality)
    of_records = calibration.records
    return of_records.log_odds(records.record_logit, records.logit, length, records.errors())


def _known_bases(records: RecordScores, quality: RecordQuality | None) -> FloatArray:
    """Return the known bases of each record: unknown ones are not evidence."""
    length = records.length.astype(np.float64)
    if quality is not None:
        length *= np.where(np.isnan(quality.known), 1, quality.known)
    return length


def _are_genes(records: RecordScores) -> BoolArray:
    """Return which records are one gene from end to end."""
    coding = 3 * records.fact("gene codons")
    are: BoolArray = (records.fact("genes") == 1) & (coding > _GENE * records.fact("known bases"))
    return are


def _abstentions(
    records: RecordScores,
    scored: BoolArray,
    calibration: Calibration,
    quality: RecordQuality | None,
) -> ByteArray:
    """Return the reason why each record cannot be called, `Reason.NONE` if it can."""
    with np.errstate(invalid="ignore"):
        share = records.n_scored / records.n_windows
    reason = np.full(len(scored), Reason.NONE, np.uint8)
    for why, abstains in (
        (Reason.FEW_WINDOWS, (share < calibration.min_scored) & (records.n_scored < _ENOUGH)),
        (Reason.TOO_SHORT, records.scored_bases < calibration.min_bases),
        (Reason.LOW_COMPLEXITY, np.False_ if quality is None else ~quality.complex),
    ):
        reason[scored & abstains] = why
    return reason


def _flags(quality: RecordQuality, calibration: Calibration) -> ByteArray:
    flags = np.zeros(len(quality.gc), np.uint8)
    low, high = calibration.gc
    for flag, holds in (
        (Flag.LOW_COMPLEXITY, ~quality.complex),
        (Flag.AMBIGUOUS_BASES, quality.known < _KNOWN),
        (Flag.UNUSUAL_GC, (quality.gc < low) | (quality.gc > high)),
    ):
        flags[holds] |= np.uint8(flag)
    return flags


def require_applicable(options: CallOptions, *, calibrated: bool) -> None:
    """Raise UsageError if a rule needs a calibration and the bundle has none.

    Raises
    ------
    UsageError
        If the bundle is not calibrated, and the options are more than a threshold.
    """
    if calibrated:
        return
    limits = options.fdr, options.prevalence
    if options.preset not in (None, "default") or limits != (None, None):
        raise UsageError(
            "the bundle has no calibration, which presets, an FDR and a prevalence need. Give "
            "--threshold (of the score) or --preset default, or a calibrated bundle such as mini."
        )


def _by_score(
    records: RecordScores, scored: BoolArray, thresholds: Thresholds, options: CallOptions
) -> RecordCalls:
    """Return the calls of a bundle without calibration, by the thresholds of the score."""
    require_applicable(options, calibrated=False)
    viral, non_viral = thresholds.viral, thresholds.non_viral
    if options.threshold is not None:
        viral, non_viral = options.threshold, min(options.threshold, non_viral)
    call = _three_way(
        scored, records.score >= np.float32(viral), records.score < np.float32(non_viral)
    )
    unknown = np.broadcast_to(np.nan, len(call))
    return RecordCalls(
        call=call,
        calibrated=unknown,
        probability=unknown,
        fdr=unknown,
        tier=np.zeros(len(call), np.uint8),
        reason=np.where(call == Call.AMBIGUOUS, Reason.UNCERTAIN, Reason.NONE).astype(np.uint8),
        flags=np.zeros(len(call), np.uint8),
        prevalence=None,
        limits=Preset(viral, non_viral),
    )


def _three_way(scored: BoolArray, viral: BoolArray, non_viral: BoolArray) -> ByteArray:
    call = np.full(len(scored), Call.NOT_SCORED, np.uint8)
    call[scored] = Call.AMBIGUOUS
    call[scored & non_viral] = Call.NON_VIRAL
    call[scored & viral] = Call.VIRAL
    return call
