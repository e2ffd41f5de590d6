"""Predictions for groups outside the training set, the calibration and thresholds from them."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from virnucpro.arrays import BoolArray, FloatArray
from virnucpro.classifier.calibration import PlattLine, Preset
from virnucpro.classifier.call_options import PresetName
from virnucpro.classifier.prevalence import posterior
from virnucpro.errors import InputError
from virnucpro.lab.training.draw import PieceKind
from virnucpro.lab.training.folds import logits_of_folds
from virnucpro.lab.training.genomes import Group, are_viral
from virnucpro.lab.training.network import Ensemble, Examples, train
from virnucpro.lab.training.platt import LengthClass, fit, held_out
from virnucpro.lab.training.records.calibration import (
    as_json,
    fit_length,
    metagenome_weights,
    supported,
)
from virnucpro.lab.training.settings import NetworkSettings
from virnucpro.lab.training.weights import equal_weights
from virnucpro.run.reporter import Reporter

_PREVALENCE = 0.05
"""Share of viral records at which the presets are chosen: that of many metagenomes."""
_PRECISION = {"default": 0.8, "conservative": 0.95}
"""Minimum precision of each preset at this prevalence, mean of all lengths from `_RECORD_BASES`."""
_RECORD_BASES = 1000
_LEAST = 0.4
"""Lowest threshold of these presets."""
_SENSITIVE = 0.3
"""Threshold of the preset for samples of viruses, where false calls are rare. Records below it are
non-viral at every preset."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Pieces of one length, with the features of their windows.

    Attributes
    ----------
    groups
        Group of each piece.
    features
        (n_windows, dim) float32.
    first
        (n_pieces + 1,) int64: piece i has the windows ``first[i]`` to ``first[i + 1] - 1``.
    """

    groups: Sequence[Group]
    features: NDArray[np.float32]
    first: NDArray[np.int64]

    @property
    def viral(self) -> NDArray[np.bool_]:
        """(n_pieces,) bool."""
        return are_viral(self.groups)

    def logits(self, ensemble: Ensemble) -> FloatArray:
        """Return the mean logit of each piece's windows."""
        found: FloatArray = np.add.reduceat(ensemble.logits(self.features), self.first[:-1])
        return found / np.diff(self.first)

    def select(self, chosen: NDArray[np.bool_]) -> "Pieces":
        """Return the pieces for which `chosen`, (n_pieces,), is True."""
        counts = np.diff(self.first)
        rows = np.repeat(chosen, counts)
        first = np.concatenate(([0], np.cumsum(counts[chosen])))
        groups = [group for group, kept in zip(self.groups, chosen, strict=True) if kept]
        return Pieces(groups, self.features[rows], first)


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
    """

    length_class: LengthClass
    line: PlattLine
    log_odds: FloatArray
    held_out: FloatArray


def cross_validate(
    examples: Examples,
    groups: Sequence[Group],
    pieces: Mapping[PieceKind, Pieces],
    folds: Mapping[str, int],
    settings: NetworkSettings,
    seed: int,
    reporter: Reporter,
    folder: Path,
) -> dict[PieceKind, FloatArray]:
    """Return, by kind, the mean logit of each piece by an ensemble without the piece's group.

    The logits of each finished fold are kept in `folder`. A second call with equal arguments and
    the same version of torch reads them; damaged and other files are replaced.

    Parameters
    ----------
    groups
        Group of each training window.
    pieces
        Pieces of each kind.
    folds
        Fold of each group's name.
    reporter
        Receives a stage for each fold that is trained, and its finished share.
    """
    of_window = np.array([folds[name] for _, name in groups])

    def logits_of(fold: int, inside: Mapping[PieceKind, BoolArray]) -> dict[PieceKind, FloatArray]:
        reporter.stage(f"training for fold {fold + 1} of {max(folds.values()) + 1}")
        ensemble = train(_without(examples, of_window == fold), settings, seed, reporter.finished)
        return {kind: pieces[kind].select(mask).logits(ensemble) for kind, mask in inside.items()}

    key = _key(examples, pieces, groups, folds, settings, seed)
    of_pieces = {kind: of_kind.groups for kind, of_kind in pieces.items()}
    return logits_of_folds(folder / "fold", key, of_pieces, folds, logits_of)


def _key(examples: Examples, pieces: Mapping[PieceKind, Pieces], *others: object) -> str:
    """Return a digest of the arguments that decide the logits of a fold."""
    digest = hashlib.sha256(repr((others, torch.__version__)).encode())
    arrays = [examples.features, examples.classes, examples.viral, examples.groups]
    for kind, of_kind in pieces.items():
        digest.update(repr((kind, of_kind.groups)).encode())
        arrays += [of_kind.features, of_kind.first]
    for array in (*arrays, examples.weights):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def calibrate(
    logits: Mapping[int, FloatArray],
    pieces: Mapping[int, Pieces],
    classes: Sequence[LengthClass],
    folds: Mapping[str, int],
    warn: Callable[[str], object],
) -> list[Calibrated]:
    """Fit a calibration for each of the length classes of which there are pieces.

    A class whose pieces are not separated has none; `warn` is called with a text.

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
            line = _rounded(line)
            left_out = held_out(length_class, values, groups, folds)
            found.append(Calibrated(length_class, line, line.logits(values), left_out))
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
    records: Mapping[PieceKind, FloatArray],
    windows: Mapping[PieceKind, FloatArray],
    errors: Mapping[PieceKind, FloatArray],
    pieces: Mapping[PieceKind, Pieces],
    folds: Mapping[str, int],
) -> tuple[list[Calibrated], dict[str, Any]]:
    """Fit the calibration by both logits for each of the calibrated lengths.

    Parameters
    ----------
    calibrated
        The calibration by windows alone.
    records, windows
        Logit of the record head and mean logit of the windows of each piece.
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
        record, window = (np.concatenate([of[kind] for kind in kinds]) for of in (records, windows))
        none = np.zeros(len(record))
        error = np.concatenate([errors[kind] for kind in kinds]) if kinds[0] in errors else none
        left_out, length = np.zeros(len(groups)), np.full(len(groups), bases)
        fold_of = np.array([folds[name] for _, name in groups])
        for fold in np.unique(fold_of):
            own, rest = np.flatnonzero(fold_of == fold), np.flatnonzero(fold_of != fold)
            known = [groups[row] for row in rest]
            part = fit_length(bases, record[rest], window[rest], error[rest], known, limit)
            left_out[own] = part.log_odds(record[own], window[own], length[own], error[own])
        fitted.append(fit_length(bases, record, window, error, groups, limit))
        log_odds = fitted[-1].log_odds(record, window, length, error)
        found.append(replace(of_length, log_odds=log_odds[:n], held_out=left_out[:n]))
    return found, as_json(fitted)


def choose_presets(
    calibrated: Sequence[Calibrated],
    pieces: Mapping[int, Pieces],
    warn: Callable[[str], object],
) -> dict[PresetName, Preset]:
    """Choose the thresholds of the presets from the predictions for groups left out.

    ``sensitive`` is `_SENSITIVE`. The others have the lowest threshold from `_LEAST` on whose calls
    have a precision of `_PRECISION` in a metagenome of `_PREVALENCE` viral records, mean of the
    lengths of at least `_RECORD_BASES`, or of the longest. `warn` is called with a text if there
    is no such threshold.
    """
    shortest = min(_RECORD_BASES, calibrated[-1].length_class.bases)
    kept = [of_length for of_length in calibrated if of_length.length_class.bases >= shortest]
    grid = [percent / 100 for percent in range(round(100 * _LEAST), 100)]
    rates = np.zeros((2, len(grid)))
    for of_length in kept:
        bases = of_length.length_class.bases
        groups, viral = pieces[bases].groups, pieces[bases].viral
        probability = posterior(of_length.held_out, _PREVALENCE)
        weights = metagenome_weights(groups)
        called = probability[:, None] >= grid
        rates += [weights[side] @ called[side] / weights[side].sum() for side in (viral, ~viral)]
    true, false = _PREVALENCE * rates[0], (1 - _PREVALENCE) * rates[1]
    precision = true / np.maximum(true + false, 1e-12)

    def least(wanted: float) -> float:
        reached = np.flatnonzero(precision >= wanted)
        if not len(reached):
            warn(f"at no threshold {wanted:.0%} of the calls are viral: {grid[-1]} is used")
        return grid[int(reached[0])] if len(reached) else grid[-1]

    return {
        "sensitive": Preset(_SENSITIVE, _SENSITIVE),
        "default": Preset(least(_PRECISION["default"]), _SENSITIVE),
        "conservative": Preset(least(_PRECISION["conservative"]), _SENSITIVE),
    }


def _rounded(line: PlattLine) -> PlattLine:
    """Return the line with the digits of a bundle."""
    below = line.slope_below
    return replace(
        line,
        slope=round(line.slope, 6),
        intercept=round(line.intercept, 6),
        slope_below=None if below is None else round(below, 6),
    )


def _without(examples: Examples, left_out: NDArray[np.bool_]) -> Examples:
    kept = ~left_out
    _, groups = np.unique(examples.groups[kept], return_inverse=True)
    return Examples(
        examples.features[kept],
        examples.classes[kept],
        examples.viral,
        groups,
        examples.weights[kept],
    )
