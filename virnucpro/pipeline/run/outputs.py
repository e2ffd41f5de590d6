"""Write the outputs of a run (tables, embeddings.h5) from its valid segments."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from virnucpro.classifier.calibration import Calibration, read_calibration
from virnucpro.classifier.call_options import CallOptions
from virnucpro.classifier.consensus import (
    Call,
    RecordScores,
    Thresholds,
)
from virnucpro.classifier.decision import Decision, decide
from virnucpro.classifier.run_scores import WindowBlocks, run_windows, score_run
from virnucpro.classifier.sources import likely_sources
from virnucpro.errors import RunError
from virnucpro.pipeline.jobs.job import Reporter
from virnucpro.pipeline.run.exports import write_exports
from virnucpro.pipeline.run.manifest import Launch, is_manifest, read_manifest
from virnucpro.pipeline.run.region_files import write_region_files
from virnucpro.pipeline.run.report import renew_report
from virnucpro.pipeline.run.session import Session
from virnucpro.report.extract import write_extract
from virnucpro.report.extract_options import ExtractOptions
from virnucpro.report.lengths import LENGTH_CLASSES, length_class
from virnucpro.report.published_files import write_consensus, write_results
from virnucpro.report.tables import (
    CALL_NAMES,
    STATUS_NAMES,
    TABLE_VERSION,
    write_missing,
    write_predictions,
    write_quarantine,
    write_sequences,
    write_windows,
)
from virnucpro.report.tsv import names_warning
from virnucpro.run_dir import RunDirectory
from virnucpro.store.aggregate import write_embeddings, write_surveyed_embeddings
from virnucpro.store.coverage import Coverage, Survey, survey
from virnucpro.store.schema import OVERFLOW, RowState

_FIRST_WITH_EXTRACTS: Final = 3
"""Version of the tables from which on runs have files of the called sequences."""

__all__ = [
    "Outcome",
    "call_run",
    "run_calibration",
    "survey_segments",
    "write_gaps",
    "write_outputs",
    "write_tables",
]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Counts of a run's results.

    Attributes
    ----------
    records
        Number of records by status.
    calls
        Number of records by call; empty for a run without a classifier.
    rows_missing, rows_quarantined
        Number of missing rows, and of quarantined rows. A resume computes missing rows, but not
        quarantined rows.
    rows_overflowing
        Number of quarantined rows whose vectors are too large for fp16; a new run with
        ``--embeddings fp32`` can store these vectors.
    rule
        Rule of the calls in words; "" for a run without a classifier.
    by_length
        Number of records, and of viral records, by length class (`LENGTH_CLASSES`).
    files
        Paths of the outputs for people, the most important first.
    precision
        Precision of the run.
    again
        For each precision, the number of rows that were recomputed one by one at this precision,
        because vectors or scores from a batch were NaN or infinite. Rows of failed ranks are not
        counted.
    missing_units
        Units without a valid segment, ascending.
    copies
        Number of valid segments of units that another segment has too.
    rejected
        Files that are named like segments and cannot be used.
    """

    root: Path
    records: dict[str, int]
    calls: dict[str, int]
    rows_missing: int
    rows_quarantined: int
    rows_overflowing: int
    rule: str
    by_length: dict[str, tuple[int, int]]
    files: tuple[Path, ...]
    precision: str
    again: dict[str, int]
    missing_units: tuple[int, ...]
    copies: int
    rejected: tuple[Path, ...] = ()

    @property
    def complete(self) -> bool:
        """Return whether every row of the run has a result."""
        return not (self.rows_missing or self.rows_quarantined)


def survey_segments(session: Session, reporter: Reporter) -> Coverage:
    """Read and verify all segments of a run; return which rows are done, quarantined or missing.

    Each invalid segment is reported as a warning, and ignored.
    """
    if session.run.has_segments():
        reporter.stage("verifying stored results")
    coverage = survey(session.run, session.bounds, session.manifest.fingerprint)
    _warn_of_rejected(coverage, reporter)
    return coverage


def _warn_of_rejected(coverage: Coverage, reporter: Reporter) -> None:
    for rejected in coverage.rejected:
        reporter.warn(f"file not used: {rejected.reason}")


