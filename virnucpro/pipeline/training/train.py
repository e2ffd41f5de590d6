"""Train a classifier on labelled sequences; its windows are encoded by the same pipeline."""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from safetensors.torch import save

from virnucpro import __version__
from virnucpro.bundles.bundle import write_manifest
from virnucpro.bundles.manifest import EncoderEntry, Manifest
from virnucpro.durable import write_file
from virnucpro.errors import RunExistsError, UsageError, WorkerError
from virnucpro.evaluation.fragments import Excluded
from virnucpro.evaluation.labels import Source
from virnucpro.folder_lock import folder_lock
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.jobs.embed_job import NamedEncoder, embed_job, find_encoder
from virnucpro.pipeline.jobs.job import Reporter
from virnucpro.pipeline.predict import predict
from virnucpro.pipeline.training.genomes import (
    read_genomes,
    refuse_leaks,
    require_disjoint,
    require_usable,
)
from virnucpro.training.card import write_card
from virnucpro.training.fit import Fitted, fit_head
from virnucpro.training.groups import VIRUS, Genome, assign_folds, by_group
from virnucpro.training.windows_file import draw_training_windows

__all__ = ["Training", "train_bundle"]

_FOLDS = 5
_SETTINGS = "train.json"
_WINDOWS = "windows.fa"
_VECTORS = "vectors"
_BUNDLE = "bundle"
_BUNDLE_PART = "bundle.part"
_LOCK = "train.lock"
_HELD_OUT = "cross_validation.tsv"


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained on what.

    Attributes
    ----------
    sources
        Labelled files of the training set.
    held_out
        Labelled files that must not be similar to the training set; empty to skip this check.
    excluded
        Regions of records that are left out.
    encoder
        Encoder of whole windows, as for `find_encoder`; a nucleotide encoder of a bundle.
    name, version, description
        Name, version and description of the new bundle.
    seed
        Seed of windows, folds and initial weights.
    notes
        Markdown text that is appended to the card.
    allow_similar
        Warn of nearly equal sequences of different groups, or on both sides, instead of refusing.
    """

    sources: Sequence[Source]
    held_out: Sequence[Source]
    excluded: Excluded
    encoder: str
    name: str
    version: str
    description: str
    seed: int
    notes: str = ""
    allow_similar: bool = False


def train_bundle(training: Training, execution: Execution, reporter: Reporter) -> Path:
    """Train a classifier and its calibration; return the folder of the new bundle.

    The folder ``execution.outdir`` has the windows, the run that encodes them, and the bundle. A
    resume computes missing vectors; the same inputs and options give the same bundle.

    Raises
    ------
    UsageError
        If the encoder is not a nucleotide encoder of a bundle.
    InputError
        If an input cannot be read, there are too few groups, or sequences of different groups or
        sides of the split are similar.
    RunExistsError
        If the folder exists without `resume` or `force`, or was made with other settings.
    WorkerError
        If not all windows have a vector.
    """
    encoder = find_encoder(training.encoder)
    if encoder.bundle is None or encoder.spec.view != "nucleotide":
        raise UsageError(
            f"{training.encoder}: cannot be trained on windows. Give a nucleotide encoder of a "
            "bundle, such as mini/nucleotide."
        )
    genomes = read_genomes(training.sources, training.excluded)
    require_usable(genomes, _FOLDS)
    require_disjoint(training.sources, training.held_out)
    reporter.stage("comparing groups and both sides of the split")
    held_out = read_genomes(training.held_out, training.excluded)
    refuse_leaks(genomes, held_out, reporter.warn if training.allow_similar else None)
    folder = execution.outdir
    settings = _settings(training, encoder, genomes)
    _refuse_foreign(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with folder_lock(folder / _LOCK, "Wait for it, or choose another output folder."):
        _prepare(folder, settings, execution)
        reporter.stage("drawing windows")
        windows = draw_training_windows(genomes, training.seed)
        windows.write(folder / _WINDOWS)
        features = _features(folder, training.encoder, execution, reporter)
        reporter.stage("training")
        folds = assign_folds(genomes, _FOLDS, training.seed)
        fitted = fit_head(windows, features, folds, training.seed, reporter.stage, reporter.warn)
        return _write_bundle(folder, training, encoder, genomes, folds, fitted)


def _settings(
    training: Training, encoder: NamedEncoder, genomes: Sequence[Genome]
) -> dict[str, Any]:
    return {
        "encoder": encoder.fingerprint(),
        "name": training.name,
        "version": training.version,
        "description": training.description,
        "seed": training.seed,
        "notes": training.notes,
        "virnucpro": __version__,
        "genomes": [
            [one.name, one.kingdom, one.group, one.source, _digest(one.sequences)]
            for one in genomes
        ],
    }


def _digest(sequences: Sequence[bytes]) -> str:
    return hashlib.sha256(b"\n".join(sequences)).hexdigest()


def _refuse_foreign(folder: Path) -> None:
    """Raise RunExistsError if the folder has files, but none of a training."""
    if folder.exists() and any(folder.iterdir()) and not (folder / _SETTINGS).is_file():
        own = {_LOCK}
        if {path.name for path in folder.iterdir()} - own:
            raise RunExistsError(
                f"{folder}: is not empty, and not the folder of a training. Choose another output "
                "folder."
            )


def _prepare(folder: Path, settings: Mapping[str, Any], execution: Execution) -> None:
    """Write the settings, or compare them with those of the training in the folder."""
    path = folder / _SETTINGS
    if path.is_file():
        if execution.force:
            _clear(folder)
        elif not execution.resume:
            raise RunExistsError(
                f"{folder}: already contains a training. Resume it with --resume, replace it with "
                "--force, or choose another output folder."
            )
        elif json.loads(path.read_bytes()) != json.loads(json.dumps(settings)):
            raise RunExistsError(
                f"{folder}: belongs to a training with other sequences or options. Give those of "
                f"{path}, or choose another output folder."
            )
    with write_file(path) as stream:
        stream.write(json.dumps(settings, indent=1).encode() + b"\n")


def _clear(folder: Path) -> None:
    """Delete the files of a training; other files of the folder stay."""
    for name in (_BUNDLE, _BUNDLE_PART, _VECTORS):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in (_WINDOWS, _HELD_OUT):
        (folder / name).unlink(missing_ok=True)


def _features(
    folder: Path, encoder: str, execution: Execution, reporter: Reporter
) -> NDArray[np.float32]:
    job = embed_job(folder / _WINDOWS, encoder=encoder, embeddings="fp32")
    run = replace(execution, outdir=folder / _VECTORS, resume=True, force=False)
    outcome = predict(job, run, reporter)
    if not outcome.complete:
        raise WorkerError(
            f"{run.outdir}: {outcome.rows_missing + outcome.rows_quarantined} windows have no "
            "vector. Rerun the command with --resume."
        )
    with h5py.File(run.outdir / "embeddings.h5") as file:
        features: NDArray[np.float32] = file["embeddings"][:]
    return features


def _write_bundle(
    folder: Path,
    training: Training,
    encoder: NamedEncoder,
    genomes: Sequence[Genome],
    folds: Mapping[str, int],
    fitted: Fitted,
) -> Path:
    bundle = folder / _BUNDLE
    part = folder / _BUNDLE_PART
    for old in (part, bundle):
        if old.exists():
            shutil.rmtree(old)
    part.mkdir()
    for name in encoder.spec.files.values():
        shutil.copyfile(encoder.spec.folder / name, part / name)
    (part / "head.safetensors").write_bytes(save(dict(fitted.tensors)))
    _write_training_set(part / "training_set.tsv", genomes, folds)
    spec, used = encoder.spec, encoder.bundle
    assert used is not None
    provenance = {
        "command": "virnucpro train",
        "seed": training.seed,
        "recipe": fitted.recipe,
        "counts": _counts(genomes),
        "versions": {**fitted.versions, "virnucpro": __version__},
    }
    manifest = Manifest(
        name=training.name,
        version=training.version,
        description=training.description,
        encoders=(
            EncoderEntry(
                spec.name, spec.architecture, spec.view, spec.dim, dict(spec.files), spec.config
            ),
        ),
        head="head.safetensors",
        window=used.window,
        tiling="even",
        genetic_code=used.genetic_code,
        labels=("others", "virus"),
        thresholds={"viral": 0.5, "non_viral": 0.5},
        metrics=fitted.metrics,
        provenance=provenance,
        items="window",
        calibration=fitted.calibration,
        classes=fitted.classes,
    )
    write_card(part / "CARD.md", manifest, training.notes)
    write_manifest(part, manifest)
    _write_held_out(folder / _HELD_OUT, fitted)
    part.rename(bundle)
    return bundle


def _write_held_out(path: Path, fitted: Fitted) -> None:
    """Write the logit of each piece of the cross-validation, by a classifier without its group."""
    lines = ["bases\tkingdom\tgroup\tlogit"]
    for length, pieces in fitted.held_out.items():
        lines += [f"{length}\t{kingdom}\t{group}\t{logit:.6f}" for kingdom, group, logit in pieces]
    with write_file(path) as stream:
        stream.write(("\n".join(lines) + "\n").encode())


def _write_training_set(path: Path, genomes: Sequence[Genome], folds: Mapping[str, int]) -> None:
    lines = ["name\tkingdom\tclass\tgroup\tfold\tbases"]
    lines += [
        f"{one.name}\t{one.kingdom}\t{one.source}\t{one.group}\t{folds[one.group]}\t"
        f"{sum(map(len, one.sequences))}"
        for one in genomes
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _counts(genomes: Sequence[Genome]) -> dict[str, int]:
    groups = by_group(genomes)
    return {
        "genomes_viral": sum(one.viral for one in genomes),
        "genomes_others": sum(not one.viral for one in genomes),
        "groups_viral": sum(kingdom == VIRUS for kingdom, _ in groups),
        "groups_others": sum(kingdom != VIRUS for kingdom, _ in groups),
        "bases": sum(len(sequence) for one in genomes for sequence in one.sequences),
    }
