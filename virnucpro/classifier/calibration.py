"""Turn the mean logit of a record into calibrated log odds, and probabilities into q-values.

The logit of a window is ``log(virus) - log(others)`` of its scores. The evidence of a record grows
with its windows. Each class of records, by number and length of the scored windows, therefore has
its own line ``slope * mean_logit + intercept`` (Platt scaling), or a curve with another slope for
negative logits (beta calibration; Kull, Silva Filho and Flach 2017). They are fitted on groups that
the classifier had not seen. A bundle stores the lines for one prevalence;
`virnucpro.classifier.prevalence` shifts them to that of an input.
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

import numpy as np

from virnucpro.arrays import FloatArray, IntArray, RealArray, large_array, slices
from virnucpro.classifier.call_options import PRESETS
from virnucpro.errors import BundleError

_SHIFTS: Final = (0.01, 0.03)
"""Frame shifts per codon of the coding path in genes without errors, and with errors of 5 %."""
LOGIT_LIMIT: Final = 30.0
"""Largest absolute logit of a window; a float32 score of 0 would have an infinite logit."""
_RANKED_AT_ONCE: Final = 1 << 19
_STEP: Final = 1e-6
"""Most records whose q-values are exact, at 100 bytes each; greatest error of those of more."""


def log_ratio(others: RealArray, virus: RealArray) -> FloatArray:
    """Return ``log(virus) - log(others)`` of scores, within `LOGIT_LIMIT`."""
    with np.errstate(divide="ignore"):
        logit = np.log(virus.astype(np.float64)) - np.log(others)
    limited: FloatArray = np.clip(logit, -LOGIT_LIMIT, LOGIT_LIMIT)
    return limited


def share_of_errors(shifts: FloatArray, codons: FloatArray) -> FloatArray:
    """Return how much sequences resemble reads with errors of 5 %, from 0 to 1.

    Parameters
    ----------
    shifts, codons
        ``(n,)``, frame shifts and codons of the coding path; NaN if they are not known.
    """
    low, high = _SHIFTS
    share = (shifts / np.maximum(codons, 1) - low) / (high - low)
    return np.clip(np.nan_to_num(share), 0, 1)


@dataclass(frozen=True, slots=True)
class PlattLine:
    """Calibration of the records with at least `min_windows` scored windows and `min_bases` bases.

    The calibrated logit is ``slope * x + intercept``, where x is the mean logit, or its inverse
    hyperbolic sine if `asinh`: the tails of records with many windows are under-confident. With
    `slope_below`, the slope goes from `slope` to `slope_below` around x = 0 (beta calibration):
    ``slope * log(1 + exp(x)) - slope_below * log(1 + exp(-x)) + intercept``.
    """

    min_windows: int
    min_bases: int
    slope: float
    intercept: float
    asinh: bool = False
    slope_below: float | None = None

    def logits(self, mean_logits: FloatArray) -> FloatArray:
        """Return the calibrated logit of each mean logit; it rises with the mean logit."""
        x = np.arcsinh(mean_logits) if self.asinh else mean_logits
        line: FloatArray = self.slope * x + self.intercept
        if self.slope_below is not None:
            # log(1 + exp(x)) is x + log(1 + exp(-x)).
            line += (self.slope - self.slope_below) * np.logaddexp(0, -x)
        return line


@dataclass(frozen=True, slots=True)
class RecordCalibration:
    """Calibrated log odds of records from the logits of their pieces and of their windows.

    The log odds at a prevalence of one half are ``record * record_logit + windows * logit +
    offset``. The three factors are linear in the logarithm of a record's length between two
    `lengths`, and constant outside.

    Attributes
    ----------
    lengths
        Bases, ascending.
    record, windows, offset
        The factors at each of `lengths`.
    limit
        Largest absolute log odds.
    with_errors
        The calibration of sequences with errors of 5 %; None if it is the same.
    """

    lengths: tuple[float, ...]
    record: tuple[float, ...]
    windows: tuple[float, ...]
    offset: tuple[float, ...]
    limit: float
    with_errors: "RecordCalibration | None" = None

    def log_odds(
        self,
        record_logit: FloatArray,
        logit: FloatArray,
        length: FloatArray | IntArray,
        errors: FloatArray | None = None,
    ) -> FloatArray:
        """Return the log odds of each record at a prevalence of one half.

        Parameters
        ----------
        record_logit, logit
            ``(n,)``, mean logits of its pieces and of its windows. NaN counts as 0, if it is one of
            the two only.
        length
            ``(n,)``, known bases of each record.
        errors
            ``(n,)``, `share_of_errors` of each record: the share that `with_errors` has in its log
            odds. None: no record has errors.

        Returns
        -------
        ``(n,)`` float64
            NaN where both logits are NaN.
        """
        place, knots = np.log(np.maximum(length, 1)), np.log(self.lengths)
        record, windows, offset = (
            np.interp(place, knots, values) for values in (self.record, self.windows, self.offset)
        )
        known = ~(np.isnan(record_logit) & np.isnan(logit))
        total = record * np.nan_to_num(record_logit) + windows * np.nan_to_num(logit) + offset
        odds: FloatArray = np.where(known, np.clip(total, -self.limit, self.limit), np.nan)
        if errors is not None and self.with_errors is not None:
            odds += errors * (self.with_errors.log_odds(record_logit, logit, length) - odds)
        return odds


@dataclass(frozen=True, slots=True)
class Tails:
    """How many viral and other records of groups that the classifier had not seen reach log odds.

    For each of `lengths` (bases), a share for each of `thresholds` (at one half), both ascending.
    """

    thresholds: tuple[float, ...]
    lengths: tuple[float, ...]
    viral: tuple[tuple[float, ...], ...]
    others: tuple[tuple[float, ...], ...]

    def shares(self) -> tuple[FloatArray, FloatArray]:
        """Return `viral` and `others` as arrays, (n_lengths, n_thresholds)."""
        return np.array(self.viral), np.array(self.others)

    def nearest(self, length: IntArray) -> IntArray:
        """Return the place of the nearest of `lengths` for each record, ``(n,)``."""
        knots = np.array(self.lengths)
        return np.searchsorted(np.sqrt(knots[1:] * knots[:-1]), length)


@dataclass(frozen=True, slots=True)
class Preset:
    """Probabilities that divide calls: from `viral` on viral, below `non_viral` non-viral."""

    viral: float
    non_viral: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Calibration of a bundle.

    Attributes
    ----------
    lines
        Calibration lines; a record uses the last line whose minima it reaches.
    prevalence
        Share of viral records for which the lines were fitted.
    presets
        Thresholds of each preset.
    min_bases
        Records with fewer bases in scored windows are ambiguous.
    min_scored
        Records with a smaller share of scored windows are ambiguous.
    gc
        Smallest and largest GC content of the training windows (1st and 99th percentile).
    records
        Calibration of records of which pieces are scored, too; None if `lines` hold for records.
    tails
        Shares of records with high log odds; None if they are not known.
    """

    lines: tuple[PlattLine, ...]
    prevalence: float
    presets: Mapping[str, Preset]
    min_bases: int
    min_scored: float
    gc: tuple[float, float]
    records: RecordCalibration | None = None
    tails: Tails | None = None

    def log_odds(self, logit: FloatArray, n_windows: IntArray, n_bases: IntArray) -> FloatArray:
        """Return the calibrated log odds of each record at a prevalence of one half.

        Parameters
        ----------
        logit
            ``(n,)``, mean logit of the scored windows; NaN for a record without a score.
        n_windows, n_bases
            ``(n,)``, number of scored windows, and of bases in these windows.

        Returns
        -------
        ``(n,)`` float64
            NaN for a record without a score.
        """
        value = logit.copy()
        for line in self.lines:
            reached = (n_windows >= line.min_windows) & (n_bases >= line.min_bases)
            value[reached] = line.logits(logit[reached])
        fitted: FloatArray = value - (np.log(self.prevalence) - np.log1p(-self.prevalence))
        return fitted


