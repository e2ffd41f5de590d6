"""A run folder opened for work: created, resumed or refused."""

import math
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from virnucpro.durable import sync_folder
from virnucpro.errors import IndexFormatError, RunExistsError, UsageError
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.jobs.job import Job, Reporter
from virnucpro.pipeline.run.manifest import Manifest, is_manifest, read_manifest, write_manifest
from virnucpro.pipeline.run.run_lock import run_lock
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.devices import Kind
from virnucpro.sequences.index import SequenceIndex, build_index, input_digests
from virnucpro.sequences.partition import unit_bounds

__all__ = ["Session", "open_session", "reopen_session", "unit_caps"]

_UNITS_WANTED: Final = 64
_LEAST_ROWS: Final = 32
_MOST_ROWS: Final[Mapping[Kind, int]] = {"cpu": 2_048, "cuda": 8_192}
_MOST_POSITIONS: Final[Mapping[Kind, int]] = {"cpu": 131_072, "cuda": 1_048_576}
"""Caps of a unit. Small inputs get small units, so that every rank has some and little is lost. A
GPU takes batches of 65,536 tokens, and stands idle between two units: it gets more of them in one.
"""


@dataclass(slots=True)
class Session:
    """One process's hold on a run folder."""

    run: RunDirectory
    manifest: Manifest
    index: SequenceIndex
    bounds: NDArray[np.int64]

    def update(self, manifest: Manifest) -> None:
        """Write a new state of the manifest."""
        write_manifest(self.run, manifest)
        self.manifest = manifest


@contextmanager
def open_session(
    job: Job, execution: Execution, reporter: Reporter, kind: Kind = "cpu"
) -> Iterator[Session]:
    """Create the run, or go on with it, and hold its lock meanwhile.

    Parameters
    ----------
    kind
        Of the devices that will begin with it. A run keeps its units, whatever goes on with it.

    Raises
    ------
    UsageError
        When an input has the name of one of the run's own files.
    RunExistsError
        When the folder holds other files, or a run and neither `resume` nor `force` was given.
    FingerprintError
        When a resume would mix numbers of different inputs or parameters.
    RunLockedError
        When another process is at work in the folder.
    InputError
        When an input cannot be read; a folder made for the run is removed again.
    """
    run = RunDirectory(execution.outdir)
    _refuse_own_files(run, job.inputs)
    run.require_regular_files()
    _refuse_foreign_folder(run)
    made = _make_folder(run)
    with run_lock(run):
        try:
            run.remove_unfinished()
            if run.run_json.exists() and not execution.force:
                yield _resume(run, job, execution, reporter)
            else:
                yield _create(run, job, reporter, kind)
        finally:
            # Only while holding the lock: another process may have taken the folder over.
            if made and run.root.exists() and not run.run_json.exists():
                shutil.rmtree(run.next_index, ignore_errors=True)
                run.clear()
                run.lock.unlink(missing_ok=True)
                run.root.rmdir()


def _make_folder(run: RunDirectory) -> bool:
    """Say whether it was this process, among several that start at once, that made the folder."""
    run.root.parent.mkdir(parents=True, exist_ok=True)
    try:
        run.root.mkdir()
    except FileExistsError:
        return False
    return True


@contextmanager
def reopen_session(run: RunDirectory) -> Iterator[Session]:
    """Hold a run as it is, without its inputs: to aggregate what it has.

    Raises
    ------
    NotARunError, IndexFormatError, RunLockedError
        When the folder is no run, is damaged, or another process is at work in it.
    """
    manifest = read_manifest(run)
    with run_lock(run):
        yield _opened(run, manifest)


def _refuse_own_files(run: RunDirectory, inputs: Sequence[str]) -> None:
    """Refuse inputs that the run would overwrite or delete."""
    for path in map(Path, inputs):
        if str(path) != "-" and (run.owns(path) or run.owns(path.resolve())):
            raise UsageError(
                f"the input {path} has the name of a file of the run in {run.root}, and would be "
                "overwritten or deleted; move it out of the folder, or choose another one"
            )


