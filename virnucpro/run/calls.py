"""Scores and calls of a run, from its segments."""

from virnucpro.classifier.calibration import read_calibration
from virnucpro.classifier.call_options import CallOptions
from virnucpro.classifier.consensus import Thresholds
from virnucpro.classifier.decision import call_records
from virnucpro.classifier.run_scores import run_windows, score_run
from virnucpro.run.reporter import Reporter
from virnucpro.run.run import Run
from virnucpro.store.coverage import Coverage, survey
from virnucpro.tables.source import RunScores


def survey_segments(run: Run, reporter: Reporter) -> Coverage:
    """Read and verify all segments of a run; return which rows are done, quarantined or missing.

    Each invalid segment is reported as a warning, and ignored.
    """
    if run.paths.has_segments():
        reporter.stage("verifying stored results")
    coverage = survey(run.paths, run.bounds, run.manifest.fingerprint)
    warn_of_rejected(coverage, reporter)
    return coverage


def warn_of_rejected(coverage: Coverage, reporter: Reporter) -> None:
    """Report each file that is named like a segment and cannot be used."""
    for rejected in coverage.rejected:
        reporter.warn(f"file not used: {rejected.reason}")


def call_run(run: Run, coverage: Coverage) -> RunScores:
    """Return scores and calls of all windows and records, by the run's rule.

    Raises
    ------
    BundleError
        If a field of the calibration in run.json is missing or invalid.
    """
    index, manifest = run.index, run.manifest
    content = manifest.calibration
    calibration = read_calibration(content, run.paths.run_json) if content else None
    windows = run_windows(index, coverage)
    records = score_run(index, windows, coverage, len(manifest.classes))
    calls = call_records(
        records,
        Thresholds(**manifest.thresholds),
        calibration,
        CallOptions(**manifest.calls),
        run.quality.get() if calibration else None,
        other_window=manifest.has_other_window,
    )
    return RunScores(
        index,
        coverage,
        windows,
        records,
        calls,
        calibration=calibration,
        classes=manifest.classes,
        viral_classes=manifest.viral_classes,
        labels=manifest.labels,
    )
