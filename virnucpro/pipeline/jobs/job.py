"""The description of a run (`Job`), and the interface for progress messages (`Reporter`)."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args

from virnucpro.classifier.call_options import CallOptions
from virnucpro.encoders.base import EncoderSpec, Precision
from virnucpro.encoders.pooling import Pooling
from virnucpro.errors import UsageError
from virnucpro.report.extract_options import ExtractOptions
from virnucpro.runtime.status import WorkerStatus
from virnucpro.sequences.input_rules import InputRules
from virnucpro.sequences.spec import IndexSpec

__all__ = [
    "Classifier",
    "EmbeddingsDtype",
    "Inputs",
    "Job",
    "PrecisionChoice",
    "Reporter",
    "SilentReporter",
    "Workload",
    "inputs_of",
    "require_inputs",
]

Inputs: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""One path or several paths, each a str or `os.PathLike`."""


def inputs_of(inputs: Inputs) -> tuple[str, ...]:
    """Return the paths of the input files as a tuple of str; a single str is one path.

    Raises
    ------
    UsageError
        If an entry is neither a str nor `os.PathLike`.
    """
    if isinstance(inputs, str | bytes | os.PathLike) or not isinstance(inputs, Iterable):
        return (_text(inputs),)
    return tuple(map(_text, inputs))


def _text(path: object) -> str:
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise UsageError(f"invalid input {path!r}: give a path as str or os.PathLike")
    return text


def require_inputs(inputs: tuple[str, ...]) -> None:
    """Raise UsageError if the list of inputs is empty.

    Raises
    ------
    UsageError
        If there is no input.
    """
    if not inputs:
        raise UsageError("no input: give at least one FASTA or FASTQ file, or - for standard input")


EmbeddingsDtype: TypeAlias = Literal["fp16", "fp32", "none"]
PrecisionChoice: TypeAlias = Precision | Literal["auto"]

_PRECISIONS: Final = ("auto", *get_args(Precision))
_EMBEDDINGS: Final = get_args(EmbeddingsDtype)


