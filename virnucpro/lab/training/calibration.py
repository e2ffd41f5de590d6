"""Probabilities of records, from the mean logit of their windows and the logit of the record head.

The mean logit of many windows is under-confident: their errors cancel out. So each class of
records, by number and length of windows, has its own slope and intercept (Platt scaling), and with
many windows a second slope for negative logits (beta calibration). They are fitted on predictions
for groups outside the training set, with both classes of equal weight. With a record head, each
length has a calibration by both logits. The thresholds of the presets are chosen from the results.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from virnucpro.arrays import BoolArray, FloatArray, IntArray
from virnucpro.classifier.calibration import PlattLine, Preset, RecordCalibration
from virnucpro.classifier.call_options import PresetName
from virnucpro.classifier.prevalence import LEAST_BASES, PRIOR, posterior
from virnucpro.errors import InputError
from virnucpro.lab.training.cross_validation import Pieces
from virnucpro.lab.training.draw import PieceKind
from virnucpro.lab.training.genomes import GROUPS, RELATIVES, Group, are_viral
from virnucpro.lab.training.weights import PROKARYOTES, equal_weights

Schemes: TypeAlias = Sequence[Mapping[PieceKind, FloatArray]]
"""Logits of pieces by kind, by networks without the fold by `GROUPS`, and by `RELATIVES`."""

_PENALTY = 1e-4
_MANY = 4
"""Records of at least this many windows are calibrated by the inverse hyperbolic sine, with two
slopes."""
_PROKARYOTES: Final = 0.85
"""Share of prokaryotes in what is not viral in a metagenome."""
_RIDGE: Final = 1e-4
_STEPS: Final = 30
_PRESETS: Final[Mapping[PresetName, tuple[float, float, float]]] = {
    "sensitive": (0.5, 0.85, 0.1),
    "default": (0.05, 0.8, 0.4),
    "conservative": (0.05, 0.95, 0.4),
}
"""For each preset the share of viral records in samples that it is for (viromes, metagenomes), its
minimum precision there, mean of all lengths from `_RECORD_BASES`, and its lowest threshold."""
_RECORD_BASES = 1000


@dataclass(frozen=True, slots=True)
class LengthClass:
    """Records that have one calibration.

    Attributes
    ----------
    bases
        Length of the pieces for the fit.
    min_windows
        Minimum number of scored windows.
    min_bases
        Minimum length in bases of the record.
    """

    bases: int
    min_windows: int
    min_bases: int

    @property
    def many(self) -> bool:
        """Whether records have enough windows for a calibration of their own.

        Then the line applies to the inverse hyperbolic sine of the mean logit, and negative values
        have a slope of their own. Both are chosen by the figures for groups left out. The
        calibration error is 0.025 instead of 0.031 at 10,000 bases, and 0.011 instead of 0.013 at
        3,000; for single windows the mean logit itself is better. Two slopes have more recall at a
        low false discovery rate from 3,000 bases on, and no smaller calibration error for fewer
        windows (decision 0057).
        """
        return self.min_windows >= _MANY


LENGTH_CLASSES = (
    LengthClass(200, 1, 0),
    LengthClass(300, 1, 250),
    LengthClass(500, 1, 400),
    LengthClass(1250, 2, 0),
    LengthClass(3000, 4, 0),
    LengthClass(5000, 9, 0),
    LengthClass(10_000, 16, 0),
    LengthClass(30_000, 41, 0),
)
"""Classes for windows of 500 bases; the last matching class is valid for a record."""

_WINDOW = 500


def length_classes(window: int) -> tuple[LengthClass, ...]:
    """Return the classes for windows of this length: `LENGTH_CLASSES` in proportion."""
    return tuple(
        LengthClass(
            length_class.bases * window // _WINDOW,
            length_class.min_windows,
            length_class.min_bases * window // _WINDOW,
        )
        for length_class in LENGTH_CLASSES
    )


def fit(
    length_class: LengthClass, logits: FloatArray, viral: BoolArray, weights: FloatArray
) -> PlattLine | None:
    """Fit the line of a length class by weighted logistic regression; None if no line rises.

    Parameters
    ----------
    logits
        ``(n,)``, mean logits of the windows.
    """
    many = length_class.many
    line = PlattLine(length_class.min_windows, length_class.min_bases, 1.0, 0.0, asinh=many)
    x = np.arcsinh(logits) if many else logits
    columns = np.stack([x, np.ones(len(x)), -np.logaddexp(0, -x)], axis=1)
    if many:
        above, intercept, further = _minimise(columns, viral, weights)
        if above > 0 and above + further > 0:
            return replace(line, slope=above, intercept=intercept, slope_below=above + further)
    slope, intercept = _minimise(columns[:, :2], viral, weights)
    return replace(line, slope=slope, intercept=intercept) if slope > 0 else None


def _minimise(columns: FloatArray, viral: BoolArray, weights: FloatArray) -> list[float]:
    """Return the coefficients of the columns x, 1 and, for two slopes, ``-log(1 + exp(-x))``."""
    x, y, w = (torch.from_numpy(a.astype(np.float64)) for a in (columns, viral, weights / 2))
    found = torch.zeros(x.shape[1], dtype=torch.float64)
    found[0] = 1.0
    found.requires_grad_()
    slopes = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 1.0]], dtype=torch.float64)
    slopes = slopes[:, : x.shape[1]][: x.shape[1] - 1]
    optimiser = torch.optim.LBFGS([found], max_iter=50, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        loss = binary_cross_entropy_with_logits(x @ found, y, weight=w, reduction="sum")
        loss = loss + _PENALTY * (slopes @ found - 1).square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    return found.tolist()


def held_out(
    length_class: LengthClass,
    logits: FloatArray,
    groups: Sequence[Group],
    fold_of: IntArray,
) -> FloatArray:
    """Return log odds of the pieces of each fold by a fit on all others; 0 without a line.

    Parameters
    ----------
    fold_of
        Fold of each piece.
    """
    weights = equal_weights(groups)
    viral = are_viral(groups)
    found = np.zeros(len(logits))
    for fold in np.unique(fold_of):
        inside = fold_of == fold
        known = viral[~inside]
        sums = np.where(known, weights[~inside & viral].sum(), weights[~inside & ~viral].sum())
        balanced = weights[~inside] / np.maximum(sums, 1e-12)
        line = fit(length_class, logits[~inside], known, balanced)
        if line is not None:
            found[inside] = line.logits(logits[inside])
    return found


def realised_fdr(
    probabilities: FloatArray,
    viral: BoolArray,
    weights: FloatArray,
    *,
    nominal: float,
    prevalence: float,
) -> tuple[float, float] | None:
    """Return the false discovery rate and the recall of the calls at a nominal rate.

    Parameters
    ----------
    probabilities
        ``(n,)``, at equal prevalence of both classes.
    weights
        ``(n,)``; each class sums to 1.
    nominal, prevalence
        Maximum expected rate of the called records, and share of viral records.

    Returns
    -------
    tuple or None
        None if no record can be called at this rate.
    """
    odds = probabilities / np.maximum(1 - probabilities, 1e-12) * prevalence / (1 - prevalence)
    shifted = odds / (1 + odds)
    shares = np.where(viral, prevalence, 1 - prevalence) * weights
    order = np.argsort(-shifted, kind="stable")
    order = order[shares[order] > 0]
    expected = np.cumsum((shares * (1 - shifted))[order]) / np.cumsum(shares[order])
    within = np.flatnonzero(expected <= nominal)
    if not len(within):
        return None
    called = order[: within[-1] + 1]
    true = float(shares[called][viral[called]].sum())
    return 1 - true / float(shares[called].sum()), true / prevalence


def fit_length(
    bases: int,
    record: FloatArray,
    windows: FloatArray,
    errors: FloatArray,
    groups: Sequence[Group],
    limit: float,
) -> RecordCalibration:
    """Fit the calibration of one length by weighted logistic regression.

    It is fitted where calls of a metagenome are decided: viral pieces have the weight `PRIOR`, and
    the offset is that of a prevalence of one half. Neither logit counts negatively. Pieces without
    errors and those with errors are fitted at once; a piece between both has a share of each.

    Parameters
    ----------
    bases
        Length of the pieces.
    record, windows
        ``(n,)``, logits of networks that had not seen the group of the piece.
    errors
        ``(n,)``, `share_of_errors` of each piece; zeros: no piece has errors.
    limit
        Largest absolute log odds, see `supported`.
    """
    viral = are_viral(groups)
    weights = metagenome_weights(groups) * np.where(viral, PRIOR, 1 - PRIOR)
    columns = np.stack((record, windows, np.ones(len(viral))), axis=1)
    if errors.any():
        columns = np.hstack((columns * (1 - errors)[:, None], columns * errors[:, None]))
    used = np.ones((columns.shape[1] // 3, 3), np.bool_)
    while True:
        found = np.zeros(used.shape)
        found[used] = _logistic(columns[:, used.ravel()], viral, weights)
        slopes = found * (1, 1, 0)
        if slopes.min() >= 0:
            break
        used.flat[slopes.argmin()] = False
    found[:, 2] += np.log((1 - PRIOR) / PRIOR)
    by_factor = found[:, 0], found[:, 1], found[:, 2]
    clean, *with_errors = (
        RecordCalibration((bases,), (of_record,), (of_windows,), (offset,), limit)
        for of_record, of_windows, offset in zip(*map(_rounded, by_factor), strict=True)
    )
    return replace(clean, with_errors=with_errors[0] if with_errors else None)


def supported(n_others: int) -> float:
    """Return the largest log odds that n pieces of others of a length can support.

    A likelihood ratio above n means less than one false piece at a recall of 1.
    """
    return round(float(np.log(max(n_others, 2))), 2)


def metagenome_weights(groups: Sequence[Group]) -> FloatArray:
    """Return ``(n,)`` weights that sum to 1 for each side, as for `equal_weights`.

    Prokaryotes, with equal genera, have the share of others that they have in metagenomes.
    """
    weights = equal_weights(groups)
    counts = Counter(groups)
    cells = np.array([group[0] in PROKARYOTES for group in groups])
    others = ~are_viral(groups)
    weights[cells] = [1 / counts[group] for group in groups if group[0] in PROKARYOTES]
    for rows, share in ((cells, _PROKARYOTES), (others & ~cells, 1 - _PROKARYOTES)):
        if rows.any():
            weights[rows] *= share / weights[rows].sum()
    weights[others] /= weights[others].sum()
    return weights


def as_json(fitted: Sequence[RecordCalibration]) -> dict[str, Any]:
    """Return the section ``records`` of a calibration from those of single lengths."""
    names = ("lengths", "record", "windows", "offset")
    columns = {name: [getattr(calibration, name)[0] for calibration in fitted] for name in names}
    found = {**columns, "limit": fitted[0].limit}
    if any(calibration.with_errors for calibration in fitted):
        found["with_errors"] = as_json([one.with_errors or one for one in fitted])
    return found


def _rounded(factors: FloatArray) -> list[float]:
    return [round(factor, 6) for factor in factors.tolist()]


def _logistic(x: FloatArray, viral: BoolArray, weights: FloatArray) -> FloatArray:
    """Return the coefficients of the columns of `x` by Newton's method, from 0."""
    w = weights / weights.sum()
    found = np.zeros(x.shape[1])
    for _ in range(_STEPS):
        p = (1 + np.tanh(x @ found / 2)) / 2
        gradient = x.T @ (w * (viral - p)) - _RIDGE * found
        curvature = (x * (w * p * (1 - p))[:, None]).T @ x + _RIDGE * np.eye(len(found))
        found = found + np.linalg.solve(curvature, gradient)
    return found


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A length class with its calibration.

    Attributes
    ----------
    length_class, line
        The class of records, and the line of its calibration.
    log_odds
        (n_pieces,) log odds of each piece at a prevalence of one half.
    held_out
        The same, by a calibration without the pieces of the fold of the piece's group.
    relatives
        (n_pieces,) log odds by networks that had not seen near relatives of the piece, but perhaps
        its group.
    """

    length_class: LengthClass
    line: PlattLine
    log_odds: FloatArray
    held_out: FloatArray
    relatives: FloatArray


def calibrate(
    logits: Mapping[int, FloatArray],
    relatives: Mapping[int, FloatArray],
    pieces: Mapping[int, Pieces],
    classes: Sequence[LengthClass],
    folds: Mapping[int, IntArray],
    warn: Callable[[str], object],
) -> list[Calibrated]:
    """Fit a calibration for each of the length classes of which there are pieces.

    By length in bases: `logits` without the group of each piece, which decide the calibration, and
    `relatives` without its near relatives; `folds` by group. A class whose pieces are not separated
    has none; `warn` is called with a text.

    Raises
    ------
    InputError
        If no class has a calibration.
    """
    found = []
    for length_class in classes:
        bases = length_class.bases
        if bases not in pieces:
            continue
        groups, viral, values = pieces[bases].groups, pieces[bases].viral, logits[bases]
        line = fit(length_class, values, viral, equal_weights(groups))
        if line is not None:
            line = _rounded_line(line)
            left_out = held_out(length_class, values, groups, folds[bases])
            near = line.logits(relatives[bases])
            found.append(Calibrated(length_class, line, line.logits(values), left_out, near))
        else:
            warn(f"pieces of {bases:,} bases are not separated: they have no calibration")
    if not found:
        raise InputError(
            "the classifier separates viral from non-viral pieces of no length in the "
            "cross-validation. Check the labels, or add groups and longer sequences."
        )
    return found


def calibrate_records(
    calibrated: Sequence[Calibrated],
    records: Schemes,
    windows: Schemes,
    errors: Mapping[PieceKind, FloatArray],
    pieces: Mapping[PieceKind, Pieces],
    folds: Mapping[PieceKind, IntArray],
) -> tuple[list[Calibrated], dict[str, Any]]:
    """Fit the calibration by both logits for each of the calibrated lengths.

    Parameters
    ----------
    calibrated
        The calibration by windows alone.
    records, windows
        Logit of the record head and mean logit of the windows of each piece, by `GROUPS`, which
        decide the calibration, and by `RELATIVES`.
    errors
        `share_of_errors` of each piece of the lengths that have pieces with errors. Frame shifts of
        shorter pieces are often chance: they have one calibration.

    Returns
    -------
    tuple
        The calibrated classes, and the section ``records`` of the calibration.
    """
    lengths = [of_length.length_class.bases for of_length in calibrated]
    n_others = [int((~pieces[PieceKind(length)].viral).sum()) for length in lengths]
    limit = supported(round(float(np.mean(n_others))))
    found, fitted = [], []
    for of_length, bases in zip(calibrated, lengths, strict=True):
        kinds = [kind for kind in pieces if kind.bases == bases]
        n, groups = len(pieces[kinds[0]].groups), [g for kind in kinds for g in pieces[kind].groups]
        record, window = (
            np.concatenate([of[GROUPS][kind] for kind in kinds]) for of in (records, windows)
        )
        none = np.zeros(len(record))
        error = np.concatenate([errors[kind] for kind in kinds]) if kinds[0] in errors else none
        left_out, length = np.zeros(len(groups)), np.full(len(groups), bases)
        fold_of = np.concatenate([folds[kind] for kind in kinds])
        for fold in np.unique(fold_of):
            own, rest = np.flatnonzero(fold_of == fold), np.flatnonzero(fold_of != fold)
            known = [groups[row] for row in rest]
            part = fit_length(bases, record[rest], window[rest], error[rest], known, limit)
            left_out[own] = part.log_odds(record[own], window[own], length[own], error[own])
        fitted.append(fit_length(bases, record, window, error, groups, limit))
        log_odds = fitted[-1].log_odds(record, window, length, error)
        near, near_windows = (of[RELATIVES][kinds[0]] for of in (records, windows))
        relatives = fitted[-1].log_odds(near, near_windows, length[:n], error[:n])
        found.append(
            replace(of_length, log_odds=log_odds[:n], held_out=left_out[:n], relatives=relatives)
        )
    return found, as_json(fitted)


_THRESHOLDS: Final = range(-4, 9)
"""Log odds at which the tails of both classes are stated."""


def tails_of(
    calibrated: Sequence[Calibrated], pieces: Mapping[int, Pieces]
) -> dict[str, Any] | None:
    """Return the section ``tails`` of a calibration; None without pieces of `LEAST_BASES`.

    The log odds are by networks and a calibration that had not seen the group of a piece.
    """
    found: dict[str, Any] = {"thresholds": [*_THRESHOLDS], "lengths": [], "viral": [], "others": []}
    for of_length in calibrated:
        bases = of_length.length_class.bases
        groups, viral = pieces[bases].groups, pieces[bases].viral
        if bases < LEAST_BASES or viral.all() or not viral.any():
            continue
        weights = metagenome_weights(groups)
        reached = of_length.held_out[:, None] >= np.array(_THRESHOLDS)
        found["lengths"].append(bases)
        for name, side in (("viral", viral), ("others", ~viral)):
            shares = weights[side] @ reached[side] / weights[side].sum()
            found[name].append(shares.round(5).tolist())
    return found if found["lengths"] else None


def choose_presets(
    calibrated: Sequence[Calibrated],
    pieces: Mapping[int, Pieces],
    warn: Callable[[str], object],
) -> dict[PresetName, Preset]:
    """Choose the thresholds of the presets from the predictions for groups left out.

    Each has the lowest threshold whose calls have the precision of `_PRESETS`, mean of the lengths
    of at least `_RECORD_BASES`, or of the longest. Records that ``sensitive`` does not call are
    non-viral at every preset. `warn` is called with a text if there is no such threshold.
    """
    shortest = min(_RECORD_BASES, calibrated[-1].length_class.bases)
    kept = [of_length for of_length in calibrated if of_length.length_class.bases >= shortest]
    found: dict[PresetName, float] = {}
    for name, (prevalence, wanted, lowest) in _PRESETS.items():
        grid = [percent / 100 for percent in range(round(100 * lowest), 100)]
        rates = np.zeros((2, len(grid)))
        for of_length in kept:
            bases = of_length.length_class.bases
            groups, viral = pieces[bases].groups, pieces[bases].viral
            weights = metagenome_weights(groups)
            called = posterior(of_length.held_out, prevalence)[:, None] >= grid
            sides = viral, ~viral
            rates += [weights[side] @ called[side] / weights[side].sum() for side in sides]
        true, false = prevalence * rates[0], (1 - prevalence) * rates[1]
        reached = np.flatnonzero(true / np.maximum(true + false, 1e-12) >= wanted)
        if not len(reached):
            warn(f"at no threshold {wanted:.0%} of the calls are viral: {grid[-1]} is used")
        found[name] = grid[int(reached[0])] if len(reached) else grid[-1]
    found["sensitive"] = non_viral = min(found["sensitive"], found["default"])
    return {name: Preset(viral, non_viral) for name, viral in found.items()}


def _rounded_line(line: PlattLine) -> PlattLine:
    """Return the line with the digits of a bundle."""
    below = line.slope_below
    return replace(
        line,
        slope=round(line.slope, 6),
        intercept=round(line.intercept, 6),
        slope_below=None if below is None else round(below, 6),
    )
