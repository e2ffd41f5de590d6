"""Claim, creation and resume of a run folder."""

import errno
import json
import math
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from virnucpro.durable import output_folder, refuse_inputs, sync_folder, temporary_beside
from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.pooling import PoolingPlan
from virnucpro.encoders.registry import config_of, need_torch
from virnucpro.errors import FingerprintError, RunExistsError
from virnucpro.report.extract_options import ExtractOptions
from virnucpro.run.execution import Execution
from virnucpro.run.input_check import InputStamps, current_digests, is_unchanged
from virnucpro.run.job import Job
from virnucpro.run.manifest import Manifest, read_manifest, write_manifest
from virnucpro.run.reporter import Reporter
from virnucpro.run.run import Run, opened, put_index_in_place, run_lock
from virnucpro.run_dir import RunDirectory, is_run
from virnucpro.runtime.devices import Kind
from virnucpro.sequences.index import SequenceIndex, build_index
from virnucpro.sequences.records import Alphabet

_CACHED_S: Final = 65.0
"""Seconds until a file of another machine is visible: network file systems cache absent names."""
_LOOK_S: Final = 0.5
_UNITS_WANTED: Final = 64
_LEAST_ROWS: Final = 32
_SLOW: Final = {"rows": 2_048, "positions": 131_072}
_FAST: Final = {"rows": 8_192, "positions": 1_048_576}
_MOST_TOKENS: Final = 16_384
"""Size limits of a unit, in rows and positions.

Small inputs have small units: every rank gets some units, and a failure loses little work. A GPU
uses batches of 65,536 tokens and idles between units, so its units are larger. So are those of
encoders without a language model, which take less time than their segments. With one vector per
token, a unit has at most 16,384 positions, which limits the memory of a rank and of the output.
"""


@contextmanager
def claimed(job: Job, execution: Execution) -> Iterator[Manifest | None]:
    """Hold the lock of the run folder; yield the manifest of the run to resume, or None.

    A folder that is created for a new run is removed at the end if the run does not begin.

    Raises
    ------
    UsageError
        If an input has the path of a file that the run writes.
    RunError
        If the folder cannot be there: a part of its path is a file or a folder of the kernel.
    RunExistsError
        If the folder contains files of another program, or a run although neither `resume` nor
        `force` is set.
    NotARunError
        If the run to resume cannot be read.
    RunLockedError
        If another process works in the folder.
    """
    paths = usable_folder(job, execution)
    made = _make_folder(paths)
    with run_lock(paths, lock=execution.lock):
        try:
            if execution.force:
                paths.require_own_attempts()
            paths.remove_unfinished()
            exists = paths.run_json.exists() and not execution.force
            manifest = read_manifest(paths) if exists else None
            if manifest and not execution.resume:
                raise RunExistsError(
                    f"{paths.root} already contains a run. Use --resume to continue it, --force to "
                    "replace it, or choose another output folder."
                )
            yield manifest
        finally:
            # This process must still hold the lock: otherwise another process may use the folder.
            if made and paths.root.exists() and not paths.run_json.exists():
                shutil.rmtree(paths.next_index, ignore_errors=True)
                paths.clear()
                paths.lock.unlink(missing_ok=True)
                paths.machine.rmdir()
                paths.root.rmdir()


def usable_folder(job: Job, execution: Execution) -> RunDirectory:
    """Return the run folder of a job, after checks that need no lock; errors as `claimed`."""
    paths = RunDirectory(execution.outdir)
    inputs = (Path(name) for name in job.inputs if name != "-")
    refuse_inputs((*inputs, *_model_files(job)), paths.places(), f"the run in {paths.root}")
    paths.require_regular_files()
    _refuse_foreign_folder(paths)
    return paths


def _make_folder(run: RunDirectory) -> bool:
    """Create the run folder and return True; return False if the folder exists already."""
    with output_folder(run.root):
        run.root.parent.mkdir(parents=True, exist_ok=True)
        try:
            run.root.mkdir()
            made = True
        except FileExistsError:
            made = False
        run.machine.mkdir(exist_ok=True)
    return made


def _model_files(job: Job) -> Iterator[Path]:
    """Yield the files of encoders and classifiers, which must not be in the run folder."""
    others = job.others.values()
    for spec in (*job.encoders, *(spec for classifier in others for spec in classifier.encoders)):
        yield from (spec.file(role) for role in spec.files)
    yield from (head for head in (job.head, *(classifier.head for classifier in others)) if head)


def _refuse_foreign_folder(run: RunDirectory) -> None:
    """Raise RunExistsError if the folder is neither empty nor a run."""
    if run.root.exists() and not run.root.is_dir():
        raise RunExistsError(f"{run.root} is a file. Choose another output folder.")
    entries = run.entries()
    if entries and not is_run(run.root):
        name, shown = run.run_json.relative_to(run.root), ", ".join(entries[:3])
        raise RunExistsError(
            f"{run.root} is not empty ({shown}) and has no valid {name}: choose another output "
            "folder, or restore this file from a copy. Nothing was changed."
        )


