"""Run a job of the Python API as the command line runs it."""

import os
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from virnucpro.api.run_folder import TEMPORARY, RunFolder
from virnucpro.api.source import InputFiles, Source, input_files, inputs_from
from virnucpro.compute.in_memory import compute_in_memory
from virnucpro.compute.predict import predict, run_in_process
from virnucpro.compute.preflight import check_device_memory, report_unused_gpus, settled
from virnucpro.compute.rank_encoder import Models
from virnucpro.errors import UsageError, VirnucproError
from virnucpro.option import like, option, values_of
from virnucpro.run.execution import Execution, RunOptions
from virnucpro.run.job import Job, require_inputs
from virnucpro.run.reporter import CommandReporter, open_view
from virnucpro.run.run import Outcome
from virnucpro.runtime.devices import Device, parse_devices
from virnucpro.runtime.process import leave_unguarded_import
from virnucpro.sequences.entries import Input, total_bytes

_CALLER = 4
"""Stack level of the function that called the API's function, which `from_options` wraps."""

_SMALL: Final = 32 << 20
"""Larger inputs are computed in a run folder: without one, they would fill the memory."""


_Inputs: TypeAlias = tuple[Input, ...]
_Make: TypeAlias = Callable[[tuple[str, ...]], Job]
"""Returns a job of input files."""
Lend: TypeAlias = Callable[[Job], AbstractContextManager[Models]]
"""Lends loaded encoders and classifiers of a job, for the time of a ``with`` block."""


class Computed(NamedTuple):
    """A run: its folder, the counts of its results, and its warnings."""

    folder: RunFolder
    outcome: Outcome
    warnings: tuple[str, ...]


class ApiReporter(CommandReporter):
    """Reporter of the command line that collects warnings, and prints only if `progress`."""

    def __init__(self, inputs: InputFiles, options: "CallerOptions") -> None:
        progress = options.progress
        super().__init__(open_view() if progress else None, quiet=not progress, force=options.force)
        self._inputs, self._progress = inputs, progress
        self.warnings: dict[str, None] = {}

    def warn(self, text: str) -> None:
        """Collect a warning."""
        text = self._inputs.described(text)
        self.warnings[text] = None
        if self._progress:
            super().warn(text)


@dataclass(frozen=True, kw_only=True)
class CallerOptions(RunOptions):
    """Options of all functions that compute a run."""

    devices: str = like(
        RunOptions,
        "devices",
        help="where to compute: auto (one process for each visible GPU; without a GPU, one worker "
        "in this process), cpu (one worker in this process), 0,1 (GPUs), cpu:2 (two processes)",
    )
    outdir: str | os.PathLike[str] | None = option(
        None,
        group="run",
        help="folder of the run",
        default_text="small inputs: in memory; else a temporary folder in TMPDIR, removed with the "
        "result",
    )
    progress: bool = option(
        False,
        group="run",
        help="whether progress and warnings are printed to standard error, as by the command; "
        "otherwise each warning is a `UserWarning`",
    )


def compute(
    source: Source,
    job_of: Callable[..., Job],
    declared: type,
    options: CallerOptions,
    lend: Lend | None = None,
) -> Computed:
    """Run the job that `job_of` returns for the inputs of `source`.

    Without an `outdir`, a loaded model computes in memory, and so does this process for small
    inputs on a CPU.

    Parameters
    ----------
    declared
        Dataclass of the options of `job_of`; `options` is an instance of it.
    lend
        Lends the loaded encoders and classifiers of a job; None to load them.

    Raises
    ------
    VirnucproError
        The errors of `virnucpro.compute.predict.predict`. A temporary folder is removed.
    """
    leave_unguarded_import()
    if options.outdir is None and options.resume != options.force:
        name = "resume" if options.resume else "force"
        raise UsageError(f"{name}=True needs the outdir of a run")
    name = "sequences"
    if isinstance(source, str | os.PathLike) and os.path.isfile(source):  # noqa: PTH113 - no error
        name = Path(source).name
    folder = RunFolder(options.outdir, name=name)
    make = partial(job_of, **values_of(declared, options))
    try:
        with inputs_from(source) as inputs:
            run = _in_memory if _needs_no_folder(inputs, options, lend) else _in_folder
            computed = run(folder, inputs, make, options, lend)
        for text in () if options.progress else computed.warnings:
            warnings.warn(text, stacklevel=_CALLER - (lend is not None))
    except BaseException as error:
        if folder.temporary and TEMPORARY in str(error) and isinstance(error, VirnucproError):
            error.add_note(
                "The run folder was temporary and is removed. Give an outdir to keep its logs, and "
                "to resume the run."
            )
        folder.close()
        raise
    return computed


def _needs_no_folder(inputs: _Inputs, options: CallerOptions, lend: Lend | None) -> bool:
    if options.outdir is not None or lend is not None:
        return options.outdir is None
    checked = Execution(Path(os.devnull), **values_of(RunOptions, options))
    here = parse_devices(checked.devices, os.environ) == [Device("cpu")]
    return here and not options.progress and total_bytes(inputs) <= _SMALL


def _in_memory(
    folder: RunFolder, inputs: _Inputs, make: _Make, options: CallerOptions, lend: Lend | None
) -> Computed:
    require_inputs(tuple(map(str, inputs)))
    execution = Execution(Path(os.devnull), **values_of(RunOptions, options))
    job, reporter = settled(make(()), execution), ApiReporter(InputFiles(()), options)
    report_unused_gpus(job, execution, reporter)
    with lend(job) if lend else nullcontext(load_models(job)) as models:
        memory = compute_in_memory(job, inputs, models, execution, reporter)
    reporter.finish(memory.outcome)
    folder.memory = memory
    return Computed(folder, memory.outcome, tuple(reporter.warnings))


def _in_folder(
    folder: RunFolder, inputs: _Inputs, make: _Make, options: CallerOptions, lend: Lend | None
) -> Computed:
    with input_files(inputs) as files, closing(ApiReporter(files, options)) as reporter:
        job = make(files.paths)
        execution = Execution(
            folder.path,
            **values_of(RunOptions, options),
            in_process=True,
            report=not folder.temporary,
        )
        if lend is None:
            outcome = predict(job, execution, reporter)
        else:
            job = settled(job, execution)
            with lend(job) as models:
                outcome, _ = run_in_process(job, execution, reporter, models=models)
        reporter.finish(outcome)
    return Computed(folder, outcome, tuple(reporter.warnings))


def load_models(job: Job) -> Models:
    """Load encoders and classifiers of a job on the CPU, if the memory suffices.

    Raises
    ------
    BundleError, DeviceError
        If the weights are damaged, or the device cannot be used.
    """
    check_device_memory(job, [Device("cpu")])
    return Models.of(job, "cpu")
