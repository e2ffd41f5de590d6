"""Create the job of ``virnucpro predict``, and compute a job from its inputs to its tables."""

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from virnucpro.bundles.bundle import open_bundle, viral_classes
from virnucpro.bundles.manifest import Bundle, Classifier
from virnucpro.bundles.published import published_names
from virnucpro.classifier.calibration import read_calibration
from virnucpro.classifier.call_options import CallOptions
from virnucpro.classifier.decision import require_applicable
from virnucpro.compute.in_process import CpuHeartbeat, InProcessRank
from virnucpro.compute.preflight import check_disk_space, settled, usable_devices
from virnucpro.compute.rank_launch import ExecutorMaker, RankLaunch
from virnucpro.compute.rank_main import Share
from virnucpro.compute.scheduler import assign_in_turn
from virnucpro.encoders.registry import config_of, require_installed
from virnucpro.errors import UsageError, VirnucproError
from virnucpro.option import chosen_outputs, from_options
from virnucpro.report.extract_options import ExtractOptions
from virnucpro.run.coordinator_files import CoordinatorLog
from virnucpro.run.creation import claimed, created, resumed
from virnucpro.run.execution import Execution
from virnucpro.run.job import Inputs, Job, inputs_of, require_inputs
from virnucpro.run.options import PredictOptions
from virnucpro.run.outputs import survey_segments, write_outputs
from virnucpro.run.report import prepare_report
from virnucpro.run.reporter import Reporter
from virnucpro.run.run import Outcome
from virnucpro.runtime.devices import Device, parse_devices
from virnucpro.sequences.entries import total_bytes
from virnucpro.sequences.input_rules import InputRules
from virnucpro.sequences.items import LEAST_BASES
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import KIND_OF_ITEMS, IndexSpec, Pairs, default_min_length

if TYPE_CHECKING:
    from virnucpro.compute.rank_encoder import Models

_SMALL: Final = 512 << 10
"""Bytes of inputs that this process computes before another process would have started."""

FALLBACK: Final = "mini"
"""Embedded bundle that scores whole windows."""


@from_options(PredictOptions)
def predict_job(inputs: Inputs, options: PredictOptions) -> Job:
    """Return the job of ``virnucpro predict``; the function `predict` computes it.

    Parameters
    ----------
    inputs
        FASTA or FASTQ files: one path or several; ``-`` for standard input.

    Raises
    ------
    BundleError
        If the bundle is missing or damaged; every file is verified.
    UsageError
        If there is no such bundle, it has no classifier, an option is invalid, or the rule of the
        calls needs a calibration that the bundle lacks.
    """
    given: object = options.bundle
    if not isinstance(given, str | os.PathLike | Bundle):
        raise UsageError(f"invalid bundle {given!r}: give its name or folder")
    opened = given if isinstance(given, Bundle) else open_bundle(os.fspath(given))
    window = options.window
    bundle = opened.name if given is opened else given
    require_installed(opened.encoders, f"bundle {opened.name}")
    if opened.head is None:
        raise UsageError(
            f"{bundle}: has encoders but no classifier. Compute vectors with virnucpro embed "
            f"-e {bundle}/{opened.encoders[0].view}, or give a bundle with a classifier."
        )
    calls = _rule_of(options)
    if calls is not None:
        require_applicable(calls, calibrated=opened.calibration is not None)
    kind = KIND_OF_ITEMS[opened.items]
    scores_all = kind == "windows" or not options.fallback
    second = None if scores_all else _fallback()
    code = options.genetic_code
    if kind == "windows" and code not in {None, opened.genetic_code}:
        raise UsageError(
            f"--genetic-code {code}: {bundle} has learnt code {opened.genetic_code} and reads no "
            "other one; leave the option out"
        )
    spec = IndexSpec(
        kind=kind,
        alphabet=Alphabet.NUCLEOTIDE,
        window=opened.window if window is None else window,
        tiling=opened.tiling if options.tiling is None else options.tiling,
        genetic_code=opened.genetic_code if code is None else code,
        fallback=second is not None,
        piece=opened.piece,
        pairs=_pairs_of(options),
    )
    if kind == "windows" and window is not None and window < LEAST_BASES:
        raise UsageError(
            f"--window {window}: {bundle} cannot score windows of fewer than {LEAST_BASES} bases; "
            "give a longer window"
        )
    least = options.min_length
    if least is None:
        fitted = opened.calibration and read_calibration(opened.calibration, opened.path)
        least = default_min_length(spec, fitted.min_bases if fitted else None)
    return Job(
        command="predict",
        inputs=inputs_of(inputs),
        index=replace(spec, min_length=least),
        encoders=opened.encoders,
        model_name=opened.name,
        model=opened.fingerprint,
        options=options,
        head=opened.head,
        labels=opened.labels,
        thresholds=dict(opened.thresholds),
        fallback=second,
        record=opened.record,
        calibration=opened.calibration,
        calls=calls,
        classes=opened.classes,
        viral_classes=viral_classes(opened),
        extracts=_extracts_of(options),
        rules=InputRules(strict=options.strict, max_record=options.max_record),
        bundle_window=opened.window,
        outputs={
            **({"published_files": True} if opened.name in published_names() else {}),
            **chosen_outputs(PredictOptions, options),
        },
        verified_precisions=opened.verified_precisions,
    )


def _pairs_of(options: PredictOptions) -> Pairs | None:
    """Return where the mates of paired reads are; None for single sequences."""
    if options.paired and options.interleaved:
        raise UsageError("--paired is for mates in two files, --interleaved for one; give one")
    return "interleaved" if options.interleaved else "files" if options.paired else None


