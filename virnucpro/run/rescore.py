"""Call the records of a run by another rule or classifier, from its segments."""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from virnucpro.arrays import AnyArray, large_array, slices
from virnucpro.bundles.bundle import open_bundle
from virnucpro.bundles.manifest import Bundle
from virnucpro.classifier.call_options import CallOptions
from virnucpro.classifier.head import load_head
from virnucpro.errors import BundleError, StoreError, UsageError
from virnucpro.report.reading.records import read_records
from virnucpro.run.job import classifier_facts
from virnucpro.run.outputs import (
    call_run,
    outcome_of,
    survey_segments,
    with_results,
    write_gaps,
    write_tables,
)
from virnucpro.run.report import renew_report
from virnucpro.run.reporter import Reporter
from virnucpro.run.run import Run, reopened
from virnucpro.run_dir import RunDirectory
from virnucpro.store.coverage import Coverage
from virnucpro.store.schema import RowState
from virnucpro.store.segment import read_segment
from virnucpro.tables.columns import CALL_NAMES, Predictions
from virnucpro.tables.read import StoredTable


def rescore(
    paths: RunDirectory,
    calls: CallOptions,
    reporter: Reporter,
    other: tuple[str, Path] | None = None,
    *,
    lock: bool = True,
) -> tuple[Mapping[tuple[str, str], int], bool]:
    """Write the tables of a run by the rule `calls`; what it does not give is as before.

    `other` is another classifier for the stored vectors: name or folder of a bundle with the
    encoders and the record head of the run, and a folder for the tables; the run stays as it is.
    Without it, the tables of the run are replaced, and run.json records the rule.

    Returns
    -------
    changes
        Number of records for each pair of calls: in the tables before, and by `calls` and `other`.
    complete
        Whether every row of the run has a result.

    Raises
    ------
    UsageError
        If the run is not a run of predict, the rule needs a calibration that the bundle lacks, or
        the other bundle has other encoders, items or another record head.
    StoreError
        If the run has no stored vectors for the other classifier.
    NotARunError, IndexFormatError, RunLockedError
        If the folder is not a run, is damaged, or another process works in it.
    OSError
        If a table cannot be written.
    """
    with reopened(paths, lock=lock) as run:
        if run.manifest.command != "predict":
            raise UsageError(f"{paths.root}: only runs of predict have calls; this is an embed run")
        coverage = survey_segments(run, reporter)
        before = _calls_before(run, coverage)
        rule = calls.after(run.manifest.calls)
        manifest = replace(run.manifest, calls=asdict(rule), tables_complete=False)
        changed, target = replace(run, manifest=manifest), paths
        if other is not None:
            name, outdir = other
            if outdir.exists() and any(outdir.iterdir()):
                raise UsageError(f"{outdir}: is not empty; choose another output folder")
            changed, coverage = _scored_by(changed, coverage, name, reporter)
            target = RunDirectory(outdir)
        now = call_run(changed, coverage)
        had_report = paths.report.exists() or not run.manifest.tables_complete
        if other is None:
            run.update(manifest)
        else:
            target.root.mkdir(parents=True, exist_ok=True)
        kept = "" if rule == calls.after({}) else " (the rest as before)"
        reporter.stage(f"writing tables by the rule {rule.text}{kept}")
        write_tables(target, changed.manifest, now)
        write_gaps(target, now)
        if other is None:
            run.update(with_results(run, now, outcome_of(run, now, Reporter())))
            renew_report(run, reporter, now, wanted=had_report)
    if expected := now.calls.expectation:
        reporter.stage(expected.text)
        if expected.warning:
            reporter.warn(expected.warning)
    changes = Counter[tuple[str, str]]()
    for part in slices(run.index.n_records):
        pairs = zip(before[part].tolist(), now.calls.call[part].tolist(), strict=True)
        changes.update((CALL_NAMES[old], CALL_NAMES[new]) for old, new in pairs)
    return changes, bool((coverage.row_state == RowState.DONE).all())


def _calls_before(run: Run, coverage: Coverage) -> AnyArray:
    """Return the number of the call of each record in predictions.tsv, ``(n,)``.

    If the run has no such table, they are those by its rule.
    """
    if run.manifest.tables_complete:
        with suppress(StoreError):
            table = read_records(StoredTable(Predictions, run.paths.predictions))
            if len(table) == run.index.n_records:
                return table.words["call"].codes
    return call_run(run, coverage).calls.call


def _scored_by(run: Run, coverage: Coverage, name: str, reporter: Reporter) -> tuple[Run, Coverage]:
    """Return run and coverage with the classifier, calibration and scores of another bundle."""
    bundle = open_bundle(name)
    _require_same_rows(run, bundle)
    if bundle.head is None:
        raise UsageError(f"{name}: has no classifier; give a bundle with a classifier")
    if not run.stores_vectors:
        raise StoreError(
            f"{run.paths.root}: has no stored vectors, because it was made without --embeddings. "
            f"Predict the sequences again with -b {name}."
        )
    reporter.stage(f"scoring stored vectors with {bundle.name}")
    head = load_head(bundle.head)
    own, after = coverage.scores, 2 + len(run.manifest.classes)
    scores = large_array((len(own), head.n_scores + own.shape[1] - after), np.float32)
    scores[:] = np.nan
    scores[:, head.n_scores :] = own[:, after:]
    for path in coverage.done.values():
        segment = read_segment(path)
        assert segment.embeddings is not None
        found = head.scores(segment.embeddings)
        found[segment.state != RowState.DONE] = np.nan
        scores[segment.rows, : head.n_scores] = found
    for part in slices(run.index.n_rows):
        others = run.index.without_vector(np.arange(part.start, part.stop))
        kept = part.start + np.flatnonzero(others)
        if tuple(run.manifest.classes) == bundle.classes:
            scores[kept] = own[kept]
        else:
            scores[kept, 2 : head.n_scores] = 0
            scores[kept, :2] = own[kept, :2]
    manifest = replace(run.manifest, **classifier_facts(bundle))
    return replace(run, manifest=manifest), replace(coverage, scores=scores)


def _require_same_rows(run: Run, bundle: Bundle) -> None:
    """Raise UsageError unless the rows of the run, and what is stored of them, fit `bundle`.

    The run's bundle is opened, and must have the same encoders, items and record head.
    """
    parameters = run.manifest.parameters
    name = str(parameters["bundle"])
    advice = f"Predict the sequences again with -b {bundle.name}."
    try:
        own = open_bundle(name)
    except (BundleError, UsageError) as error:
        raise UsageError(
            f"{run.paths.root}: the bundle {name!r} of the run cannot be opened, so that the "
            f"bundles cannot be compared ({error}). {advice}"
        ) from error
    if own.fingerprint != parameters["bundle_fingerprint"]:
        raise UsageError(
            f"{run.paths.root}: the bundle {name!r} has changed since the run. {advice}"
        )
    for what, of_run, given in (
        ("other encoders", own.encoder_contents, bundle.encoder_contents),
        ("other items", own.items, bundle.items),
        ("another record head", _record_facts(own), _record_facts(bundle)),
    ):
        if of_run != given:
            raise UsageError(
                f"{bundle.name}: has {what} than the run's {name}, so that stored results do not "
                f"fit. {advice}"
            )


def _record_facts(bundle: Bundle) -> tuple[str, int | None] | None:
    """Return what the scores of pieces depend on; they have no stored vectors."""
    return None if bundle.record is None else (bundle.record.fingerprint, bundle.piece)
