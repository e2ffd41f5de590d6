"""Call the records of a run by another rule, from the scores in its segments."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace

from virnucpro.classify.call_options import CallOptions
from virnucpro.errors import UsageError
from virnucpro.pipeline.jobs.job import Reporter
from virnucpro.pipeline.run.outputs import call_run, survey_segments, write_gaps, write_tables
from virnucpro.pipeline.run.session import reopen_session
from virnucpro.report.tables import CALL_NAMES, TABLE_VERSION
from virnucpro.run_dir import RunDirectory
from virnucpro.store.schema import RowState

__all__ = ["rescore"]


def rescore(
    run: RunDirectory, calls: CallOptions, reporter: Reporter
) -> tuple[Mapping[tuple[str, str], int], bool]:
    """Write the tables of a run by the rule `calls`; run.json records the rule.

    Returns
    -------
    changes
        Number of records for each pair of calls: by the earlier rule of the run, and by `calls`.
    complete
        Whether every row of the run has a result.

    Raises
    ------
    UsageError
        If the run is not a run of predict, or the rule needs a calibration that its bundle lacks.
    NotARunError, IndexFormatError, RunLockedError
        If the folder is not a run, is damaged, or another process works in it.
    OSError
        If a table cannot be written.
    """
    with reopen_session(run) as session:
        if session.manifest.command != "predict":
            raise UsageError(f"{run.root}: only runs of predict have calls; this is an embed run")
        coverage = survey_segments(session, reporter)
        _, _, before = call_run(session, coverage)
        manifest = replace(session.manifest, calls=asdict(calls), table_version=TABLE_VERSION)
        _, _, now = call_run(replace(session, manifest=manifest), coverage)
        session.update(manifest)
        reporter.stage("writing tables")
        records, _ = write_tables(run, session, coverage)
        write_gaps(run, session, coverage, records)
    pairs = zip(before.call.tolist(), now.call.tolist(), strict=True)
    changes = Counter((CALL_NAMES[old], CALL_NAMES[new]) for old, new in pairs)
    return changes, bool((coverage.row_state == RowState.DONE).all())
