"""Call the records of a run by another rule or classifier, from its segments."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from virnucpro.bundles.bundle import Bundle, encoder_contents, open_bundle
from virnucpro.bundles.manifest import read_manifest
from virnucpro.classifier.call_options import CallOptions
from virnucpro.classifier.decision import require_applicable
from virnucpro.errors import BundleError, StoreError, UsageError
from virnucpro.pipeline.jobs.job import Reporter
from virnucpro.pipeline.run.outputs import (
    call_run,
    run_calibration,
    survey_segments,
    write_gaps,
    write_tables,
)
from virnucpro.pipeline.run.report import renew_report
from virnucpro.pipeline.run.session import Session, reopen_session
from virnucpro.report.tables import CALL_NAMES, TABLE_VERSION
from virnucpro.run_dir import RunDirectory
from virnucpro.store.coverage import Coverage
from virnucpro.store.schema import RowState
from virnucpro.store.segment import read_segment

__all__ = ["OtherClassifier", "rescore"]


class OtherClassifier(NamedTuple):
    """A classifier for the stored vectors of a run.

    Attributes
    ----------
    bundle
        Name or folder of a bundle with the encoders of the run.
    outdir
        Folder for the tables; the run stays as it is.
    """

    bundle: str
    outdir: Path


def rescore(
    run: RunDirectory,
    calls: CallOptions,
    reporter: Reporter,
    other: OtherClassifier | None = None,
    *,
    lock: bool = True,
) -> tuple[Mapping[tuple[str, str], int], bool]:
    """Write the tables of a run by the rule `calls`.

    Without `other`, the tables of the run are replaced, and run.json records the rule.

    Returns
    -------
    changes
        Number of records for each pair of calls: before, and by `calls` and `other`.
    complete
        Whether every row of the run has a result.

    Raises
    ------
    UsageError
        If the run is not a run of predict, the rule needs a calibration that the bundle lacks, or
        the other bundle has other encoders.
    StoreError
        If the run has no stored vectors for the other classifier.
    NotARunError, IndexFormatError, RunLockedError
        If the folder is not a run, is damaged, or another process works in it.
    OSError
        If a table cannot be written.
    """
    with reopen_session(run, lock=lock) as session:
        if session.manifest.command != "predict":
            raise UsageError(f"{run.root}: only runs of predict have calls; this is an embed run")
        coverage = survey_segments(session, reporter)
        usable = _with_usable_rule(session)
        _, _, before = call_run(usable, coverage, run_calibration(usable))
        manifest = replace(session.manifest, calls=asdict(calls), table_version=TABLE_VERSION)
        manifest = replace(manifest, tables_complete=False)
        changed, target = replace(session, manifest=manifest), run
        if other is not None:
            changed, coverage = _scored_by(changed, coverage, other, reporter)
            target = RunDirectory(other.outdir)
        _, _, now = call_run(changed, coverage, run_calibration(changed))
        if other is None:
            session.update(manifest)
        else:
            other.outdir.mkdir(parents=True, exist_ok=True)
        reporter.stage("writing tables")
        records, _ = write_tables(target, changed, coverage)
        write_gaps(target, changed, coverage, records)
        if other is None:
            session.update(replace(manifest, tables_complete=True))
            renew_report(run, reporter, wanted=run.report.exists())
    pairs = zip(before.call.tolist(), now.call.tolist(), strict=True)
    changes = Counter((CALL_NAMES[old], CALL_NAMES[new]) for old, new in pairs)
    return changes, bool((coverage.row_state == RowState.DONE).all())


def _with_usable_rule(session: Session) -> Session:
    """Return the session; with the default rule if its own rule needs a missing calibration."""
    manifest = session.manifest
    calibrated = manifest.calibration is not None
    try:
        require_applicable(CallOptions(**manifest.calls), calibrated=calibrated)
    except UsageError:
        return replace(session, manifest=replace(manifest, calls={}))
    return session


def _scored_by(
    session: Session, coverage: Coverage, other: OtherClassifier, reporter: Reporter
) -> tuple[Session, Coverage]:
    """Return session and coverage with the classifier, calibration and scores of another bundle."""
    import torch  # noqa: PLC0415 - only this case needs it

    from virnucpro.classifier.head import load_head, scores_of  # noqa: PLC0415 - imports torch

    if other.outdir.exists() and any(other.outdir.iterdir()):
        raise UsageError(f"{other.outdir}: is not empty; choose another output folder")
    bundle = open_bundle(other.bundle)
    _require_same_encoders(session, bundle)
    if bundle.head is None:
        raise UsageError(f"{other.bundle}: has no classifier; give a bundle with a classifier")
    if session.manifest.parameters["embeddings"] == "none":
        raise StoreError(
            f"{session.run.root}: has no stored vectors, because it was made without --embeddings. "
            f"Predict the sequences again with -b {other.bundle}."
        )
    reporter.stage(f"scoring stored vectors with {bundle.name}")
    head = load_head(bundle.head)
    parts: list[tuple[int, int, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]] = []
    for path in coverage.done.values():
        segment = read_segment(path)
        assert segment.embeddings is not None
        found = scores_of(head, torch.from_numpy(segment.embeddings.astype(np.float32))).numpy()
        found[segment.state != RowState.DONE] = np.nan
        parts.append((int(segment.rows[0]), int(segment.rows[-1]) + 1, found))
    width = max((found.shape[1] for *_, found in parts), default=2)
    scores = np.full((len(coverage.row_state), width), np.nan, np.float32)
    for first, end, found in parts:
        scores[first:end] = found
    fallback = session.index.is_window(np.arange(session.index.n_rows))
    if session.index.spec.fallback and fallback.any():
        scores[fallback, :2] = coverage.scores[fallback, :2]
    manifest = replace(
        session.manifest,
        labels=bundle.labels,
        thresholds=bundle.thresholds,
        calibration=bundle.calibration,
        classes=bundle.classes,
        bundle_window=bundle.window,
    )
    return replace(session, manifest=manifest), replace(coverage, scores=scores)


def _require_same_encoders(session: Session, bundle: Bundle) -> None:
    """Raise UsageError unless `bundle` has the encoders of the run's bundle, which is opened."""
    parameters = session.manifest.parameters
    name = str(parameters["bundle"])
    advice = f"Predict the sequences again with -b {bundle.name}."
    try:
        own = open_bundle(name)
    except (BundleError, UsageError) as error:
        raise UsageError(
            f"{session.run.root}: the bundle {name!r} of the run cannot be opened, so that its "
            f"encoders cannot be compared ({error}). {advice}"
        ) from error
    if own.fingerprint != parameters["bundle_fingerprint"]:
        raise UsageError(
            f"{session.run.root}: the bundle {name!r} has changed since the run. {advice}"
        )
    if encoder_contents(read_manifest(own.path)) != encoder_contents(read_manifest(bundle.path)):
        raise UsageError(f"{bundle.name}: has other encoders than the run's {name}. {advice}")