def q_values(probability: FloatArray) -> FloatArray:
    """Return for each record the false discovery rate of all records of at least its probability.

    This is the expected share of non-viral records among these records.

    Parameters
    ----------
    probability
        ``(n,)``; NaN for a record without a score.

    Returns
    -------
    ``(n,)`` float64
        NaN where `probability` is NaN. Equal probabilities have equal q-values. Of more than
        524,288 records, they are too high by less than 1e-6: then memory does not grow with n.
    """
    if len(probability) > _RANKED_AT_ONCE:
        return _many_q_values(probability)
    values = np.full(len(probability), np.nan)
    known = np.flatnonzero(np.isfinite(probability))
    order = known[np.argsort(-probability[known], kind="stable")]
    ranked = probability[order]
    expected = np.cumsum(1 - ranked) / np.arange(1, len(ranked) + 1)
    last = np.searchsorted(-ranked, -ranked, side="right") - 1
    values[order] = expected[last]
    return values


def _many_q_values(probability: FloatArray) -> FloatArray:
    """Return `q_values`, each rounded up to that of a knot: one in each step of 1e-6."""
    ranked, n = large_array(probability.shape, np.float64), 0
    for part in slices(len(probability)):
        known = probability[part][np.isfinite(probability[part])]
        ranked[n : n + len(known)] = -known
        n += len(known)
    ranked = ranked[:n]
    ranked.sort()
    places, values = [np.empty(0)], [np.empty(0)]
    total = 0.0
    for part in slices(n):
        own, after = ranked[part], ranked[part.start + 1 : part.stop + 1]
        sums = total + np.cumsum(1 + own)
        total = float(sums[-1])
        last = np.ones(len(own), np.bool_)  # of equal probabilities
        last[: len(after)] = own[: len(after)] != after
        places[-1] = np.append(places[-1], own[last])
        values[-1] = np.append(values[-1], (sums / np.arange(part.start + 1, part.stop + 1))[last])
        step = np.floor(values[-1] / _STEP)
        knots = step[1:] != step[:-1]
        # The last value of a block may be in one step with those of the next block.
        places[-1:] = [places[-1][:-1][knots], places[-1][-1:]]
        values[-1:] = [values[-1][:-1][knots], values[-1][-1:]]
    place, value = np.concatenate(places), np.append(np.concatenate(values), np.nan)
    found: FloatArray = large_array(probability.shape, np.float64)
    for part in slices(len(probability)):
        found[part] = value[np.searchsorted(place, -probability[part])]
    return found


