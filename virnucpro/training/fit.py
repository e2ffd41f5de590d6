"""Fit head, calibration and thresholds to the features of the training windows."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from virnucpro.classifier.head_tensors import VIRAL
from virnucpro.training.cross_validation import calibrate, choose_presets, cross_validate
from virnucpro.training.draw import Drawn
from virnucpro.training.figures import accuracy_figures
from virnucpro.training.network import Examples, Recipe, train
from virnucpro.training.weights import draw_weights
from virnucpro.training.windows_file import TrainingWindows

__all__ = ["Fitted", "fit_head"]

_PREVALENCE: Final = 0.5
_LEAST_BASES: Final = 100
_LEAST_SCORED: Final = 0.5
_MOST_VISITS: Final = 20
"""A small training set is not repeated more often than this."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """Result of a training.

    Attributes
    ----------
    tensors
        Tensors of a `StandardisedHead`.
    classes
        Names of its classes; empty for two classes.
    calibration
        Calibration as JSON, for `read_calibration`.
    metrics
        Figures of the cross-validation, for the card.
    recipe, versions
        Parameters of the training, and versions of the libraries.
    held_out
        Kingdom, group and mean logit of each piece of the cross-validation, by length in bases.
    """

    tensors: Mapping[str, torch.Tensor]
    classes: tuple[str, ...]
    calibration: Mapping[str, Any]
    metrics: Mapping[str, Any]
    recipe: Mapping[str, Any]
    versions: Mapping[str, str]
    held_out: Mapping[int, list[tuple[str, str, float]]]


def fit_head(
    windows: TrainingWindows,
    features: NDArray[np.float32],
    folds: Mapping[str, int],
    seed: int,
    report: Callable[[str], object],
    warn: Callable[[str], object],
) -> Fitted:
    """Train the head on all crops, and calibrate it by cross-validation over groups.

    The result depends on the arguments alone, on one machine with one number of threads.

    Parameters
    ----------
    features
        (n, dim), vectors of all windows in the order of `windows`.
    folds
        Fold of each group's name.
    report, warn
        Called with a text about each step, and with warnings.

    Raises
    ------
    InputError
        If viral and non-viral windows cannot be separated.
    """
    torch.set_num_threads(1)  # other numbers of threads sum in another order
    torch.use_deterministic_algorithms(mode=True)
    most = _MOST_VISITS * len(windows.crops.bases)
    recipe = replace(Recipe(), windows=min(Recipe().windows, most))
    crop_features, pieces = windows.split(features)
    names, examples = _examples(windows.crops, crop_features)
    logits = cross_validate(examples, windows.crops.groups, pieces, folds, recipe, seed, report)
    calibrated = calibrate(logits, pieces, windows.classes, warn)
    presets = choose_presets(calibrated, logits, pieces, warn)
    report("training on all groups")
    ensemble = train(examples, recipe, seed)
    tensors = ensemble.tensors() | {VIRAL: torch.from_numpy(examples.viral).float()}
    return Fitted(
        tensors=tensors,
        classes=names if len(names) > 2 else (),
        calibration={
            "lines": [asdict(one.line) for one in calibrated],
            "prevalence": _PREVALENCE,
            "presets": {name: asdict(preset) for name, preset in presets.items()},
            "min_bases": _LEAST_BASES,
            "min_scored": _LEAST_SCORED,
            "gc": _gc_range(windows.crops),
        },
        metrics=accuracy_figures(calibrated, logits, pieces, presets["default"].viral, seed),
        recipe=asdict(recipe),
        held_out={
            length: [
                (*group, logit)
                for group, logit in zip(one.groups, logits[length].tolist(), strict=True)
            ]
            for length, one in pieces.items()
        },
        versions={"torch": str(torch.__version__), "numpy": np.__version__},
    )


def _examples(crops: Drawn, features: NDArray[np.float32]) -> tuple[tuple[str, ...], Examples]:
    names = tuple(sorted(set(crops.sources)))
    sources = np.array([names.index(source) for source in crops.sources])
    viral = np.zeros(len(names), np.bool_)
    viral[sources[crops.viral]] = True
    groups = sorted(set(crops.groups))
    numbers = {group: number for number, group in enumerate(groups)}
    return names, Examples(
        features=features,
        classes=sources,
        viral=viral,
        groups=np.array([numbers[group] for group in crops.groups]),
        weights=draw_weights(crops.groups),
    )


def _gc_range(crops: Drawn) -> list[float]:
    """Return the 1st and 99th percentile of the GC content of the training windows."""
    shares = [
        (one.count(b"G") + one.count(b"C")) / max(1, sum(map(one.count, (b"A", b"C", b"G", b"T"))))
        for one in crops.bases
    ]
    return [round(float(value), 4) for value in np.percentile(shares, [1, 99])]