def _survey_and_embed(session: Session, reporter: Reporter) -> Coverage:
    """Write embeddings.h5 in the same reading as `survey_segments`; return the coverage."""
    reporter.stage("writing embeddings")
    reading = Survey(session.run, session.bounds, session.manifest.fingerprint)
    index, manifest, path = session.index, session.manifest, session.run.embeddings
    views, about = manifest.views, manifest.about_vectors
    coverage = write_surveyed_embeddings(
        path, reading, index, index.n_rows, views=views, about=about
    )
    _warn_of_rejected(coverage, reporter)
    return coverage


def write_outputs(
    session: Session,
    reporter: Reporter,
    coverage: Coverage | None = None,
    *,
    report: bool = True,
) -> Outcome:
    """Write every output from the rows of the valid segments.

    Each file is replaced atomically.

    Parameters
    ----------
    coverage
        Result of `survey_segments` for the current segments; None to read the segments here, each
        of them once.
    report
        Whether a run of predict gets a report.html.

    Raises
    ------
    OSError
        If an output cannot be written; the segments are unchanged.
    """
    started = time.perf_counter()
    embeds = session.manifest.parameters["embeddings"] != "none"
    embedded = coverage is None and embeds
    if coverage is None:
        read = _survey_and_embed if embeds else survey_segments
        coverage = read(session, reporter)
    if warning := names_warning(session.index):
        reporter.warn(warning)
    reporter.stage("writing tables")
    if session.manifest.table_version != TABLE_VERSION:
        session.update(replace(session.manifest, table_version=TABLE_VERSION))
    records, decision = write_tables(session.run, session, coverage)
    if embeds and not embedded:
        reporter.stage("writing embeddings")
        views = session.manifest.views
        about = session.manifest.about_vectors
        write_embeddings(session.run.embeddings, coverage, session.index, views, about)
    if embeds:
        write_exports(session.run, session.manifest.formats)
    # The lists are written last: an old missing.tsv marks the outputs as incomplete until then.
    write_gaps(session.run, session, coverage, records)
    seconds = {**session.manifest.seconds, "outputs": round(time.perf_counter() - started, 3)}
    session.update(replace(session.manifest, seconds=seconds, tables_complete=True))
    if session.manifest.command == "predict":
        renew_report(session.run, reporter, wanted=report)
    return _outcome(session, coverage, records, decision, reporter)


def write_tables(
    target: RunDirectory, session: Session, coverage: Coverage
) -> tuple[RecordScores, Decision]:
    """Write the tables into the folder `target`; return scores and calls of all records.

    `target` is the folder of the run or another folder. Equal rows give byte-identical files.

    Raises
    ------
    OSError
        If an output cannot be written.
    """
    index = session.index
    calibration = run_calibration(session)
    windows, records, decision = call_run(session, coverage, calibration)
    if session.manifest.command == "predict":
        version = session.manifest.table_version
        write_windows(target.windows, index, windows, version=version)
        if session.manifest.published_files:
            write_results(target.published_results, index, coverage, session.manifest.labels)
            write_consensus(target.published_consensus, index, windows)
        else:
            target.published_results.unlink(missing_ok=True)
            target.published_consensus.unlink(missing_ok=True)
        sources = likely_sources(index, windows, coverage)
        names = session.manifest.classes
        write_predictions(
            target.predictions,
            index,
            records,
            decision,
            sources,
            names,
            provirus=write_region_files(target, session, windows, records, decision, calibration),
            version=version,
        )
        _write_extracts(target, session, records, decision)
    else:
        write_sequences(target.sequences, index, records)
    return records, decision


def _write_extracts(
    target: RunDirectory, session: Session, records: RecordScores, decision: Decision
) -> None:
    """Write the sequences of the chosen calls, and delete files of an earlier choice.

    The files are FASTQ if the index has qualities.
    """
    options = ExtractOptions(**session.manifest.extracts)
    index, version = session.index, session.manifest.table_version
    fastq = index.has_qualities
    if version < _FIRST_WITH_EXTRACTS:
        options = ExtractOptions(calls=())
    for number, call in enumerate(CALL_NAMES):
        path = target.extract(call, fastq=fastq, compressed=options.compress)
        wanted = call in options.calls
        if wanted:
            chosen = decision.call == number
            write_extract(path, index, chosen, records.score, fastq=fastq, version=version)
        for other in target.extracts(call):
            if other != path or not wanted:
                other.unlink(missing_ok=True)