def read_calibration(content: Any, source: object) -> Calibration:  # noqa: ANN401 - JSON
    """Return the calibration in the JSON object `content` of the file `source`.

    Raises
    ------
    BundleError
        If a field is missing or invalid.
    """
    try:
        calibration = Calibration(
            lines=tuple(
                PlattLine(
                    int(line["min_windows"]),
                    int(line["min_bases"]),
                    float(line["slope"]),
                    float(line["intercept"]),
                    bool(line.get("asinh", False)),
                    None if line.get("slope_below") is None else float(line["slope_below"]),
                )
                for line in content["lines"]
            ),
            prevalence=float(content["prevalence"]),
            presets={name: Preset(**content["presets"][name]) for name in PRESETS},
            min_bases=int(content["min_bases"]),
            min_scored=float(content["min_scored"]),
            gc=(float(content["gc"][0]), float(content["gc"][1])),
            records=_records(content.get("records")),
            tails=_tails(content.get("tails")),
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise BundleError(
            f"{source}: the calibration has a missing or invalid field ({error!r}). "
            "Get the bundle again."
        ) from error
    if problem := _problem(calibration):
        raise BundleError(f"{source}: the calibration {problem}. Get the bundle again.")
    return calibration


def _records(content: Mapping[str, Any] | None) -> RecordCalibration | None:
    if content is None:
        return None
    names = ("lengths", "record", "windows", "offset")
    factors = {name: tuple(map(float, content[name])) for name in names}
    with_errors = _records(content.get("with_errors"))
    return RecordCalibration(**factors, limit=float(content["limit"]), with_errors=with_errors)


def _tails(content: Mapping[str, Any] | None) -> Tails | None:
    if content is None:
        return None
    limits, lengths = (tuple(map(float, content[name])) for name in ("thresholds", "lengths"))
    sides = (tuple(tuple(map(float, row)) for row in content[name]) for name in ("viral", "others"))
    return Tails(limits, lengths, *sides)


def _problem(calibration: Calibration) -> str:
    """Return a description of the first invalid value; "" if all values are valid."""
    if not calibration.lines:
        return "has no line"
    slopes = [line.slope for line in calibration.lines]
    slopes += [line.slope_below for line in calibration.lines if line.slope_below is not None]
    if not np.isfinite([*slopes, *(line.intercept for line in calibration.lines)]).all():
        return "has a line that is not finite"
    if min(slopes) <= 0:
        return "has a line with a slope of 0 or less"
    if not 0 < calibration.prevalence < 1:
        return f"has the prevalence {calibration.prevalence}, which is not between 0 and 1"
    presets: Sequence[Preset] = [calibration.presets[name] for name in PRESETS]
    if not all(0 <= preset.non_viral <= preset.viral <= 1 for preset in presets):
        return "needs presets with 0 <= non_viral <= viral <= 1"
    return _problem_of_tails(calibration.tails) or _problem_of_records(calibration.records)


def _problem_of_tails(tails: Tails | None) -> str:
    if tails is None:
        return ""
    axes = tails.lengths, tails.thresholds
    if not all(len(axis) and (np.diff(axis) > 0).all() for axis in axes):
        return "of tails needs ascending lengths and thresholds"
    rows = [*tails.viral, *tails.others]
    sizes = len(tails.viral), len(tails.others), *map(len, rows)
    if sizes != (len(axes[0]),) * 2 + (len(axes[1]),) * len(rows):
        return "of tails needs one share for each length and threshold"
    return "" if all(0 <= share <= 1 for row in rows for share in row) else "of tails needs shares"


def _problem_of_records(calibration: RecordCalibration | None) -> str:
    if calibration is None:
        return ""
    *factors, limit, _ = astuple(calibration)
    if problem := _problem_of_records(calibration.with_errors):
        return problem
    lengths = np.array(factors[0])
    if not len(lengths) or {len(values) for values in factors} != {len(lengths)}:
        return "of records needs one value of each factor for each length"
    if not (np.isfinite(factors).all() and lengths[0] >= 1 and (np.diff(lengths) > 0).all()):
        return "of records needs finite factors and ascending lengths"
    return "" if limit > 0 else f"of records has the limit {limit}, which is not positive"
