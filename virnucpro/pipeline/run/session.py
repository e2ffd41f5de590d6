"""Creation, resume and lock of a run folder."""

import math
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from virnucpro.durable import sync_folder
from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.pooling import PoolingPlan
from virnucpro.encoders.registry import config_of
from virnucpro.errors import IndexFormatError, RunExistsError, UsageError
from virnucpro.folder_lock import folder_lock
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.jobs.job import Job, Reporter
from virnucpro.pipeline.run.input_check import InputStamps, read_changed
from virnucpro.pipeline.run.manifest import Manifest, is_manifest, read_manifest, write_manifest
from virnucpro.pipeline.run.part_states import refuse_live_parts
from virnucpro.pipeline.run.run_quality import RunQuality
from virnucpro.report.tables import TABLE_VERSION
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.devices import Kind
from virnucpro.sequences.index import SequenceIndex, build_index
from virnucpro.sequences.partition import unit_bounds
from virnucpro.sequences.records import Alphabet

__all__ = [
    "Session",
    "open_session",
    "reopen_session",
    "run_lock",
    "session_of",
    "unit_caps",
    "verified_index",
]


def run_lock(run: RunDirectory, *, lock: bool = True) -> AbstractContextManager[None]:
    """Return a context manager that holds the lock of a run; with ``lock=False``, no lock.

    Raises
    ------
    RunLockedError
        If another process holds the lock.
    OSError
        If the folder is not writable.
    """
    if not lock:
        return nullcontext()
    advice = f"Wait for that process (see virnucpro status {run.root}), or choose another folder."
    return folder_lock(run.lock, advice)


_UNITS_WANTED: Final = 64
_LEAST_ROWS: Final = 32
_MOST_ROWS: Final[Mapping[Kind, int]] = {"cpu": 2_048, "cuda": 8_192}
_MOST_POSITIONS: Final[Mapping[Kind, int]] = {"cpu": 131_072, "cuda": 1_048_576}
_MOST_TOKENS: Final = 16_384
"""Size limits of a unit, in rows and positions.

Small inputs have small units: every rank gets some units, and a failure loses little work. A GPU
uses batches of 65,536 tokens and idles between units, so units for GPUs are larger. With one vector
per token, a unit has at most 16,384 positions, which limits the memory of a rank and of the output.
"""


@dataclass(slots=True)
class Session:
    """An open run: its folder, manifest and index, `bounds`, and the composition of its records.

    `bounds` is (units + 1,) int64: the first row of each unit, then the total number of rows.
    """

    run: RunDirectory
    manifest: Manifest
    index: SequenceIndex
    bounds: NDArray[np.int64]
    quality: RunQuality

    def update(self, manifest: Manifest) -> None:
        """Replace the manifest of this session, in run.json and in memory."""
        write_manifest(self.run, manifest)
        self.manifest = manifest


@contextmanager
def open_session(
    job: Job,
    execution: Execution,
    reporter: Reporter,
    kind: Kind = "cpu",
    workers: int | None = None,
) -> Iterator[Session]:
    """Create or resume a run and yield its session; hold the run's lock until the block ends.

    Parameters
    ----------
    kind
        Kind of devices; it determines the unit size of a new run. A resumed run keeps its units.
    workers
        Number of workers for which a new run is planned; None if one machine computes the run.

    Raises
    ------
    UsageError
        If an input has the path of a file that the run writes.
    RunExistsError
        If the folder contains files of another program, or a run although neither `resume` nor
        `force` is set.
    FingerprintError
        If inputs or parameters differ from those of the run to resume.
    RunLockedError
        If another process works in the folder, or a run with working parts would be replaced.
    InputError
        If an input cannot be read; a folder that was created for the run is removed.
    """
    run = RunDirectory(execution.outdir)
    _refuse_own_files(run, (*job.inputs, *map(str, _model_files(job))))
    run.require_regular_files()
    _refuse_foreign_folder(run)
    made = _make_folder(run)
    with run_lock(run, lock=execution.lock):
        try:
            if execution.force:
                refuse_live_parts(run, "replace the run")
            run.remove_unfinished()
            if run.run_json.exists() and not execution.force:
                yield _resume(run, job, execution, reporter)
            else:
                yield _create(run, job, reporter, kind, workers)
        finally:
            # This process must still hold the lock: otherwise another process may use the folder.
            if made and run.root.exists() and not run.run_json.exists():
                shutil.rmtree(run.next_index, ignore_errors=True)
                run.clear()
                run.lock.unlink(missing_ok=True)
                run.root.rmdir()