@dataclass(frozen=True, slots=True)
class Classifier:
    """Encoders and head that score items of one kind.

    Attributes
    ----------
    encoders
        Encoders, in the order in which their vectors are joined.
    head
        Weight file of the classifier.
    fingerprint
        Fingerprint of the bundle of encoders and head.
    """

    encoders: tuple[EncoderSpec, ...]
    head: Path
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Job:
    """Inputs, model and parameters of a run: everything that affects its results.

    Attributes
    ----------
    command
        ``predict`` or ``embed``.
    inputs
        FASTA or FASTQ files; ``-`` for standard input.
    model
        Fingerprint of the bundle or of the encoder.
    head
        Weight file of the classifier; None for a run without scores.
    precision
        Precision of the encoders; `virnucpro.pipeline.scheduling.preflight.with_precision`
        resolves ``auto``.
    embeddings
        Precision of the stored vectors; ``none`` to store no vectors. None for that of the run that
        is resumed (`virnucpro.pipeline.scheduling.preflight.as_resumed`), or ``none``.
    fallback
        Scores the windows without an open frame; None to leave these windows without a score.
    calibration
        Calibration of the bundle as JSON; None if it has none.
    classes
        Names of the classifier's classes; empty for a classifier of two classes.
    calls
        Rule of the calls; None for the rule of the run that is resumed, or the default rule. The
        rule does not affect vectors or scores, so a resume may change it.
    extracts
        Which records are written as FASTA; None for the choice of the run that is resumed, or the
        default.
    rules
        Which trouble in the inputs is refused; it does not change the results of accepted inputs.
    min_length
        Least length of a record as the user gave it; None if not given: then a resumed run keeps
        its own, and `index` has the default for a new run.
    bundle_window
        Window of the bundle, for which thresholds and calibration hold; None without a classifier.
    published_files
        Whether the two tables of the published tool are written; None for the choice of the run
        that is resumed, or no.
    formats
        Formats beside embeddings.h5; None for those of the run that is resumed, or none.
    verified_precisions
        Precisions that the bundle's card lists as verified against fp32; used to resolve ``auto``.

    Raises
    ------
    UsageError
        If `precision` or `embeddings` has an unknown value.
    """

    command: str
    inputs: tuple[str, ...]
    index: IndexSpec
    encoders: tuple[EncoderSpec, ...]
    model_name: str
    model: str
    head: Path | None = None
    labels: tuple[str, ...] = ()
    thresholds: Mapping[str, float] = field(default_factory=dict)
    fallback: Classifier | None = None
    calibration: Mapping[str, object] | None = None
    calls: CallOptions | None = None
    classes: tuple[str, ...] = ()
    extracts: ExtractOptions | None = None
    formats: tuple[str, ...] | None = None
    rules: InputRules = field(default_factory=InputRules)
    min_length: int | None = None
    bundle_window: int | None = None
    precision: PrecisionChoice = "fp32"
    embeddings: EmbeddingsDtype | None = None
    published_files: bool | None = None
    verified_precisions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for what, given, known in (
            ("precision", self.precision, _PRECISIONS),
            ("precision of embeddings", self.stored_dtype, _EMBEDDINGS),
        ):
            if given not in known:
                raise UsageError(f"unknown {what} {given!r}: give {', '.join(known)}")

    @property
    def settled_precision(self) -> Precision:
        """Return the precision of the job: fp32, fp16 or bf16.

        Raises
        ------
        UsageError
            If the precision is still ``auto``.
        """
        if self.precision == "auto":
            raise UsageError(
                "precision 'auto' depends on the devices of a run: resolve it first with "
                "virnucpro.pipeline.scheduling.preflight.with_precision, or give fp32, fp16 or bf16"
            )
        return self.precision

    @property
    def pooling(self) -> Pooling:
        """Return the pooling of the encoders."""
        return self.encoders[0].pooling

    @property
    def stored_dtype(self) -> EmbeddingsDtype:
        """Return the precision of the stored vectors; ``none`` if no vectors are stored."""
        return self.embeddings or "none"

    def parameters(self) -> dict[str, Any]:
        """Return name and value of each parameter of this job; a resume needs equal values."""
        parameters = {
            "bundle": self.model_name,
            "bundle_fingerprint": self.model,
            "alphabet": self.index.alphabet.name.lower(),
            "window": self.index.window,
            "tiling": self.index.tiling,
            "genetic_code": self.index.genetic_code,
            "precision": self.settled_precision,
            "embeddings": self.stored_dtype,
        }
        if self.fallback is not None:  # older runs lack this parameter
            parameters["fallback"] = self.fallback.fingerprint
        if self.index.min_length:  # as above
            parameters["min_length"] = self.index.min_length
        return parameters | self.pooling.parameters()


@dataclass(frozen=True, slots=True)
class Workload:
    """What one launch computes.

    Attributes
    ----------
    records, letters
        Numbers of records and of their letters (bases or residues) that the launch computes, by
        the share of the run's rows.
    rows
        Number of rows to compute.
    workers
        Number of workers.
    protein
        Whether the letters are residues.
    resumed
        Whether other rows of the run are finished already.
    shared
        Whether other tasks compute the same rows: nobody knows which of them this launch computes.
    """

    records: int
    letters: int
    rows: int
    workers: int
    protein: bool
    resumed: bool
    shared: bool = False


class Reporter(Protocol):
    """Interface that receives the progress messages of a run."""

    def stage(self, text: str) -> None:
        """Report the start of a stage of the run; `text` describes the stage."""

    def read(self, records: int, letters: int, *, protein: bool) -> None:
        """Report how many records and letters of the inputs have been read."""

    def computing(self, work: Workload) -> None:
        """Report that the computation of `work` starts now."""

    def computed(self) -> None:
        """Report that the workers have ended."""

    def ranks(self, statuses: Mapping[int, WorkerStatus]) -> None:
        """Report the status of all ranks; called about twice a second."""

    def warn(self, text: str) -> None:
        """Report a warning about the run."""


class SilentReporter:
    """A `Reporter` that prints nothing."""

    def stage(self, text: str) -> None:
        """Ignore the message: this reporter prints nothing."""

    def read(self, records: int, letters: int, *, protein: bool) -> None:
        """Ignore the message: this reporter prints nothing."""

    def computing(self, work: Workload) -> None:
        """Ignore the message: this reporter prints nothing."""

    def computed(self) -> None:
        """Ignore the message: this reporter prints nothing."""

    def ranks(self, statuses: Mapping[int, WorkerStatus]) -> None:
        """Ignore the message: this reporter prints nothing."""

    def warn(self, text: str) -> None:
        """Ignore the message: this reporter prints nothing."""
