"""Fit head, calibration and thresholds to the features of the training windows."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from h5py import Dataset

from virnucpro.arrays import BoolArray, Float32Array, FloatArray
from virnucpro.classifier.head import VIRAL
from virnucpro.classifier.prevalence import posterior
from virnucpro.lab.metrics import auroc, calibration_error
from virnucpro.lab.training.calibration import (
    Calibrated,
    calibrate,
    calibrate_records,
    choose_presets,
    realised_fdr,
    tails_of,
)
from virnucpro.lab.training.cross_validation import Pieces, cross_validate
from virnucpro.lab.training.draw import Drawn, PieceKind
from virnucpro.lab.training.genomes import GROUPS, RELATIVES, VIRUS, Genome, Group, are_viral
from virnucpro.lab.training.network import examples_of, train
from virnucpro.lab.training.record_head import RecordTraining
from virnucpro.lab.training.settings import NetworkSettings
from virnucpro.lab.training.weights import (
    equal_weights,
    resampled_weights,
    share_above,
)
from virnucpro.lab.training.windows_file import TrainingWindows
from virnucpro.run.reporter import Reporter

_PREVALENCE: Final = 0.5
_LEAST_BASES: Final = 100
_LEAST_SCORED: Final = 0.5


Piece: TypeAlias = tuple[str, str, str, float, float, float]
"""Kingdom, group, class, mean logit of the windows of a piece, and its log odds without its group
and without its near relatives."""


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
    settings, versions
        Parameters of the training, and versions of the libraries.
    held_out
        Pieces of the cross-validation by length in bases.
    record
        Tensors of the encoder of genes and of the record head; None without a record head.
    """

    tensors: Mapping[str, torch.Tensor]
    classes: tuple[str, ...]
    calibration: Mapping[str, Any]
    metrics: Mapping[str, Any]
    settings: Mapping[str, Any]
    versions: Mapping[str, str]
    held_out: Mapping[int, list[Piece]]
    record: tuple[Mapping[str, torch.Tensor], Mapping[str, torch.Tensor]] | None = None