def _rule_of(options: PredictOptions) -> CallOptions | None:
    """Return the rule of the calls; None if no option of it is given."""
    given = {field.name: getattr(options, field.name) for field in fields(CallOptions)}
    rule = {name: value for name, value in given.items() if value is not None}
    return CallOptions(**rule) if rule else None


def _extracts_of(options: PredictOptions) -> ExtractOptions | None:
    """Return the choice of sequences; None if no option of it is given."""
    if options.extract is None and options.compress is None:
        return None
    calls: Sequence[str] = ("viral",) if options.extract is None else options.extract
    calls = calls.split(",") if isinstance(calls, str) else calls
    return ExtractOptions(tuple(calls), bool(options.compress))


@cache
def _fallback() -> Classifier:
    bundle = open_bundle(FALLBACK)
    assert bundle.head is not None
    return Classifier(bundle.encoders, bundle.head, bundle.fingerprint)


def predict(job: Job, execution: Execution, reporter: Reporter | None = None) -> Outcome:
    """Compute the missing units of a run, then write its outputs.

    Parameters
    ----------
    job
        Result of `predict_job` or `virnucpro.run.embed_job.embed_job`.

    Returns
    -------
    Counts of the results. Rows of a worker that failed permanently are `missing` in the tables; a
    resume computes them.

    Raises
    ------
    UsageError, InputError, RunError, DeviceError
        If the inputs, the run folder or the devices cannot be used. Nothing has been computed.
    WorkerError
        If every rank failed and nothing was computed.
    """
    reporter = reporter or Reporter()
    if not execution.in_process and _is_small(job, execution):
        small = replace(execution, devices="cpu:1", in_process=True)
        try:
            return run_in_process(job, small, reporter)[0]
        except (VirnucproError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - of a row, which a worker can isolate
            reporter.warn(f"{type(error).__name__}: {error}. Workers compute the rest of the run.")
            execution = replace(execution, resume=True, force=False)
    here = execution.in_process and parse_devices(execution.devices, os.environ) == [Device("cpu")]
    compute_in = run_in_process if here else run_on_ranks
    outcome, _ = compute_in(job, execution, reporter)
    return outcome


def _is_small(job: Job, execution: Execution) -> bool:
    """Return whether a new run takes less time than the start of a worker.

    These are runs of encoders without weights, for small files, if no devices are given. A resume
    starts workers: the process of the first attempt may have died of a sequence.
    """
    if execution.devices != "auto" or execution.resume:
        return False
    others = (spec for other in job.others.values() for spec in other.encoders)
    if any(config_of(spec).with_torch for spec in (*job.encoders, *others)):
        return False
    return total_bytes(job.inputs) <= _SMALL


def run_on_ranks(
    job: Job,
    execution: Execution,
    reporter: Reporter,
    device: Device | None = None,
    executor_of: ExecutorMaker | None = None,
) -> tuple[Outcome, int]:
    """Compute the missing units of a run, then write its outputs.

    Parameters
    ----------
    device
        The only device; None for the devices of `execution`. Ranks without a unit are not started.
    executor_of
        Returns the executor of a launch; by default, each rank runs in its own process.

    Returns
    -------
    outcome
        Counts of the results.
    n_units : int
        Number of units that were missing.

    Raises
    ------
    RunError
        If the disk is too small for the missing units. Nothing has been computed.
    WorkerError
        If every rank failed and no unit is committed.
    """
    require_inputs(job.inputs)
    with claimed(job, execution) as manifest:
        job = settled(job, execution, manifest)
        devices = usable_devices(job, execution) if device is None else [device]
        if manifest is None:
            run = created(job, execution, reporter, devices[0].kind)
        else:
            run = resumed(manifest, job, execution, reporter)
        with CoordinatorLog(run.paths, reporter, execution.log_format) as log:
            coverage = survey_segments(run, reporter)
            n_missing = len(coverage.missing)
            if n_missing:
                check_disk_space(run, job, coverage.missing)
                used = devices[:n_missing]
                assigned = assign_in_turn(coverage.missing, range(len(used)))
                shares = {number: Share(units) for number, units in assigned.items()}
                launch = RankLaunch(run, job, used, execution, reporter, log)
                has_time = executor_of is None and bool(run.manifest.calibration)
                early = [prepare_report] if execution.report else []
                with run.quality.computed_meanwhile(*early) if has_time else nullcontext():
                    launch.run(shares, executor_of)
            current = None if n_missing else coverage
            return write_outputs(run, reporter, current, report=execution.report), n_missing


def run_in_process(
    job: Job,
    execution: Execution,
    reporter: Reporter,
    device: Device | None = None,
    models: "Models | None" = None,
    progressed: Callable[[], object] = lambda: None,
) -> tuple[Outcome, int]:
    """Compute the missing units of a run in this process, then write its outputs.

    The function is used for small runs, by processes that compute many runs, and by the Python API.
    The run folder has the usual layout. An error of the rank is raised, without a restart.
    Committed units are kept; a resume computes the rest.

    Parameters
    ----------
    execution
        Options of the run; `max_restarts` and `deadlines` are ignored.
    device
        Device of `models`, recorded in run.json; None for that of `execution`.
    models
        Loaded encoders and classifier of `job`, at its precision; None to load them, if any unit
        is missing.
    progressed
        Called from any thread after each batch, and while files are read or written.

    Returns
    -------
    outcome, n_units
        As `run_on_ranks` returns them.
    """
    execution = replace(execution, max_restarts=0)
    with CpuHeartbeat(progressed) as heartbeat:
        executor_of = partial(InProcessRank, models, heartbeat)
        return run_on_ranks(job, execution, reporter, device, executor_of)