def run_calibration(session: Session) -> Calibration | None:
    """Return the calibration of a run; None if its bundle has none.

    Raises
    ------
    BundleError
        If a field of the calibration in run.json is missing or invalid.
    """
    content = session.manifest.calibration
    return read_calibration(content, session.run.run_json) if content else None


def call_run(
    session: Session, coverage: Coverage, calibration: Calibration | None
) -> tuple[WindowBlocks, RecordScores, Decision]:
    """Return calls of all windows, and scores and calls of all records, by the run's rule."""
    index, manifest = session.index, session.manifest
    windows = run_windows(index, coverage)
    records = score_run(index, windows)
    decision = decide(
        records,
        Thresholds(**manifest.thresholds),
        calibration,
        CallOptions(**manifest.calls),
        session.quality.get() if calibration else None,
        other_window=manifest.has_other_window,
    )
    return windows, records, decision


def write_gaps(
    target: RunDirectory, session: Session, coverage: Coverage, records: RecordScores
) -> None:
    """Write missing.tsv and quarantine.tsv; delete a file that would be empty.

    Raises
    ------
    OSError
        If one of the two files cannot be written or removed.
    """
    index = session.index
    if coverage.missing:
        write_missing(target.missing, index, records)
    else:
        target.missing.unlink(missing_ok=True)
    if (coverage.row_state == RowState.QUARANTINED).any():
        write_quarantine(target.quarantine, index, coverage)
    else:
        target.quarantine.unlink(missing_ok=True)


def _outcome(
    session: Session,
    coverage: Coverage,
    records: RecordScores,
    decision: Decision,
    reporter: Reporter,
) -> Outcome:
    predicts = session.manifest.command == "predict"
    return Outcome(
        root=session.run.root,
        records=_count_by_name(records.status, STATUS_NAMES),
        calls=_count_by_name(decision.call, CALL_NAMES) if predicts else {},
        rows_missing=int((coverage.row_state == RowState.MISSING).sum()),
        rows_quarantined=int((coverage.row_state == RowState.QUARANTINED).sum()),
        rows_overflowing=sum(
            why.partition(":")[0] == OVERFLOW for why in coverage.reasons.values()
        ),
        rule=CallOptions(**session.manifest.calls).text if predicts else "",
        by_length=_count_by_length(session.index.record_lengths, decision.call == Call.VIRAL),
        files=tuple(path for path in session.run.results if path.exists()),
        precision=session.manifest.parameters["precision"],
        again=_recomputed_rows(_launches(session, reporter)),
        missing_units=coverage.missing,
        copies=coverage.n_copies,
        rejected=coverage.rejected_paths,
    )


def _launches(session: Session, reporter: Reporter) -> Iterator[Launch]:
    """Yield the launches of the run and of its parts; an unreadable part is a warning."""
    yield from session.manifest.launches
    for part in map(session.run.part, session.run.part_names()):
        try:
            if is_manifest(part.run_json):  # a task may be killed before it has written this file
                yield from read_manifest(part).launches
        except (RunError, OSError) as error:
            reporter.warn(f"{error} Rows that its task recomputed are not counted.")


def _recomputed_rows(launches: Iterable[Launch]) -> dict[str, int]:
    records = (record for launch in launches for record in launch.ranks.values())
    return dict(sum((Counter(record.get("again", {})) for record in records), Counter[str]()))


def _count_by_length(
    lengths: NDArray[np.int64], viral: NDArray[np.bool_]
) -> dict[str, tuple[int, int]]:
    classes = length_class(lengths)
    numbers, viruses = (
        np.bincount(chosen, minlength=len(LENGTH_CLASSES)).tolist()
        for chosen in (classes, classes[viral])
    )
    return dict(zip(LENGTH_CLASSES, zip(numbers, viruses, strict=True), strict=True))


def _count_by_name(codes: NDArray[np.uint8], names: Sequence[str]) -> dict[str, int]:
    counts = np.bincount(codes, minlength=len(names)).tolist()
    return {name: count for name, count in zip(names, counts, strict=True) if count}