def _refuse_foreign_folder(run: RunDirectory) -> None:
    """Only a run's own folder, or one with nothing in it, is ever written to."""
    if run.root.exists() and not run.root.is_dir():
        raise RunExistsError(f"{run.root} is a file. Choose another output folder.")
    entries = run.entries()
    if run.run_json.is_file() and run.index.is_dir() and not is_manifest(run.run_json):
        raise RunExistsError(
            f"{run.run_json} is damaged: it is no JSON of a run, and what the run has computed "
            "lies beside it. Restore it from a copy, or choose another output folder; nothing in "
            "this one was touched."
        )
    if entries and not is_manifest(run.run_json):
        shown = ", ".join(entries[:3]) + (" and others" if len(entries) > 3 else "")
        raise RunExistsError(
            f"{run.root} is not empty ({shown}) and is no run of virnucpro: it has no "
            f"{run.run_json.name} of one. Choose another output folder, or empty this one."
        )


def _create(run: RunDirectory, job: Job, reporter: Reporter, kind: Kind) -> Session:
    """Make a run; one that is to be replaced stays until all input of the new one is read.

    Killed at any point, the folder holds the old run, whole or with segments gone, or the new one.
    """
    reporter.stage("reading sequences")
    started = time.perf_counter()
    if run.next_index.exists():
        shutil.rmtree(run.next_index)
    index = build_index(run.next_index, job.inputs, job.index)
    run.clear()
    manifest = Manifest(
        command=job.command,
        parameters=job.parameters(),
        inputs=index.inputs,
        index_fingerprint=index.fingerprint,
        counts={
            "records": index.n_records,
            "windows": index.n_windows,
            "items": index.n_items,
            "rows": index.n_rows,
        },
        units=unit_caps(index.n_rows, kind),
        labels=job.labels,
        thresholds=job.thresholds,
        encoders=[
            {"name": encoder.name, "view": encoder.view, "dim": encoder.dim}
            for encoder in job.encoders
        ],
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        seconds={"index": round(time.perf_counter() - started, 3)},
    )
    write_manifest(run, manifest)
    _put_index_in_place(run)
    return _session(run, manifest, SequenceIndex.open(run.index))


def _put_index_in_place(run: RunDirectory) -> None:
    run.next_index.rename(run.index)
    sync_folder(run.root)


def _resume(run: RunDirectory, job: Job, execution: Execution, reporter: Reporter) -> Session:
    if not execution.resume:
        raise RunExistsError(
            f"{run.root} holds a run already. Go on with it (--resume), replace it (--force), "
            "or choose another output folder."
        )
    manifest = read_manifest(run)
    manifest.refuse_other_parameters(run, {"command": job.command, **job.parameters()})
    reporter.stage("checking the inputs against the run")
    manifest.refuse_other_inputs(run, input_digests(job.inputs, job.index))
    return _opened(run, manifest)


def _opened(run: RunDirectory, manifest: Manifest) -> Session:
    """Open a run's own index, all of it verified: a flipped base would be a wrong number."""
    killed_before_the_index_was_in_place = run.next_index.exists() and not run.index.exists()
    folder = run.next_index if killed_before_the_index_was_in_place else run.index
    index = SequenceIndex.open(folder)
    index.verify()
    if index.fingerprint != manifest.index_fingerprint:
        raise IndexFormatError(
            f"{folder} belongs to another run than {run.run_json}. Restore it, or start anew "
            "(--force)."
        )
    if killed_before_the_index_was_in_place:
        _put_index_in_place(run)
        index = SequenceIndex.open(run.index)
    return _session(run, manifest, index)


def _session(run: RunDirectory, manifest: Manifest, index: SequenceIndex) -> Session:
    bounds = unit_bounds(index.row_lengths, manifest.units["rows"], manifest.units["positions"])
    return Session(run, manifest, index, bounds)


def unit_caps(n_rows: int, kind: Kind) -> Mapping[str, int]:
    """Say how large the units of a run may be: ``rows`` and ``positions``."""
    rows = max(_LEAST_ROWS, math.ceil(n_rows / _UNITS_WANTED))
    return {"rows": min(_MOST_ROWS[kind], rows), "positions": _MOST_POSITIONS[kind]}
