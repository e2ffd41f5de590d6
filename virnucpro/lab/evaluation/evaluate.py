"""Compute an evaluation: fragments, runs of bundles, tables of other tools, figures."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
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
from virnucpro.errors import FingerprintError, InputError, RunError, RunExistsError, UsageError
from virnucpro.extras import require_extra, versions_of
from virnucpro.folder_lock import folder_lock
from virnucpro.lab.evaluation.answers import Tool, check_names
from virnucpro.lab.evaluation.comparison import LEVEL, Comparison, compare
from virnucpro.lab.evaluation.fragments import WHOLE, Cut, Fragment, cut
from virnucpro.lab.evaluation.labels import CLASS_NAMES
from virnucpro.lab.evaluation.predictions import ToolTable, merged, read_table
from virnucpro.lab.evaluation.request import Evaluation, OtherTool
from virnucpro.lab.evaluation.tables import (
    fasta_bytes,
    figures_of,
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

_SHOWN: Final = 3
_FEW: Final = 10
_TABLE: Final = "evaluation.tsv"
_PAIRED: Final = "paired.tsv"
_RESULTS: Final = "evaluation.json"
_LOCK: Final = "evaluation.lock"
_FRAGMENTS: Final = "fragments"
_LABELS: Final = "fragments.tsv"
_FIGURES: Final = "figures"
_RUNS: Final = "runs"


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
    _require_own(evaluation, execution.outdir, sequences)
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
    require_extra("evaluate", "evaluate")
    reporter = reporter or Reporter()
    jobs = _jobs(evaluation)
    others = {other.name: _table(other) for other in evaluation.others}
    _check_tools(evaluation, jobs)
    sequences = _cut(evaluation, reporter)
    fragments = {length: sequences.fragments(length) for length in sequences.sequences}
    everything = [fragment for members in fragments.values() for fragment in members]
    for name, table in others.items():
        if warning := check_names(f"--predictions {name}", table, everything):
            reporter.warn(warning)
    tables = {name: _by_length(name, table, fragments, reporter) for name, table in others.items()}
    outdir = execution.outdir
    _require_own(evaluation, outdir, sequences, jobs)
    make_folder(outdir)
    advice = "Wait for it, or choose another folder."
    with folder_lock(outdir / _LOCK, advice, held=execution.lock):
        results = outdir / _RESULTS
        outputs = (results, *(outdir / name for name in (_TABLE, _PAIRED, _FIGURES)))
        former = any(path.exists() for path in outputs)
        if former and not (execution.resume or execution.force):
            raise RunExistsError(
                f"{outdir} already contains an evaluation. Add --resume to reuse its runs, --force "
                "to replace it, or choose another folder."
            )
        remove_unfinished(outdir, {results.name, _TABLE, _PAIRED}.__contains__)
        for name in (_FIGURES, _FRAGMENTS):
            remove_unfinished(outdir / name, bool)
        files = _write_fragments(sequences, execution)
        results.unlink(missing_ok=True)  # without this file an evaluation is incomplete
        tools = [
            *(
                Tool(name, evaluation.rule("mean"), _run(name, job, files, execution, reporter))
                for name, job in jobs.items()
            ),
            *(
                Tool(name, evaluation.rule("lowest"), by_length)
                for name, by_length in tables.items()
            ),
        ]
        reporter.stage("computing figures and intervals")
        comparison = compare(
            tools,
            fragments,
            prevalence=evaluation.prevalence,
            n_resamples=evaluation.n_resamples,
            seed=evaluation.seed,
            by_group=any(source.group or source.groups for source in evaluation.sources),
        )
        about = describe(evaluation, jobs, others, sequences, files)
        written = _write(outdir, comparison, fragments, about, evaluation.prevalence)
    return comparison, written


def _require_own(
    evaluation: Evaluation, outdir: Path, sequences: Cut, tools: Collection[str] | None = None
) -> None:
    """Check that the evaluation of `tools` replaces no input, and no file of another program.

    With None for `tools`, only the fragments are written.

    Raises
    ------
    RunError
        If a folder of the evaluation is a symbolic link.
    UsageError
        If an input has the path of an output.
    RunExistsError
        If an output exists, and no evaluation or its fragments began in the folder.
    """
    folders = [outdir / name for name in (_FIGURES, _FRAGMENTS, _RUNS)]
    refuse_links((*folders, *(outdir / _RUNS).glob("*")))
    labels = outdir / _FRAGMENTS / _LABELS
    names = [labels, *(labels.with_name(f"{length}.fa") for length in sequences.sequences)]
    if tools is not None:
        names += [outdir / name for name in (_TABLE, _PAIRED, _RESULTS, _FIGURES, _LOCK)]
        for length in sequences.sequences:
            names += [outdir / _RUNS / f"{tool}-{length}" for tool in tools]
    former = [path for path in labels.parent.glob("*.fa") if path.stem.isdecimal()]
    inputs = [source.path for source in evaluation.sources]
    inputs += [path for other in evaluation.others for path in other.paths]
    inputs += evaluation.tables
    refuse_inputs(inputs, (*names, *former), f"the evaluation in {outdir}")
    if any(path.exists() for path in (outdir / _LOCK, outdir / _RESULTS, labels)):
        return
    for path in names:
        if path.exists():
            raise RunExistsError(
                f"{path} exists, but {outdir} is not the folder of an evaluation. Choose another "
                "output folder."
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


def _table(other: OtherTool) -> ToolTable:
    return merged(
        [
            (path, read_table(path, score_column=other.score_column, threshold=other.threshold))
            for path in other.paths
        ]
    )


def _check_tools(evaluation: Evaluation, jobs: Mapping[str, Job]) -> None:
    if both := [other.name for other in evaluation.others if other.name in jobs]:
        raise UsageError(
            f"--predictions {both[0]}: a bundle has this name; give the table another name"
        )
    if not jobs and not evaluation.others:
        raise UsageError("nothing to evaluate: give a bundle or --predictions NAME=FILE")


def _by_length(
    name: str, table: ToolTable, fragments: Mapping[str, Sequence[Fragment]], reporter: Reporter
) -> dict[str, ToolTable]:
    """Return the table for each length at which it has a row; report missing rows."""
    tables = {}
    for length, members in fragments.items():
        missing = sum(fragment.name not in table.rows for fragment in members)
        if missing == len(members):
            reporter.warn(
                f"--predictions {name}: no row for the fragments of length {length}; the tool is "
                "not evaluated at this length"
            )
            continue
        tables[length] = table
        if missing and not table.only_viral:
            reporter.warn(
                f"--predictions {name}: {missing:,} of {len(members):,} fragments of length "
                f"{length} have no row and count as unanswered"
            )
    if not tables:
        raise InputError(
            f"--predictions {name}: the table has no row for any fragment; run the tool on the "
            "files of --fragments-only, or remove the option"
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
            continue
        if lost := result.groups_without(length):
            shown = ", ".join(f"{key[2]} ({CLASS_NAMES[key[0]]})" for key in lost[:_SHOWN])
            more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
            reporter.warn(f"groups without {what}: {len(lost)}, such as {shown}{more}")
        least = min(_FEW, evaluation.per_group)
        sizes = Counter((fragment.viral, fragment.kingdom) for fragment in result.fragments(length))
        if few := [f"{name} {n}" for (_, name), n in sorted(sizes.items()) if n < least]:
            reporter.warn(
                f"few {what}, which count as much as the other kingdoms of their class: "
                f"{', '.join(few[:_SHOWN])}"
            )
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
        if not path.exists() or path.read_bytes() == content:
            continue
        if not execution.force:
            raise FingerprintError(
                f"{path} has other fragments: the sequences, labels, --lengths, --per-group, "
                "--per-class, --exclude or --seed differ from those of this folder. Use the former "
                "values, choose another folder, or replace the evaluation with --force."
            )
    folder.mkdir(parents=True, exist_ok=True)
    if execution.force:
        for path in folder.glob("*.fa"):
            if path not in contents and path.stem.isdecimal():
                path.unlink()  # of a length that the former evaluation had
    for path in reversed(contents):  # the table first: it shows that the folder is an evaluation
        write_bytes(path, contents[path])
    return list(contents)


def _run(
    name: str, job: Job, files: Sequence[Path], execution: Execution, reporter: Reporter
) -> dict[str, ToolTable]:
    """Predict the fragments of each length with a bundle; return the predictions."""
    tables = {}
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
        tables[path.stem] = read_table(folder.predictions)
    return tables


def _write(
    outdir: Path,
    comparison: Comparison,
    fragments: Mapping[str, Sequence[Fragment]],
    about: Mapping[str, Any],
    prevalence: float,
) -> list[Path]:
    from virnucpro.lab.evaluation.figures import draw_figures  # noqa: PLC0415 - an optional dependency

    paired = outdir / _PAIRED
    drawn = draw_figures(outdir / _FIGURES, comparison, fragments, prevalence)
    write_evaluation(outdir / _TABLE, comparison.rows)
    written = [outdir / _TABLE]
    if comparison.differences:
        write_paired(paired, comparison.differences)
        written.append(paired)
    else:
        paired.unlink(missing_ok=True)
    write_json(outdir / _RESULTS, {**about, **figures_of(comparison)})
    return [*written, outdir / _RESULTS, *drawn]


_FORMAT: Final = "virnucpro evaluation 1"


def describe(
    evaluation: Evaluation,
    jobs: Mapping[str, Job],
    others: Mapping[str, ToolTable],
    sequences: Cut,
    files: Sequence[Path],
) -> dict[str, Any]:
    """Return everything that the figures depend on."""
    tables = {other.name: other for other in evaluation.others}
    return {
        "format": _FORMAT,
        "settings": {
            "lengths": list(evaluation.lengths),
            "per_group": evaluation.per_group,
            "per_class": evaluation.per_class,
            "seed": evaluation.seed,
            "prevalence": evaluation.prevalence,
            "resamples": evaluation.n_resamples,
            "confidence": LEVEL,
            "unanswered": evaluation.unanswered,
            "precision": evaluation.precision,
            "weights": "kingdoms of a class equal, groups of a kingdom equal, fragments equal",
        },
        "inputs": dict(evaluation.origin),
        "fragments": {
            path.stem: {
                "file": str(path),
                "sha256": file_digest(path).sha256,
                "fragments": len(sequences.sequences[path.stem]),
                "skipped": dict(sequences.skipped[path.stem]),
                "groups_without": [list(key[1:]) for key in sequences.groups_without(path.stem)],
            }
            for path in files[:-1]
        },
        "tools": {
            **{
                name: {
                    "kind": "bundle",
                    "bundle": job.model_name,
                    "fingerprint": job.model,
                    "thresholds": dict(job.classifier["thresholds"]),
                    "unanswered": evaluation.rule("mean"),
                }
                for name, job in jobs.items()
            },
            **{
                name: {
                    "kind": table.format,
                    "files": [
                        {"path": str(path), "sha256": file_digest(path).sha256}
                        for path in tables[name].paths
                    ],
                    "name_column": table.name_column,
                    "score": table.score_column,
                    "viral_if": table.called_by,
                    "unanswered": evaluation.rule("lowest"),
                }
                for name, table in others.items()
            },
        },
        "versions": versions_of("numpy", "matplotlib", "torch"),
    }