def _make_folder(run: RunDirectory) -> bool:
    """Create the run folder and return True; return False if the folder exists already."""
    run.root.parent.mkdir(parents=True, exist_ok=True)
    try:
        run.root.mkdir()
    except FileExistsError:
        return False
    return True


@contextmanager
def reopen_session(run: RunDirectory, *, lock: bool = True) -> Iterator[Session]:
    """Yield the session of an existing run, without reading its inputs; hold the run's lock.

    With ``lock=False`` no lock is held; no other process may write the run meanwhile.

    Raises
    ------
    NotARunError, IndexFormatError, RunLockedError
        If the folder is not a run, is damaged, or another process works in it.
    """
    manifest = read_manifest(run)
    with run_lock(run, lock=lock):
        yield _opened(run, manifest)


def _model_files(job: Job) -> Iterator[Path]:
    """Yield the files of encoders and classifiers, which must not be in the run folder."""
    second = () if job.fallback is None else job.fallback.encoders
    for spec in (*job.encoders, *second):
        yield from (spec.file(role) for role in spec.files)
    yield from (head for head in (job.head, job.fallback and job.fallback.head) if head)


def _refuse_own_files(run: RunDirectory, inputs: Sequence[str]) -> None:
    """Raise UsageError if the run would overwrite or delete an input file."""
    for path in map(Path, inputs):
        if str(path) != "-" and (run.owns(path) or run.owns(path.resolve())):
            raise UsageError(
                f"the input {path} has the name of a file of the run in {run.root}, and would be "
                "overwritten or deleted; move the input out of the folder, or choose another "
                "output folder"
            )


def _refuse_foreign_folder(run: RunDirectory) -> None:
    """Raise RunExistsError if the folder is neither empty nor a run."""
    if run.root.exists() and not run.root.is_dir():
        raise RunExistsError(f"{run.root} is a file. Choose another output folder.")
    entries = run.entries()
    if entries and not is_manifest(run.run_json):
        state = "is damaged" if run.run_json.is_file() else "is missing"
        raise RunExistsError(
            f"{run.root} is not empty ({', '.join(entries[:3])}) and not a valid run: "
            f"{run.run_json.name} {state}. Restore this file from a copy, or choose another "
            "output folder. Nothing was changed."
        )


def _create(
    run: RunDirectory, job: Job, reporter: Reporter, kind: Kind, workers: int | None
) -> Session:
    """Create a run and return its session; an old run in the folder is removed.

    The old run is removed after all new input has been read. If the process is killed, the folder
    contains either the new run, or the old run with all or some of its segments.
    """
    reporter.stage("reading sequences")
    started = time.perf_counter()
    if run.next_index.exists():
        shutil.rmtree(run.next_index)
    stamps = InputStamps(job.inputs)
    protein = job.index.alphabet is Alphabet.PROTEIN
    read = partial(reporter.read, protein=protein)
    index = build_index(run.next_index, job.inputs, job.index, read, rules=job.rules)
    run.clear()
    manifest = Manifest(
        command=job.command,
        parameters=job.parameters(),
        inputs=index.inputs,
        input_stamps=stamps.after_reading(),
        index_fingerprint=index.fingerprint,
        counts={
            "records": index.n_records,
            "windows": index.n_windows,
            "items": index.n_items,
            "rows": index.n_rows,
        },
        units=unit_caps(index.n_rows, kind, workers, per_token=job.pooling.per_token),
        labels=job.labels,
        thresholds=job.thresholds,
        encoders=[_encoder_entry(encoder, job) for encoder in job.encoders],
        calibration=job.calibration,
        classes=job.classes,
        table_version=TABLE_VERSION,
        calls={} if job.calls is None else asdict(job.calls),
        extracts={} if job.extracts is None else asdict(job.extracts),
        formats=job.formats or (),
        bundle_window=job.bundle_window,
        published_files=bool(job.published_files),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds={"index": round(time.perf_counter() - started, 3)},
    )
    write_manifest(run, manifest)
    _put_index_in_place(run)
    _warn(manifest, index, reporter)
    return session_of(run, manifest, SequenceIndex.open(run.index))