def created(
    job: Job,
    execution: Execution,
    reporter: Reporter,
    kind: Kind = "cpu",
    workers: int = 1,
) -> Run:
    """Create a run in a claimed folder; an old run in the folder is removed.

    The old run is removed after all new input has been read. If the process is killed, the folder
    contains the old run, the new run, or none: the same command then begins the new run.

    Parameters
    ----------
    kind
        Kind of devices; it determines the unit size of a new run. A resumed run keeps its units.
    workers
        Number of workers of all tasks; 1 if one process computes the run, with any number.

    Raises
    ------
    InputError
        If an input cannot be read.
    """
    run = RunDirectory(execution.outdir)
    reporter.stage("reading sequences")
    started = time.perf_counter()
    if run.next_index.exists():
        shutil.rmtree(run.next_index)
    stamps = InputStamps(job.inputs)
    protein = job.index.alphabet is Alphabet.PROTEIN
    read = partial(reporter.read, protein=protein)
    index = build_index(run.next_index, job.inputs, job.index, read, rules=job.rules)
    run.clear()
    stamped = stamps.after_reading()
    seconds = {"index": round(time.perf_counter() - started, 3)}
    new = replace(new_manifest(job, index, kind, workers), input_stamps=stamped, seconds=seconds)
    manifest = write_manifest(run, new)
    put_index_in_place(run)
    warn_of_inputs(manifest, index, reporter)
    return Run.of(run, manifest, SequenceIndex.open(run.index))


def created_by_task(
    job: Job, execution: Execution, reporter: Reporter, kind: Kind, workers: int
) -> None:
    """Create the run of an array unless another task is faster; all tasks make equal runs.

    A task builds the run in a folder of its own, and renames this folder. Parameters and errors are
    those of `created`, and `RunExistsError` if the folder has the rest of another process.
    """
    paths = RunDirectory(execution.outdir)
    building = RunDirectory(temporary_beside(paths.machine))
    with output_folder(paths.root):
        building.machine.mkdir(parents=True)
    try:
        created(job, replace(execution, outdir=building.root), reporter, kind, workers)
        building.machine.rename(paths.machine)
        sync_folder(paths.root)
    except OSError as error:
        taken = error.errno in {errno.ENOTEMPTY, errno.EEXIST}
        if _appears(paths.run_json, _CACHED_S if taken else 0.0):
            return  # that of another task, which may have removed the folder of this one
        if not taken:
            raise
        raise RunExistsError(
            f"{paths.machine} has no run.json: another process begins a run, or was killed. Delete "
            "this folder if no process works there, then rerun the command."
        ) from error
    finally:
        shutil.rmtree(building.root, ignore_errors=True)
        with suppress(OSError):
            paths.root.rmdir()  # if it is empty: no run has begun


def _appears(path: Path, seconds: float) -> bool:
    """Return whether a file is or appears in its place within some time."""
    until = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() >= until:
            return False
        time.sleep(_LOOK_S)
    return True


def new_manifest(job: Job, index: SequenceIndex, kind: Kind, workers: int = 1) -> Manifest:
    """Return the manifest of a new run; `kind` and `workers` are as for `created`."""
    return Manifest(
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
        units=unit_caps(
            index.n_rows,
            workers,
            fast=kind == "cuda" or not need_torch(job.encoders),
            short=job.pooling.per_token or job.pooling.outputs != "vectors",
        ),
        encoders=[_encoder_entry(encoder, job) for encoder in job.encoders],
        calls={} if job.calls is None else asdict(job.calls.after({})),
        extracts=asdict(ExtractOptions(**job.extracts)) if job.extracts else {},
        formats=job.formats or (),
        outputs=dict(job.outputs),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        **job.classifier,
    )


def _encoder_entry(encoder: EncoderSpec, job: Job) -> dict[str, Any]:
    """Return the entry of an encoder in run.json; for `embed`, with the numbers of its layers."""
    entry: dict[str, Any] = {"name": encoder.name, "view": encoder.view, "dim": encoder.dim}
    layout = config_of(encoder).layout
    if job.command == "embed" and layout.n_layers:
        entry["layers"] = list(PoolingPlan(encoder.pooling, layout).layers)
    return entry


def warn_of_inputs(manifest: Manifest, index: SequenceIndex, reporter: Reporter) -> None:
    """Report trouble in the inputs, and a window for which the bundle is not made."""
    for warning in index.warnings:
        reporter.warn(warning)
    if manifest.has_other_window:
        reporter.warn(
            f"the window of {manifest.parameters['window']} bases is not that of the bundle "
            f"({manifest.bundle_window}): its thresholds and probabilities do not hold for these "
            "scores. All scored sequences have the flag other_window"
        )