def fit_head(
    windows: TrainingWindows,
    features: Float32Array | Dataset,
    gc: list[float],
    seed: int,
    network: NetworkSettings,
    reporter: Reporter,
    folder: Path,
    records: Sequence[Genome] = (),
) -> Fitted:
    """Train the head on all crops, and calibrate it by cross-validation over groups.

    A second cross-validation, over near relatives, shows the accuracy for new species.

    The result depends on the arguments alone, on one machine with one number of threads.

    Parameters
    ----------
    features
        (n, dim), vectors of all windows in the order of `windows`.
    gc
        Range of the GC content of the training windows.
    network
        Parameters of the networks.
    reporter
        Receives each step, its finished share, and warnings.
    folder
        Folder for the finished folds of the cross-validation; a repeated call reads them.
    records
        Genomes of the training set to train a record head, too.

    Raises
    ------
    InputError
        If viral and non-viral windows cannot be separated.
    """
    torch.set_num_threads(1)  # other numbers of threads sum in another order
    draws = min(network.draws, network.epochs * len(windows.crops.genomes))
    settings = replace(network, draws=draws)
    crop_features, pieces = windows.split(features)
    names, examples = examples_of(windows.crops, crop_features)
    drawn = {kind: tiled.pieces for kind, tiled in windows.tiled.items()}
    schemes = {GROUPS: "fold", RELATIVES: "relatives"}
    logits = [
        cross_validate(
            examples,
            windows.crops.folds(scheme),
            pieces,
            {kind: of_kind.folds(scheme) for kind, of_kind in drawn.items()},
            settings,
            seed,
            reporter,
            folder / name,
        )
        for scheme, name in schemes.items()
    ]
    folds = {kind: of_kind.folds(GROUPS) for kind, of_kind in drawn.items()}
    clean = {kind.bases: own for kind, own in pieces.items() if not kind.errors}
    clean_logits, near_logits = ({bases: of[PieceKind(bases)] for bases in clean} for of in logits)
    clean_folds = {bases: folds[PieceKind(bases)] for bases in clean}
    calibrated = calibrate(
        clean_logits, near_logits, clean, windows.classes, clean_folds, reporter.warn
    )
    reporter.stage("training on all groups")
    ensemble = train(examples, settings, seed, reporter.finished)
    tensors = ensemble.tensors() | {VIRAL: torch.from_numpy(examples.viral).float()}
    del examples, crop_features  # the record head needs the memory
    calibration: dict[str, Any] = {"lines": [asdict(of_length.line) for of_length in calibrated]}
    record = None
    if records:
        reporter.stage("reading the genes of all genomes")
        training = RecordTraining(records, seed, settings)
        record_logits = [
            training.cross_validate(drawn, scheme, reporter, folder / f"records-{name}")
            for scheme, name in schemes.items()
        ]
        noisy = {kind.bases for kind in drawn if kind.errors}
        errors = training.errors({kind: of for kind, of in drawn.items() if kind.bases in noisy})
        calibrated, calibration["records"] = calibrate_records(
            calibrated, record_logits, logits, errors, pieces, folds
        )
        reporter.stage("training the record head on all groups")
        record = training.fit(reporter.finished).tensors()
    presets = choose_presets(calibrated, clean, reporter.warn)
    return Fitted(
        tensors=tensors,
        classes=names if len(names) > 2 else (),
        calibration=calibration
        | {
            "prevalence": _PREVALENCE,
            "presets": {name: asdict(preset) for name, preset in presets.items()},
            "min_bases": _LEAST_BASES,
            "min_scored": _LEAST_SCORED,
            "gc": gc,
            "tails": tails_of(calibrated, clean),
        },
        metrics=accuracy_figures(calibrated, clean, presets["default"].viral, seed),
        settings=asdict(settings),
        held_out={
            of_length.length_class.bases: _rows(
                windows.tiled[PieceKind(of_length.length_class.bases)].pieces,
                clean_logits[of_length.length_class.bases],
                of_length,
            )
            for of_length in calibrated
        },
        record=record,
        versions={"torch": str(torch.__version__), "numpy": np.__version__},
    )


def _rows(pieces: Drawn, logits: FloatArray, found: Calibrated) -> list[Piece]:
    numbers = (values.tolist() for values in (logits, found.held_out, found.relatives))
    columns = zip(pieces.groups, pieces.sources, *numbers, strict=True)
    return [(*group, source, *values) for group, source, *values in columns]


_NOMINAL: Final = 0.05
CALLED_AT: Final = 0.05
"""Prevalence of the shares that are called viral."""
_PREVALENCES: Final = (0.5, 0.1)
"""Nominal FDR, and the shares of viral records at which the realised rate is measured."""
_RESAMPLES: Final = 500
_TAILS: Final = (2.5, 97.5)


def accuracy_figures(
    calibrated: Sequence[Calibrated],
    pieces: Mapping[int, Pieces],
    threshold: float,
    seed: int,
) -> dict[str, Any]:
    """Return the figures of each length in bases as JSON, with 95 % intervals.

    They stand under ``cross_validation`` for groups that were left out, under ``relatives`` for
    near relatives that were left out; ``families`` has the shares of each family called viral.

    AUROC, also of the viruses against each kingdom, calibration error, realised FDR and recall at a
    nominal FDR of 5 % and two prevalences, and the share of each kingdom called viral at
    `threshold` and a prevalence of 5 %. The calibration of each piece is fitted without its group.
    A rate without a call is
    None; its resamples without a call have a rate and a recall of 0.
    """
    found: dict[str, dict[str, Any]] = {"cross_validation": {}, "relatives": {}}
    for of_length in calibrated:
        bases = of_length.length_class.bases
        for scheme, odds in zip(found, (of_length.held_out, of_length.relatives), strict=True):
            found[scheme][str(bases)] = _figures(odds, pieces[bases].groups, threshold, seed)
    return found | {"families": _families(calibrated, pieces, threshold)}


