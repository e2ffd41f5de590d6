"""Fit head, calibration and thresholds to the features of the training windows."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import torch

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
from virnucpro.lab.training.genomes import VIRUS, Genome, Group, are_viral
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


Piece: TypeAlias = tuple[str, str, str, float, float]
"""Kingdom, group, class, mean logit of the windows and held-out log odds of a piece."""


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
    features: Float32Array,
    folds: Mapping[str, int],
    seed: int,
    network: NetworkSettings,
    reporter: Reporter,
    folder: Path,
    records: Sequence[Genome] = (),
) -> Fitted:
    """Train the head on all crops, and calibrate it by cross-validation over groups.

    The result depends on the arguments alone, on one machine with one number of threads.

    Parameters
    ----------
    features
        (n, dim), vectors of all windows in the order of `windows`.
    folds
        Fold of each group's name.
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
    draws = min(network.draws, network.epochs * len(windows.crops.bases))
    settings = replace(network, draws=draws)
    crop_features, pieces = windows.split(features)
    names, examples = examples_of(windows.crops, crop_features)
    logits = cross_validate(
        examples, windows.crops.groups, pieces, folds, settings, seed, reporter, folder
    )
    clean = {kind.bases: own for kind, own in pieces.items() if not kind.errors}
    clean_logits = {bases: logits[PieceKind(bases)] for bases in clean}
    calibrated = calibrate(clean_logits, clean, windows.classes, folds, reporter.warn)
    calibration: dict[str, Any] = {"lines": [asdict(of_length.line) for of_length in calibrated]}
    record = None
    if records:
        reporter.stage("reading the genes of all genomes")
        training = RecordTraining(records, seed, settings)
        drawn = {kind: tiled.pieces for kind, tiled in windows.tiled.items()}
        record_logits = training.cross_validate(drawn, folds, reporter, folder)
        noisy = {kind.bases for kind in drawn if kind.errors}
        errors = training.errors({kind: of for kind, of in drawn.items() if kind.bases in noisy})
        calibrated, calibration["records"] = calibrate_records(
            calibrated, record_logits, logits, errors, pieces, folds
        )
        reporter.stage("training the record head on all groups")
        record = training.fit_all(reporter.finished).tensors()
    presets = choose_presets(calibrated, clean, reporter.warn)
    reporter.stage("training on all groups")
    ensemble = train(examples, settings, seed, reporter.finished)
    tensors = ensemble.tensors() | {VIRAL: torch.from_numpy(examples.viral).float()}
    return Fitted(
        tensors=tensors,
        classes=names if len(names) > 2 else (),
        calibration=calibration
        | {
            "prevalence": _PREVALENCE,
            "presets": {name: asdict(preset) for name, preset in presets.items()},
            "min_bases": _LEAST_BASES,
            "min_scored": _LEAST_SCORED,
            "gc": _gc_range(windows.crops),
            "tails": tails_of(calibrated, clean),
        },
        metrics=accuracy_figures(calibrated, clean, presets["default"].viral, seed),
        settings=asdict(settings),
        held_out={
            of_length.length_class.bases: _rows(
                windows.tiled[PieceKind(of_length.length_class.bases)].pieces,
                clean_logits[of_length.length_class.bases],
                of_length.held_out,
            )
            for of_length in calibrated
        },
        record=record,
        versions={"torch": str(torch.__version__), "numpy": np.__version__},
    )


def _rows(pieces: Drawn, logits: FloatArray, log_odds: FloatArray) -> list[Piece]:
    columns = zip(pieces.groups, pieces.sources, logits.tolist(), log_odds.tolist(), strict=True)
    return [(*group, source, logit, odds) for group, source, logit, odds in columns]


def _gc_range(crops: Drawn) -> list[float]:
    """Return the 1st and 99th percentile of the GC content of the training windows."""
    shares = [
        (crop.count(b"G") + crop.count(b"C"))
        / max(1, sum(map(crop.count, (b"A", b"C", b"G", b"T"))))
        for crop in crops.bases
    ]
    return [round(float(value), 4) for value in np.percentile(shares, [1, 99])]


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

    AUROC, also of the viruses against each kingdom, calibration error, realised FDR and recall at a
    nominal FDR of 5 % and two prevalences, and the share of each kingdom called viral at
    `threshold` and a prevalence of 5 %. The calibration of each piece is fitted without its group.
    A rate without a call is
    None; its resamples without a call have a rate and a recall of 0.
    """
    found = {}
    for of_length in calibrated:
        bases = of_length.length_class.bases
        groups, viral = pieces[bases].groups, pieces[bases].viral
        probability = posterior(of_length.held_out, _PREVALENCE)
        weights = equal_weights(groups)
        resampled = resampled_weights(groups, _RESAMPLES, seed)
        found[str(bases)] = {
            "pieces": len(groups),
            "auroc": _rounded(auroc(of_length.held_out, viral, weights)),
            "auroc_interval": _interval(auroc(of_length.held_out, viral, resampled)),
            "auroc_of_kingdom": _by_kingdom(of_length.held_out, groups, seed),
            "calibration_error": _rounded(calibration_error(probability, viral, weights)),
            "calibration_error_interval": _interval(
                calibration_error(probability, viral, resampled)
            ),
            "realised_fdr": {
                str(share): _fdr(probability, viral, weights, resampled, share)
                for share in _PREVALENCES
            },
            "called_viral": share_above(
                posterior(of_length.held_out, CALLED_AT), groups, threshold
            ),
        }
    return {"cross_validation": found}


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
