"""Write the outputs of a run from its segments: tables, embeddings.h5; rescore by another rule."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import numpy as np

from virnucpro.arrays import BoolArray, ByteArray, IntArray, slices
from virnucpro.classifier.call_options import CallOptions
from virnucpro.classifier.consensus import Call
from virnucpro.console import output_failure
from virnucpro.errors import UsageError
from virnucpro.joined import join
from virnucpro.report.extract import RecordIds, texts_of_call, write_texts
from virnucpro.report.extract_options import ExtractOptions
from virnucpro.report.genes import write_genes
from virnucpro.report.regions import write_bed, write_bedgraph, write_gff3
from virnucpro.run.calls import call_run, survey_segments, warn_of_rejected
from virnucpro.run.manifest import Manifest
from virnucpro.run.report import renew_report
from virnucpro.run.reporter import Reporter
from virnucpro.run.run import Outcome, Run, reopened
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.columns import index_file
from virnucpro.sequences.items import LEAST_BASES
from virnucpro.store.aggregate import write_embeddings
from virnucpro.store.coverage import Coverage, Survey
from virnucpro.store.exports import write_exports
from virnucpro.store.schema import OVERFLOW, RowState
from virnucpro.tables.columns import (
    CALL_NAMES,
    STATUS_NAMES,
    Missing,
    Predictions,
    Quarantine,
    RegionTable,
    Sequences,
    Windows,
)
from virnucpro.tables.published import PublishedConsensus, PublishedResults
from virnucpro.tables.source import LENGTH_CLASSES, RunScores, length_class
from virnucpro.tables.write import write_table

_MOST_JOINED: Final = 1 << 28
"""Bytes of segments that are joined: more take long to copy, in few files for their size."""


def _write_vectors(run: Run, reporter: Reporter, coverage: Coverage | None) -> Coverage:
    """Write embeddings.h5; without a coverage, find it in the same reading of the segments."""
    reporter.stage("writing embeddings")
    source = coverage or Survey(run.paths, run.bounds, run.manifest.fingerprint)
    views, about = run.manifest.views, run.manifest.about_vectors
    written = write_embeddings(run.paths.embeddings, source, run.index, views, about)
    if coverage is None:
        warn_of_rejected(written, reporter)
    return written


def write_outputs(
    run: Run,
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
    if run.stores_vectors:
        coverage = _write_vectors(run, reporter, coverage)
    elif coverage is None:
        coverage = survey_segments(run, reporter)
    reporter.stage("writing tables")
    scores = call_run(run, coverage)
    write_tables(run.paths, run.manifest, scores)
    if run.stores_vectors:
        write_exports(run.paths, run.manifest.formats)
    # The lists are written last: an old missing.tsv marks the outputs as incomplete until then.
    write_gaps(run.paths, scores)
    outcome = outcome_of(run, scores, reporter)
    seconds = {**run.manifest.seconds, "outputs": round(time.perf_counter() - started, 3)}
    run.update(replace(with_results(run, scores, outcome), seconds=seconds))
    if run.manifest.command == "predict":
        renew_report(run, reporter, scores, wanted=report)
    if not (coverage.missing or run.paths.attempts()):  # a late task may look at its segments
        with suppress(OSError):  # the run is complete with more files, too
            _remove_passing(run, coverage)
    return replace(outcome, files=_existing(run.paths.results))


def _remove_passing(run: Run, coverage: Coverage) -> None:
    """Join the segments of a complete run in one file, and remove what only a resume needs.

    A kill leaves segments twice, which the next writer of outputs removes. The history of workers
    stays if run.json says less: of several workers at once, of failures, and of lost messages.
    """
    paths, used = run.paths, list(coverage.done.values())
    files = [path for path in used if path.parent != paths.segments_file]
    own = {paths.segments_file, paths.segments_file.parent}
    if own.issuperset({path.parent for path in coverage.rejected_paths}) and (
        sum(path.stat().st_size for path in files) <= _MOST_JOINED
    ):
        if files:
            join(paths.segments_file, used)
        paths.remove_unit_files()
    ranks = [rank for launch in run.manifest.launches for rank in launch.ranks.values()]
    several = len(ranks) > len(run.manifest.launches)
    failed = any(
        rank["faults"] or rank.get("recomputed") or rank["state"] == "failed" for rank in ranks
    )
    if not (several or failed or output_failure()):
        paths.remove_history()


def with_results(run: Run, scores: RunScores, outcome: Outcome) -> Manifest:
    """Return the manifest of a run whose tables were just written from `scores`."""
    assumed, paths = scores.calls.prevalence, run.paths
    written = _existing((index_file(paths.index), *paths.tables, paths.embeddings))
    return replace(
        run.manifest,
        prevalence=None if assumed is None else asdict(assumed),
        tables_complete=True,
        summary=outcome.summary,
        files={str(path.relative_to(paths.root)): path.stat().st_size for path in written},
    )


def _existing(paths: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(path for path in paths if path.exists())


def write_tables(target: RunDirectory, manifest: Manifest, scores: RunScores) -> None:
    """Write the tables into the folder `target`.

    `target` is the folder of the run or another folder. Equal rows give byte-identical files.
    Tables of an earlier choice, and reports of earlier tables, are deleted.

    Raises
    ------
    OSError
        If an output cannot be written.
    """
    for path in target.reports:
        path.unlink(missing_ok=True)
    if manifest.command != "predict":
        write_table(target.sequences, Sequences, scores)
        return
    target.tracks.mkdir(exist_ok=True)
    write_table(target.windows, Windows, scores)
    written: set[Path] = set()
    if manifest.outputs.get("published_files"):
        write_table(target.published_results, PublishedResults, scores)
        write_table(target.published_consensus, PublishedConsensus, scores)
        written |= {target.published_results, target.published_consensus}
    options, ids = ExtractOptions(**manifest.extracts), RecordIds(scores.index)
    written.update(_write_region_files(target, ids, scores))
    write_table(target.predictions, Predictions, scores)
    written.update(_write_extracts(target, ids, scores, options))
    if manifest.outputs.get("genes"):
        viral = (scores.calls.call == Call.VIRAL) | scores.provirus
        write_genes(target.genes, ids, viral)
        written.add(target.genes)
    for path in target.choices:
        if path not in written:
            path.unlink(missing_ok=True)


def _write_extracts(
    target: RunDirectory, ids: RecordIds, scores: RunScores, options: ExtractOptions
) -> Iterator[Path]:
    """Write the sequences of the chosen calls; yield the paths of the files.

    The files are FASTQ if the index has qualities.
    """
    fastq = scores.index.has_qualities
    for number, call in enumerate(CALL_NAMES):
        if call not in options.calls:
            continue
        path = target.extract(call, fastq=fastq, compressed=options.compress)
        write_texts(path, texts_of_call(ids, scores, number, fastq=fastq))
        yield path


def write_gaps(target: RunDirectory, scores: RunScores) -> None:
    """Write missing.tsv and quarantine.tsv; delete a file that would be empty.

    Raises
    ------
    OSError
        If one of the two files cannot be written or removed.
    """
    state = scores.coverage.row_state
    for path, table, needed in (
        (target.missing, Missing, bool(scores.coverage.missing)),
        (target.quarantine, Quarantine, (state == RowState.QUARANTINED).any()),
    ):
        if needed:
            write_table(path, table, scores)
        else:
            path.unlink(missing_ok=True)


def outcome_of(run: Run, scores: RunScores, reporter: Reporter) -> Outcome:
    """Return the counts of a run whose outputs are written; warn if nothing was scored."""
    coverage, call = scores.coverage, scores.calls.call
    predicts = run.manifest.command == "predict"
    records = _count_by_name(scores.records.status, STATUS_NAMES)
    spec, longest = run.index.spec, int(run.index.record_lengths.max(initial=0))
    if warning := _nothing_scored(records, spec.min_length, longest, predicts=predicts):
        reporter.warn(warning)
    return Outcome(
        root=run.paths.root,
        records=records,
        calls=_count_by_name(call, CALL_NAMES) if predicts else {},
        units=run.n_units,
        rows_missing=int((coverage.row_state == RowState.MISSING).sum()),
        rows_quarantined=int((coverage.row_state == RowState.QUARANTINED).sum()),
        rows_overflowing=sum(
            why.partition(":")[0] == OVERFLOW for why in coverage.reasons.values()
        ),
        rule=CallOptions(**run.manifest.calls).text if predicts else "",
        by_length=_count_by_length(run.index.record_letters, call == Call.VIRAL),
        files=_existing(run.paths.results),
        precision=run.manifest.parameters["precision"],
        recomputed=_recomputed_rows(run),
        expectation=scores.calls.expectation,
        proviruses=int(scores.provirus.sum()) if predicts else 0,
        inserted=len(scores.inserted.record) if predicts else 0,
        warnings=(*run.index.warnings, *([warning] if warning else [])),
    )


_ADVICE: Final = {
    "too_short": f"Sequences of fewer than {LEAST_BASES} bases have no score",
    "no_open_frame": "Stop codons interrupt every reading frame: check --genetic-code, or give a "
    "bundle that scores whole windows, such as -b mini",
    "ambiguous_bases": "Too few of their letters are A, C, G or T: mask fewer bases",
    "invalid_letters": "Letters are not bases: check whether the files are what you meant",
    "too_long": "Split them, or give a larger --max-record",
    "quarantined": "Their computation failed; see quarantine.tsv",
}
"""What to do about records without a score, by their status."""


def _nothing_scored(
    records: Mapping[str, int], min_length: int, longest: int, *, predicts: bool
) -> str:
    """Return why no record has a score, and what to do; "" if a record has or may get one.

    Inputs without records have a warning of their own. `longest` are the bases of the longest
    record.
    """
    if not records or "scored" in records or "missing" in records:
        return ""
    reasons = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in records.items())
    most = max(records, key=lambda name: records[name])
    advice = _ADVICE[most]
    if most == "too_short" and LEAST_BASES <= longest < min_length:
        advice = (
            f"Sequences of fewer than {min_length} bases are not scored; --min-length "
            f"{LEAST_BASES} scores those of {LEAST_BASES} bases and more, less accurately"
        )
    return f"no sequence {'was scored' if predicts else 'has a vector'}: {reasons}. {advice}."


def _recomputed_rows(run: Run) -> int:
    records = (record for launch in run.manifest.launches for record in launch.ranks.values())
    return sum(record.get("recomputed", 0) for record in records)


def _count_by_length(lengths: IntArray, viral: BoolArray) -> dict[str, tuple[int, int]]:
    numbers, viruses = np.zeros((2, len(LENGTH_CLASSES)), np.int64)
    for part in slices(len(lengths)):
        classes = length_class(lengths[part])
        numbers += np.bincount(classes, minlength=len(numbers))
        viruses += np.bincount(classes[viral[part]], minlength=len(viruses))
    both = zip(numbers.tolist(), viruses.tolist(), strict=True)
    return dict(zip(LENGTH_CLASSES, both, strict=True))


def _count_by_name(codes: ByteArray, names: Sequence[str]) -> dict[str, int]:
    counts = sum(
        (np.bincount(codes[part], minlength=len(names)) for part in slices(len(codes))),
        np.zeros(len(names), np.int64),
    )
    return {name: count for name, count in zip(names, counts.tolist(), strict=True) if count}


def _write_region_files(target: RunDirectory, ids: RecordIds, scores: RunScores) -> Iterator[Path]:
    """Write regions.tsv, BED, GFF3 and bedGraph; yield their paths.

    Without a calibration only the bedGraph is written.

    Raises
    ------
    OSError
        If a file cannot be written.
    """
    regions = scores.regions
    write_bedgraph(target.scores_bedgraph, ids, scores.windows)
    yield target.scores_bedgraph
    if regions is None:
        return
    write_table(target.regions, RegionTable, scores)
    write_bed(target.regions_bed, ids, regions)
    write_gff3(target.regions_gff3, ids, regions)
    yield from (target.regions, target.regions_bed, target.regions_gff3)


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