def resumed(manifest: Manifest, job: Job, execution: Execution, reporter: Reporter) -> Run:
    """Resume the run with this manifest in a claimed folder.

    Raises
    ------
    FingerprintError
        If inputs or parameters differ from those of the run.
    InputError, IndexFormatError
        If an input or the index cannot be read.
    """
    paths = RunDirectory(execution.outdir)
    stamps = InputStamps(job.inputs)
    _refuse_other_job(manifest, job, execution, reporter)
    run = opened(paths, manifest)
    warn_of_inputs(manifest, run.index, reporter)
    if (changed := replace(run.manifest, **_changes(manifest, job, stamps))) != manifest:
        run.update(changed)
    return run


def joined(manifest: Manifest, job: Job, execution: Execution, reporter: Reporter) -> Run:
    """Open the run with this manifest for one of its tasks, which changes no file of it.

    The index is not compared with its checksums: the process that writes the tables does so.

    Raises
    ------
    FingerprintError
        If inputs, parameters or chosen outputs differ from those of the run.
    InputError, IndexFormatError
        As `resumed`.
    """
    paths = RunDirectory(execution.outdir)
    _refuse_other_job(manifest, job, execution, reporter)
    for name, chosen in _choices(manifest, job):
        if not _is_same(chosen, getattr(manifest, name)):
            raise FingerprintError(
                f"{paths.root}: a task cannot change the {name} of the run, which are "
                f"{json.dumps(getattr(manifest, name))}. Give the options of the other tasks; "
                "change them after all tasks with predict --resume."
            )
    run = Run.open(paths, manifest, verify=False)
    warn_of_inputs(manifest, run.index, reporter)
    return run


def _refuse_other_job(
    manifest: Manifest, job: Job, execution: Execution, reporter: Reporter
) -> None:
    """Raise FingerprintError if inputs or parameters differ from those of the run."""
    paths = RunDirectory(execution.outdir)
    manifest.refuse_other_parameters(paths, {"command": job.command, **job.parameters()})
    reporter.stage("comparing the inputs with those of the run")
    stamps = () if job.rules.strict else manifest.input_stamps
    inputs = current_digests(job.inputs, manifest.inputs, stamps, job.index, job.rules)
    manifest.refuse_other_inputs(paths, inputs)


def is_finished(paths: RunDirectory, manifest: Manifest, job: Job) -> bool:
    """Return whether a resume by `job` would find the run as it would leave it.

    These are run.json, the stamps of the inputs and the sizes of the files: nothing else is read.

    Raises
    ------
    FingerprintError
        If parameters differ from those of the run.
    OSError
        If an input cannot be read.
    """
    manifest.refuse_other_parameters(paths, {"command": job.command, **job.parameters()})
    sizes = {name: _size(paths.root / name) for name in manifest.files}
    stamps = dict(zip(job.inputs, manifest.input_stamps, strict=False))
    return (
        manifest.tables_complete
        and not manifest.summary["details"]["rows_missing"]
        and (paths.has_segments() or not manifest.counts["rows"])
        and not job.rules.strict
        and len(stamps) == len(manifest.input_stamps) == len(job.inputs)
        and sizes == manifest.files
        and all(_is_same(new, getattr(manifest, name)) for name, new in _choices(manifest, job))
        and all(is_unchanged(path, stamp) for path, stamp in stamps.items())
    )


def _size(path: Path) -> int | None:
    with suppress(OSError):
        found = path.stat()
        return found.st_size if stat.S_ISREG(found.st_mode) else None
    return None


def _is_same(new: object, stored: object) -> bool:
    return json.dumps(new, sort_keys=True) == json.dumps(stored, sort_keys=True)


def _changes(manifest: Manifest, job: Job, stamps: InputStamps) -> dict[str, Any]:
    """Return the fields of the manifest that a resume replaces, by name."""
    changes = dict(_choices(manifest, job))
    if changes:
        changes["tables_complete"] = False
    return changes | {"input_stamps": stamps.after_reading()}


def _choices(manifest: Manifest, job: Job) -> Iterator[tuple[str, Any]]:
    """Yield name and value of the fields that a resume by `job` chooses anew."""
    choices = {
        "calls": None if job.calls is None else asdict(job.calls.after(manifest.calls)),
        "extracts": {**manifest.extracts, **job.extracts} if job.extracts else None,
        "formats": job.formats,
        "outputs": {**manifest.outputs, **job.outputs} if job.outputs else None,
    }
    yield from ((name, new) for name, new in choices.items() if new is not None)


def unit_caps(
    n_rows: int, workers: int = 1, *, fast: bool = False, short: bool = False
) -> Mapping[str, int]:
    """Return the maximum ``rows`` and ``positions`` (residues or bases) per unit of a new run.

    With `workers` of several tasks, each of them gets about 64 units. With `fast`, a GPU encodes
    them, or no language model. With `short`, a token is stored, or takes a forward pass of its own.
    """
    rows = max(_LEAST_ROWS, math.ceil(n_rows / (_UNITS_WANTED * workers)))
    most = _FAST if fast else _SLOW
    positions = _MOST_TOKENS if short else most["positions"]
    return {"rows": min(most["rows"], rows), "positions": positions}
