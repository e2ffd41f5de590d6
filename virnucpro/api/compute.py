"""Run a job of the Python API as the command line runs it."""

import os
import re
import warnings
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from virnucpro.api.run_folder import TEMPORARY, RunFolder
from virnucpro.api.source import InputFiles, Source, input_files, inputs_from, total_bytes
from virnucpro.compute.in_memory import compute_in_memory
from virnucpro.compute.predict import predict, run_in_process
from virnucpro.compute.preflight import check_device_memory, settled
from virnucpro.compute.rank_encoder import Models
from virnucpro.errors import VirnucproError
from virnucpro.option import option, options_of, values_of
from virnucpro.run.execution import Execution, RunOptions
from virnucpro.run.job import Job, require_inputs
from virnucpro.run.outputs import Outcome
from virnucpro.run.reporter import CommandReporter, open_view
from virnucpro.runtime.devices import Device, parse_devices
from virnucpro.runtime.process import leave_unguarded_import
from virnucpro.sequences.entries import Input

if TYPE_CHECKING:
    from virnucpro.api.model import Model

_CALLER = 4
"""Stack level of the function that called the API's function, which `from_options` wraps."""

_SMALL: Final = 32 << 20
"""Larger inputs are computed in a run folder: without one, they would fill the memory."""


_Inputs: TypeAlias = tuple[Input, ...]
_Make: TypeAlias = Callable[[tuple[str, ...]], Job]
"""Returns a job of input files."""


class Computed(NamedTuple):
    """A run: its folder, the counts of its results, and its warnings."""

    folder: RunFolder
    outcome: Outcome
    warnings: tuple[str, ...]


class ApiReporter(CommandReporter):
    """Reporter of the command line that collects warnings, and prints only if `progress`."""

    def __init__(self, inputs: InputFiles, options: "CallerOptions") -> None:
        progress = options.progress
        super().__init__(open_view() if progress else None, quiet=not progress)
        self._inputs, self._progress, self._declared = inputs, progress, type(options)
        self.warnings: dict[str, None] = {}

    def warn(self, text: str) -> None:
        """Collect a warning."""
        text = in_python(self._inputs.described(text), self._declared)
        self.warnings[text] = None
        if self._progress:
            super().warn(text)


@dataclass(frozen=True, kw_only=True)
class CallerOptions(RunOptions):
    """Options of all functions that compute a run."""

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
    model: "Model | None" = None,
) -> Computed:
    """Run the job that `job_of` returns for the inputs of `source`.

    Without an `outdir`, a model computes in memory, and so does this process for small inputs on a
    CPU.

    Parameters
    ----------
    declared
        Dataclass of the options of `job_of`; `options` is an instance of it.
    model
        Loaded encoders and classifiers of the job; None to load them.

    Raises
    ------
    VirnucproError
        The errors of `virnucpro.compute.predict.predict`. A temporary folder is removed.
    """
    leave_unguarded_import()
    named = isinstance(source, str | os.PathLike) and os.path.isfile(source)  # noqa: PTH113 - no error
    folder = RunFolder(options.outdir, name=Path(source).name if named else "sequences")
    make = partial(job_of, **values_of(declared, options))
    try:
        with inputs_from(source) as inputs:
            run = _in_memory if _needs_no_folder(inputs, options, model) else _in_folder
            computed = run(folder, inputs, make, options, model)
        for text in () if options.progress else computed.warnings:
            warnings.warn(text, stacklevel=_CALLER - (model is not None))
    except BaseException as error:
        if isinstance(error, VirnucproError):
            _explain(error, folder, type(options))
        folder.close()
        raise
    return computed


def _needs_no_folder(inputs: _Inputs, options: CallerOptions, model: "Model | None") -> bool:
    if options.outdir is not None or model is not None:
        return options.outdir is None
    checked = Execution(Path(os.devnull), **values_of(RunOptions, options))
    here = parse_devices(checked.devices, os.environ) == [Device("cpu")]
    return here and not options.progress and total_bytes(inputs) <= _SMALL


def _in_memory(
    folder: RunFolder, inputs: _Inputs, make: _Make, options: CallerOptions, model: "Model | None"
) -> Computed:
    require_inputs(tuple(map(str, inputs)))
    execution = Execution(Path(os.devnull), **values_of(RunOptions, options))
    job, reporter = settled(make(()), execution), ApiReporter(InputFiles(()), options)
    with model.models(job) if model else nullcontext(load_models(job)) as models:
        memory = compute_in_memory(job, inputs, models, execution, reporter)
    reporter.finish(memory.outcome)
    folder.memory = memory
    return Computed(folder, memory.outcome, tuple(reporter.warnings))


def _in_folder(
    folder: RunFolder, inputs: _Inputs, make: _Make, options: CallerOptions, model: "Model | None"
) -> Computed:
    with input_files(inputs) as files, closing(ApiReporter(files, options)) as reporter:
        job = make(files.paths)
        execution = Execution(
            folder.path,
            **values_of(RunOptions, options),
            in_process=True,
            report=not folder.temporary,
        )
        if model is None:
            outcome = predict(job, execution, reporter)
        else:
            job = settled(job, execution)
            with model.models(job) as models:
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


def in_python(text: str, declared: type) -> str:
    """Return a message about options of the command line with keywords: ``layer=99``.

    Words of more than 120 letters, such as a sequence in the place of a path, are cut.
    """
    known = {flag: (name, one) for name, one in options_of(declared).items() for flag in one.flags}
    defaults = {one.name: one.default for one in fields(declared)}

    def keyword(match: re.Match[str]) -> str:
        flag, space, word = match.groups("")
        if flag not in known:
            return match[0]
        name, one = known[flag]
        if one.metavar is None and one.choices is None:
            return f"{name}={not defaults[name]}{space}{word}"
        if word in (one.choices or ()) or re.search(r"[\d']", word):
            return f"{name}={word}" if word[0] in "'-0123456789" else f'{name}="{word}"'
        return f"{name}{space}{word}"

    text = re.sub(r"[^\s/]{121,}", lambda match: f"{match[0][:117]}...", text)
    return re.sub(r"(--[a-z-]+)(?:( )('[^']*'|[\w.+-]*\w))?", keyword, text)


def _explain(error: VirnucproError, folder: RunFolder, declared: type) -> None:
    """Rewrite the message of an error, which names options of the command line."""
    error.args = (in_python(str(error), declared), *error.args[1:])
    if folder.temporary and TEMPORARY in str(error):
        error.add_note(
            "The run folder was temporary and is removed. Give an outdir to keep its logs, and to "
            "resume the run."
        )
