"""Train a classifier on labelled sequences; its windows are encoded by the same pipeline."""

import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from virnucpro import __version__
from virnucpro.arrays import BoolArray
from virnucpro.compute.predict import predict
from virnucpro.durable import (
    make_folder,
    refuse_inputs,
    refuse_links,
    remove_unfinished,
    write_bytes,
)
from virnucpro.errors import FingerprintError, RunExistsError, WorkerError
from virnucpro.folder_lock import folder_lock
from virnucpro.lab.training.draw import LANGUAGE_MODEL_SHARE
from virnucpro.lab.training.fit import Fitted, fit_head
from virnucpro.lab.training.genomes import (
    Genome,
    assign_folds,
    read_genomes,
    refuse_leaks,
    require_disjoint,
    require_usable,
)
from virnucpro.lab.training.model import Model, Training, choose_model
from virnucpro.lab.training.new_bundle import write_bundle
from virnucpro.lab.training.windows_file import draw_training_windows
from virnucpro.run.embed_job import vectors_job
from virnucpro.run.execution import Execution
from virnucpro.run.options import EmbedOptions
from virnucpro.run.reporter import Reporter
from virnucpro.run_dir import RunDirectory, is_run
from virnucpro.sequences.index import SequenceIndex

_FOLDS = 5
_SETTINGS = "train.json"
_WINDOWS = "windows.fa"
_VECTORS = "vectors"
_BUNDLE = "bundle"
_BUNDLE_PART = "bundle.part"
_FOLD_FILES = "folds"
_LOCK = "train.lock"
_HELD_OUT = "cross_validation.tsv"
_FOLDERS = (_BUNDLE, _BUNDLE_PART, _VECTORS, _FOLD_FILES)
_FILES = (_WINDOWS, _HELD_OUT)
_FOLD = re.compile(r"(records-)?(fold|relatives)-\d+\.npz")


def train_bundle(training: Training, execution: Execution, reporter: Reporter) -> Path:
    """Train a classifier and its calibration; return the folder of the new bundle.

    The folder ``execution.outdir`` has the windows, the run that encodes them, the finished folds
    of the cross-validation, and the bundle. A resume computes missing vectors and
    folds; the same inputs and options give the same bundle.

    Raises
    ------
    UsageError
        If the encoders cannot be used, see `choose_model`; if an input would be replaced.
    InputError
        If an input cannot be read, there are too few groups, a class has no window with an item,
        or sequences of different groups or sides of the split are similar.
    RunExistsError
        If the folder exists without `resume` or `force`, or was made with other settings.
    WorkerError
        If not all windows have a vector.
    """
    folder = execution.outdir
    model = choose_model(training.encoders, training.items, training.window)
    _check_folder(folder, training, model)
    share = 1.0 if model.has_records else LANGUAGE_MODEL_SHARE
    training = replace(training, crops=replace(training.crops, share=share))
    genomes = read_genomes(training.sources, training.excluded)
    require_usable(genomes, _FOLDS)
    require_disjoint(training.sources, training.held_out)
    reporter.stage("comparing groups and both sides of the split")
    held_out = read_genomes(training.held_out, training.excluded)
    refuse_leaks(genomes, held_out, reporter.warn if training.allow_similar else None)
    settings = _settings(training, model, genomes)
    make_folder(folder)
    advice = "Wait for it, or choose another output folder."
    with folder_lock(folder / _LOCK, advice, held=execution.lock):
        _prepare(folder, settings, execution)
        genomes = assign_folds(genomes, _FOLDS, training.seed)
        reporter.stage("drawing windows")
        windows = draw_training_windows(
            genomes, training.seed, training.crops, model.window, errors=settings["records"]
        )
        windows.write(folder / _WINDOWS)
        gc, windows = windows.gc_range(), windows.without_bases()
        has_item = _encode(folder, model, execution, reporter)
        windows = windows.select(has_item)
        reporter.stage("training")
        seed, network, kept = training.seed, training.network, folder / _FOLD_FILES
        records = genomes if settings["records"] else ()
        with h5py.File(folder / _VECTORS / "embeddings.h5") as file:
            features = file["embeddings"]
            fitted = fit_head(windows, features, gc, seed, network, reporter, kept, records)
        bundle, part = folder / _BUNDLE, folder / _BUNDLE_PART
        _remove_bundles(folder)
        part.mkdir()
        write_bundle(part, training, model, genomes, fitted)
        _write_held_out(folder / _HELD_OUT, fitted)
        part.rename(bundle)
    return bundle


def _settings(training: Training, model: Model, genomes: Sequence[Genome]) -> dict[str, Any]:
    return {
        "encoders": [encoder.fingerprint() for encoder in model.encoders],
        "items": model.items,
        "window": model.window,
        "genetic_code": model.genetic_code,
        "crops": asdict(training.crops),
        "name": training.name,
        "version": training.version,
        "description": training.description,
        "seed": training.seed,
        **asdict(training.network),
        "notes": training.notes,
        "records": training.records and model.has_records,
        "virnucpro": __version__,
        "genomes": [
            [genome.name, genome.kingdom, genome.group, genome.source, _digest(genome.sequences)]
            for genome in genomes
        ],
    }


