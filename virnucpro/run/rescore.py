"""Call the records of a run by another rule, from the scores in its segments."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace

from virnucpro.arrays import slices
from virnucpro.classifier.call_options import CallOptions
from virnucpro.errors import UsageError
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
from virnucpro.run.run import reopened
from virnucpro.run_dir import RunDirectory
from virnucpro.store.schema import RowState
from virnucpro.tables.columns import CALL_NAMES


def rescore(
    paths: RunDirectory, calls: CallOptions, reporter: Reporter, *, lock: bool = True
) -> tuple[Mapping[tuple[str, str], int], bool]:
    """Write the tables of a run by the rule `calls`; what it does not give is as before.

    Returns
    -------
    changes
        Number of records for each pair of calls: by the former rule, and by `calls`.
    complete
        Whether every row of the run has a result.

    Raises
    ------
    UsageError
        If the run is not a run of predict, or the rule needs a calibration that the bundle lacks.
    NotARunError, IndexFormatError, RunLockedError
        If the folder is not a run, is damaged, or another process works in it.
    OSError
        If a table cannot be written.
    """
    with reopened(paths, lock=lock) as run:
        if run.manifest.command != "predict":
            raise UsageError(f"{paths.root}: only runs of predict have calls; this is an embed run")
        coverage = survey_segments(run, reporter)
        former = call_run(run, coverage).calls.call
        had_report = paths.report.exists() or not run.manifest.tables_complete
        rule = calls.after(run.manifest.calls)
        manifest = replace(run.manifest, calls=asdict(rule), tables_complete=False)
        scores = call_run(replace(run, manifest=manifest), coverage)
        run.update(manifest)
        kept = "" if rule == calls.after({}) else " (the rest as before)"
        reporter.stage(f"writing tables by the rule {rule.text}{kept}")
        write_tables(paths, manifest, scores)
        write_gaps(paths, scores)
        run.update(with_results(run, scores, outcome_of(run, scores, Reporter())))
        renew_report(run, reporter, scores, wanted=had_report)
    if expected := scores.calls.expectation:
        reporter.stage(expected.text)
        if expected.warning:
            reporter.warn(expected.warning)
    changes = Counter[tuple[str, str]]()
    for part in slices(run.index.n_records):
        pairs = zip(former[part].tolist(), scores.calls.call[part].tolist(), strict=True)
        changes.update((CALL_NAMES[old], CALL_NAMES[new]) for old, new in pairs)
    return changes, bool((coverage.row_state == RowState.DONE).all())
