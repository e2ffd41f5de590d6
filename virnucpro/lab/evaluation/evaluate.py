"""Compute an evaluation: fragments, runs of bundles, tables of other tools, figures."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from virnucpro.bundles.checksums import file_digest
from virnucpro.classifier.call_options import CallOptions
from virnucpro.compute.predict import predict
from virnucpro.durable import (
    make_folder,
    refuse_inputs,
    refuse_links,
    remove_unfinished,
    require_regular,
    write_bytes,
)
from virnucpro.errors import FingerprintError, RunError, RunExistsError, UsageError
from virnucpro.extras import versions_of
from virnucpro.folder_lock import folder_lock
from virnucpro.lab.evaluation.comparison import LEVEL, Comparison, compare
from virnucpro.lab.evaluation.fragments import WHOLE, Cut, Fragment, cut
from virnucpro.lab.evaluation.predictions import (
    Predictions,
    Tool,
    check_names,
    read_predictions,
    read_run,
)
from virnucpro.lab.evaluation.request import Evaluation
from virnucpro.lab.evaluation.tables import (
    fasta_bytes,
    fragments_table,
    write_evaluation,
    write_json,
    write_paired,
)
from virnucpro.run.execution import Execution
from virnucpro.run.job import Job
from virnucpro.run.predict_job import predict_job
from virnucpro.run.reporter import Reporter
from virnucpro.run_dir import RunDirectory

_TABLE: Final = "evaluation.tsv"
_PAIRED: Final = "paired.tsv"
_RESULTS: Final = "evaluation.json"
_LOCK: Final = "evaluation.lock"
_FRAGMENTS: Final = "fragments"
_LABELS: Final = "fragments.tsv"
_RUNS: Final = "runs"
_FILES: Final = (_RESULTS, _TABLE, _PAIRED)
_FORMAT: Final = "virnucpro evaluation 2"


def write_fragments(
    evaluation: Evaluation, execution: Execution, reporter: Reporter | None = None
) -> list[Path]:
    """Cut the fragments and write them to ``fragments/`` in the output folder.

    Returns
    -------
    A FASTA file for each length, and the table of labels.

    Raises
    ------
    UsageError, InputError
        If the sequences or labels cannot be used.
    FingerprintError
        If the folder has other fragments and `execution` has no ``force``.
    """
    sequences = _cut(evaluation, reporter or Reporter())
    _check_folder(evaluation, execution.outdir)
    return _write_fragments(sequences, execution)


def evaluate(
    evaluation: Evaluation, execution: Execution, reporter: Reporter | None = None
) -> tuple[Comparison, list[Path]]:
    """Run the bundles, read the other tables, and write all figures; return them and the files.

    Parameters
    ----------
    execution
        Options of the runs; its `outdir` is the folder of the evaluation. With `resume`, finished
        runs are reused; with `force`, everything is computed anew.

    Raises
    ------
    UsageError, InputError, BundleError, RunError, DeviceError, WorkerError
        If an input or the output folder cannot be used, or a run has missing results.
    """
    reporter, outdir = reporter or Reporter(), execution.outdir
    jobs = _jobs(evaluation)
    if not jobs and not evaluation.tables:
        raise UsageError("nothing to evaluate: give a bundle or --predictions NAME=FILE")
    if both := jobs.keys() & evaluation.tables:
        name = min(both)
        raise UsageError(f"--predictions {name}: a bundle has this name; give the table another")
    tables = {name: read_predictions(path) for name, path in evaluation.tables.items()}
    sequences = _cut(evaluation, reporter)
    fragments = {length: sequences.fragments(length) for length in sequences.sequences}
    others = [
        Tool(name, lowest=True, predictions=_by_length(name, table, fragments, reporter))
        for name, table in tables.items()
    ]
    _check_folder(evaluation, outdir)
    make_folder(outdir)
    advice = "Wait for it, or choose another folder."
    with folder_lock(outdir / _LOCK, advice, held=execution.lock):
        results = outdir / _RESULTS
        if results.exists() and not (execution.resume or execution.force):
            raise RunExistsError(
                f"{outdir} already contains an evaluation. Add --resume to reuse its runs, --force "
                "to replace it, or choose another folder."
            )
        remove_unfinished(outdir, _FILES.__contains__)
        remove_unfinished(outdir / _FRAGMENTS, bool)
        files = _write_fragments(sequences, execution)
        results.unlink(missing_ok=True)  # without this file an evaluation is incomplete
        tools = [
            Tool(name, lowest=False, predictions=_run(name, job, files, execution, reporter))
            for name, job in jobs.items()
        ]
        reporter.stage("computing figures and intervals")
        comparison = compare(
            [*tools, *others],
            fragments,
            prevalence=evaluation.prevalence,
            n_resamples=evaluation.n_resamples,
            seed=evaluation.seed,
            by_group=any(source.group for source in evaluation.sources),
        )
        return comparison, _write(outdir, comparison, describe(evaluation, jobs, sequences))


def _check_folder(evaluation: Evaluation, outdir: Path) -> None:
    """Check that the evaluation replaces no input, and no file of another program.

    Raises
    ------
    RunError
        If a folder of the evaluation is a symbolic link.
    UsageError
        If an input has the path of an output.
    RunExistsError
        If the folder has files, but none of an evaluation.
    """
    folders = [outdir / name for name in (_FRAGMENTS, _RUNS)]
    refuse_links((*folders, *(outdir / _RUNS).glob("*")))
    inputs = [source.path for source in evaluation.sources]
    inputs += [*evaluation.tables.values(), *evaluation.inputs.values()]
    places = [*folders, *(outdir / name for name in (*_FILES, _LOCK))]
    refuse_inputs(inputs, places, f"the evaluation in {outdir}")
    names = {path.name for path in outdir.iterdir()} if outdir.exists() else set()
    if names - {_LOCK} and not (outdir / _FRAGMENTS / _LABELS).exists():
        raise RunExistsError(
            f"{outdir}: is not empty, and not the folder of an evaluation. Choose another output "
            "folder."
        )


def _jobs(evaluation: Evaluation) -> dict[str, Job]:
    """Return the job of each bundle without inputs; bundles with one name get a suffix."""
    jobs: dict[str, Job] = {}
    for given in evaluation.bundles:
        job = predict_job((), bundle=given, precision=evaluation.precision, embeddings="none")
        if job.classifier["calibration"]:
            job = replace(job, calls=CallOptions(prevalence=evaluation.prevalence))
        if any(job.model == other.model for other in jobs.values()):
            raise UsageError(f"--bundle {given}: this bundle is given twice; remove one of them")
        name = job.model_name
        jobs[f"{name}-{job.model[:8]}" if name in jobs else name] = job
    return jobs


def _by_length(
    name: str,
    table: Predictions,
    fragments: Mapping[str, Sequence[Fragment]],
    reporter: Reporter,
) -> dict[str, Predictions]:
    """Return the table for each length at which it has a row; report missing and other rows."""
    source = f"--predictions {name}"
    everything = [fragment for members in fragments.values() for fragment in members]
    if warning := check_names(source, table, everything):
        reporter.warn(warning)
    tables = {}
    for length, members in fragments.items():
        missing = sum(fragment.name not in table for fragment in members)
        if missing < len(members):
            tables[length] = table
        if missing:
            reporter.warn(
                f"{source}: {missing:,} of {len(members):,} fragments of length {length} have no "
                "row and count as unanswered; without any row, the tool is not evaluated"
            )
    return tables


def _cut(evaluation: Evaluation, reporter: Reporter) -> Cut:
    reporter.stage("cutting fragments")
    result = cut(
        evaluation.sources,
        evaluation.lengths,
        per_group=evaluation.per_group,
        per_class=evaluation.per_class,
        seed=evaluation.seed,
        excluded=evaluation.excluded,
    )
    for length in evaluation.lengths:
        what = "whole records" if length == WHOLE else f"fragments of {int(length):,} bases"
        if length not in result.sequences:
            reporter.warn(f"no figures for {what}: one of the classes has none")
        elif lost := result.groups_without(length):
            reporter.warn(f"groups without {what}: {len(lost)}, such as {lost[0][2]}")
    if not result.sequences:
        raise UsageError(
            "no length has fragments of both classes: give longer sequences or smaller --lengths"
        )
    return result


def _write_fragments(sequences: Cut, execution: Execution) -> list[Path]:
    folder = execution.outdir / _FRAGMENTS
    contents = {
        folder / f"{length}.fa": fasta_bytes(members)
        for length, members in sequences.sequences.items()
    }
    everything = [sequence for members in sequences.sequences.values() for sequence, _ in members]
    contents[folder / _LABELS] = fragments_table(everything)
    require_regular(contents)
    for path, content in contents.items():
        if path.exists() and not execution.force and path.read_bytes() != content:
            raise FingerprintError(
                f"{path} has other fragments: the sequences, labels, --lengths, --per-group, "
                "--per-class, --exclude or --seed differ from those of this folder. Use the former "
                "values, choose another folder, or replace the evaluation with --force."
            )
    folder.mkdir(parents=True, exist_ok=True)
    for path in reversed(contents):  # the table first: it shows that the folder is an evaluation
        write_bytes(path, contents[path])
    return list(contents)


def _run(
    name: str, job: Job, files: Sequence[Path], execution: Execution, reporter: Reporter
) -> dict[str, Predictions]:
    """Predict the fragments of each length with a bundle; return the predictions."""
    tables: dict[str, Predictions] = {}
    for path in files[:-1]:
        folder = RunDirectory(execution.outdir / _RUNS / f"{name}-{path.stem}")
        reporter.stage(f"predicting {path} with {name}")
        outcome = predict(
            replace(job, inputs=(str(path),)),
            replace(execution, outdir=folder.root, report=False),
            reporter,
        )
        if outcome.rows_missing:
            raise RunError(
                f"{folder.root}: {outcome.records.get('missing', 0):,} fragments have no result "
                "yet; rerun the command with --resume"
            )
        tables[path.stem] = read_run(folder.predictions)
    return tables


def _write(outdir: Path, comparison: Comparison, about: Mapping[str, Any]) -> list[Path]:
    written = [outdir / _TABLE]
    write_evaluation(outdir / _TABLE, comparison.rows)
    if comparison.differences:
        written.append(outdir / _PAIRED)
        write_paired(outdir / _PAIRED, comparison.differences)
    else:
        (outdir / _PAIRED).unlink(missing_ok=True)
    rows = [row._asdict() for row in comparison.rows]
    differences = [difference._asdict() for difference in comparison.differences]
    write_json(outdir / _RESULTS, {**about, "rows": rows, "differences": differences})
    return [*written, outdir / _RESULTS]


def describe(evaluation: Evaluation, jobs: Mapping[str, Job], sequences: Cut) -> dict[str, Any]:
    """Return everything that the figures depend on."""
    files = {**evaluation.inputs, **evaluation.tables}
    return {
        "format": _FORMAT,
        "settings": evaluation.settings | {"confidence": LEVEL},
        "inputs": {
            name: {"path": str(path), "sha256": file_digest(path).sha256}
            for name, path in files.items()
        },
        "fragments": {
            length: {
                "fragments": len(members),
                "groups_without": [list(key[1:]) for key in sequences.groups_without(length)],
            }
            for length, members in sequences.sequences.items()
        },
        "bundles": {
            name: {
                "fingerprint": job.model,
                "thresholds": dict(job.classifier["thresholds"]),
            }
            for name, job in jobs.items()
        },
        "versions": versions_of("numpy", "torch"),
    }