def _digest(sequences: Sequence[bytes]) -> str:
    return hashlib.sha256(b"\n".join(sequences)).hexdigest()


def _check_folder(folder: Path, training: Training, model: Model) -> None:
    """Check that the training replaces and deletes no input, and no file of another program.

    Raises
    ------
    UsageError
        If an input has the path of a file of the training, or is in a folder of it.
    RunExistsError
        If the folder has files, but none of a training.
    RunError
        If a folder of the training is a symbolic link, or a file of its vectors a named pipe.
    """
    specs = [encoder.spec for encoder in model.encoders]
    inputs = [spec.file(role) for spec in specs for role in spec.files]
    inputs += [source.path for source in (*training.sources, *training.held_out)]
    inputs += training.tables
    places = [folder / name for name in (*_FOLDERS, *_FILES, _SETTINGS, _LOCK)]
    refuse_inputs(inputs, places, f"the training in {folder}")
    refuse_links(folder / name for name in _FOLDERS)
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if names - {_LOCK} and _SETTINGS not in names:
        raise RunExistsError(
            f"{folder}: is not empty, and not the folder of a training. Choose another output "
            "folder."
        )
    RunDirectory(folder / _VECTORS).require_regular_files()


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
        elif others := _differences(path, settings):
            raise RunExistsError(
                f"{folder}: belongs to a training with other sequences or options "
                f"({', '.join(others)}). Give those of {path}, or choose another output folder."
            )
    remove_unfinished(folder, {_SETTINGS, *_FILES}.__contains__)
    remove_unfinished(folder / _FOLD_FILES, _FOLD.fullmatch)
    write_bytes(path, json.dumps(settings, indent=1).encode() + b"\n")


def _differences(path: Path, settings: Mapping[str, Any]) -> list[str]:
    """Return the names of the settings that differ from those of a file."""
    try:
        former = dict(json.loads(path.read_bytes()))
    except (ValueError, TypeError, RecursionError):
        raise RunExistsError(
            f"{path}: is damaged. Start anew with --force, or choose another output folder."
        ) from None
    given = json.loads(json.dumps(settings))
    return [name for name in former | given if former.get(name) != given.get(name)]


def _remove_bundles(folder: Path) -> None:
    """Delete an unfinished bundle and the bundle of a training, which is renamed before."""
    for bundle in (folder / _BUNDLE_PART, folder / _BUNDLE):
        if bundle.exists():
            shutil.rmtree(bundle.rename(folder / _BUNDLE_PART))


def _clear(folder: Path) -> None:
    """Delete the files of a training but the run of its vectors, which `_features` replaces.

    Other files of the folder stay.
    """
    _remove_bundles(folder)
    vectors = RunDirectory(folder / _VECTORS)
    if vectors.root.exists() and not is_run(vectors.root):  # damaged: it cannot be replaced
        vectors.remove_unfinished()  # first: they would keep their folders
        vectors.clear()
        vectors.lock.unlink(missing_ok=True)
    folds = [path for path in (folder / _FOLD_FILES).glob("*.npz") if _FOLD.fullmatch(path.name)]
    for path in (*folds, *(folder / name for name in _FILES)):
        path.unlink(missing_ok=True)


def _encode(folder: Path, model: Model, execution: Execution, reporter: Reporter) -> BoolArray:
    """Write the vectors of items; return which windows have one, ``(n,)``."""
    names = ",".join(encoder.name for encoder in model.encoders)
    options = EmbedOptions(names, precision="fp32", embeddings="fp32")
    job = vectors_job(folder / _WINDOWS, model.encoders, model.index, options)
    run = replace(execution, outdir=folder / _VECTORS, resume=not execution.force)
    try:
        outcome = predict(job, run, reporter)
    except FingerprintError:  # of a training that was killed when it began to replace another one
        outcome = predict(job, replace(run, resume=False, force=True), reporter)
    if not outcome.complete:
        quarantined = outcome.rows_quarantined
        advice = (
            "The reasons are in quarantine.tsv; for windows that are too long for the encoder, "
            "give shorter --lengths and --window."
            if quarantined
            else "Rerun the command with --resume."
        )
        raise WorkerError(
            f"{run.outdir}: {outcome.rows_missing + quarantined} windows have no vector. {advice}"
        )
    index = SequenceIndex.open(RunDirectory(run.outdir).index)
    has_item: BoolArray = np.diff(index.window_first_item) > 0
    return has_item


def _write_held_out(path: Path, fitted: Fitted) -> None:
    """Write logit and log odds of each piece, by a classifier and calibration without its group.

    The last column has its log odds by a classifier without its near relatives.
    """
    lines = ["bases\tkingdom\tgroup\tclass\tlogit\tlog_odds\trelatives"]
    for length, pieces in fitted.held_out.items():
        lines += [
            f"{length}\t{kingdom}\t{group}\t{source}\t{logit:.6f}\t{odds:.6f}\t{near:.6f}"
            for kingdom, group, source, logit, odds, near in pieces
        ]
    write_bytes(path, ("\n".join(lines) + "\n").encode())