def _figures(
    odds: FloatArray, groups: Sequence[Group], threshold: float, seed: int
) -> dict[str, Any]:
    viral, probability = are_viral(groups), posterior(odds, _PREVALENCE)
    weights = equal_weights(groups)
    resampled = resampled_weights(groups, _RESAMPLES, seed)
    return {
        "pieces": len(groups),
        "auroc": _rounded(auroc(odds, viral, weights)),
        "auroc_interval": _interval(auroc(odds, viral, resampled)),
        "auroc_of_kingdom": _by_kingdom(odds, groups, seed),
        "calibration_error": _rounded(calibration_error(probability, viral, weights)),
        "calibration_error_interval": _interval(calibration_error(probability, viral, resampled)),
        "realised_fdr": {
            str(share): _fdr(probability, viral, weights, resampled, share)
            for share in _PREVALENCES
        },
        "called_viral": share_above(posterior(odds, CALLED_AT), groups, threshold),
    }


def _families(
    calibrated: Sequence[Calibrated], pieces: Mapping[int, Pieces], threshold: float
) -> dict[str, dict[str, dict[str, float]]]:
    """Return the share of each viral group called viral, by length: unseen, and as relatives."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for of_length in calibrated:
        bases = of_length.length_class.bases
        names = np.array([name for _, name in pieces[bases].groups])
        odds = {"unseen": of_length.held_out, "relatives": of_length.relatives}
        for name in np.unique(names[pieces[bases].viral]).tolist():
            own = found.setdefault(name.rpartition(":")[2], {column: {} for column in odds})
            for column, values in odds.items():
                called = posterior(values[names == name], CALLED_AT) >= threshold
                own[column][str(bases)] = round(float(called.mean()), 3)
    return dict(sorted(found.items()))


def _interval(values: Sequence[float] | FloatArray) -> list[float]:
    """Return the 95 % interval of the figures of resamples."""
    return [_rounded(value) for value in np.percentile(values, _TAILS)]


def _by_kingdom(
    logits: FloatArray, groups: Sequence[Group], seed: int
) -> dict[str, dict[str, Any]]:
    """Return the AUROC of viruses against each kingdom; no interval for a single group."""
    found: dict[str, dict[str, Any]] = {}
    for kingdom in sorted({name for name, _ in groups} - {VIRUS}):
        rows = [row for row, (name, _) in enumerate(groups) if name in (VIRUS, kingdom)]
        chosen = [groups[row] for row in rows]
        viral = are_viral(chosen)
        values = logits[rows]
        found[kingdom] = {"auroc": _rounded(auroc(values, viral, equal_weights(chosen)))}
        n_groups = len({group for group in chosen if group[0] == kingdom})
        found[kingdom]["groups"] = n_groups
        if n_groups > 1:
            resampled = resampled_weights(chosen, _RESAMPLES, seed)
            found[kingdom]["auroc_interval"] = _interval(auroc(values, viral, resampled))
    return found


def _fdr(
    held_out: FloatArray,
    viral: BoolArray,
    weights: FloatArray,
    resampled: FloatArray,
    prevalence: float,
) -> dict[str, Any] | None:
    rates = [
        realised_fdr(held_out, viral, sample, nominal=_NOMINAL, prevalence=prevalence)
        for sample in (weights, *resampled)
    ]
    if rates[0] is None:
        return None
    drawn = np.array([rate or (0.0, 0.0) for rate in rates[1:]])
    return {
        "fdr": _rounded(rates[0][0]),
        "fdr_interval": _interval(drawn[:, 0]),
        "recall": _rounded(rates[0][1]),
        "recall_interval": _interval(drawn[:, 1]),
    }


def _rounded(value: float | FloatArray) -> float:
    return abs(round(float(value), 4))