def _encoder_entry(encoder: EncoderSpec, job: Job) -> dict[str, Any]:
    """Return the entry of an encoder in run.json; for `embed`, with the numbers of its layers."""
    entry: dict[str, Any] = {"name": encoder.name, "view": encoder.view, "dim": encoder.dim}
    layout = config_of(encoder).layout
    if job.command == "embed" and layout.n_layers:
        entry["layers"] = list(PoolingPlan(encoder.pooling, layout).layers)
    return entry


def _warn(manifest: Manifest, index: SequenceIndex, reporter: Reporter) -> None:
    """Report trouble in the inputs, and a window for which the bundle is not made."""
    for warning in index.warnings:
        reporter.warn(warning)
    if manifest.has_other_window:
        reporter.warn(
            f"the window of {manifest.parameters['window']} bases is not that of the bundle "
            f"({manifest.bundle_window}): its thresholds and probabilities do not hold for these "
            "scores. All scored sequences have the flag other_window"
        )


def _put_index_in_place(run: RunDirectory) -> None:
    run.next_index.rename(run.index)
    sync_folder(run.root)


def _resume(run: RunDirectory, job: Job, execution: Execution, reporter: Reporter) -> Session:
    if not execution.resume:
        raise RunExistsError(
            f"{run.root} already contains a run. Use --resume to continue it, --force to replace "
            "it, or choose another output folder."
        )
    manifest = read_manifest(run)
    manifest.refuse_other_parameters(run, {"command": job.command, **job.parameters()})
    reporter.stage("comparing the inputs with those of the run")
    stamps = InputStamps(job.inputs)
    known = () if execution.check_inputs or job.rules.strict else manifest.input_stamps
    inputs = read_changed(job.inputs, manifest.inputs, known, job.index, job.rules)
    manifest.refuse_other_inputs(run, inputs)
    session = _opened(run, manifest)
    _warn(manifest, session.index, reporter)
    if changes := _changes(manifest, job, stamps):
        session.update(replace(manifest, **changes))
    return session


def _changes(manifest: Manifest, job: Job, stamps: InputStamps) -> dict[str, Any]:
    """Return the fields of the manifest that a resume replaces, by name."""
    changes: dict[str, Any] = {}
    if (found := stamps.after_reading()) != tuple(manifest.input_stamps):
        changes["input_stamps"] = found
    if job.calls is not None:
        changes |= {"calls": asdict(job.calls), "tables_complete": False}
    if job.formats is not None:
        changes["formats"] = job.formats
    if job.extracts is not None:
        changes["extracts"] = asdict(job.extracts)
    if job.published_files is not None:
        changes["published_files"] = job.published_files
    return changes


def _opened(run: RunDirectory, manifest: Manifest) -> Session:
    """Return the session of an existing run; its index is verified.

    A flipped bit in the index would change results.
    """
    if run.next_index.exists() and not run.index.exists():  # killed before the rename
        verified_index(run.next_index, manifest)
        _put_index_in_place(run)
    return session_of(run, manifest, verified_index(run.index, manifest))


def verified_index(folder: Path, manifest: Manifest) -> SequenceIndex:
    """Return the index in `folder`, compared with its checksums and the run's manifest.

    Raises
    ------
    IndexFormatError
        If the index is damaged, or belongs to another run.
    """
    index = SequenceIndex.open(folder)
    index.verify()
    if index.fingerprint != manifest.index_fingerprint:
        raise IndexFormatError(
            f"{folder} is the index of another run (fingerprint {index.fingerprint[:12]}, but "
            f"run.json has {manifest.index_fingerprint[:12]}). Restore the index from "
            "a copy, or start the run anew in another folder."
        )
    return index


def session_of(run: RunDirectory, manifest: Manifest, index: SequenceIndex) -> Session:
    """Return the session of a run with the given index."""
    bounds = unit_bounds(index.row_lengths, manifest.units["rows"], manifest.units["positions"])
    return Session(run, manifest, index, bounds, RunQuality(index))


def unit_caps(
    n_rows: int, kind: Kind, workers: int | None = None, *, per_token: bool = False
) -> Mapping[str, int]:
    """Return the maximum ``rows`` and ``positions`` (residues or bases) per unit of a new run.

    With `workers`, each of them gets about 32 units, of at least 256 rows. With `per_token`, the
    run stores one vector per token.
    """
    wanted, least = (_UNITS_WANTED, _LEAST_ROWS) if workers is None else (32 * workers, 256)
    rows = max(least, math.ceil(n_rows / wanted))
    positions = _MOST_TOKENS if per_token else _MOST_POSITIONS[kind]
    return {"rows": min(_MOST_ROWS[kind], rows), "positions": positions}
