"""The description of a run."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, get_args

from virnucpro.bundles.manifest import Classifier
from virnucpro.classifier.call_options import CallOptions
from virnucpro.encoders.base import EncoderSpec, Precision
from virnucpro.encoders.pooling import Pooling
from virnucpro.errors import UsageError
from virnucpro.option import inherited
from virnucpro.run.options import EmbedOptions, PrecisionChoice, PredictOptions
from virnucpro.sequences.input_rules import InputRules
from virnucpro.sequences.items import PIECE_ITEM, WINDOW_ITEM
from virnucpro.sequences.spec import IndexSpec
from virnucpro.store.schema import EmbeddingsDtype

Inputs: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""One path or several paths, each a str or `os.PathLike`."""


def inputs_of(inputs: Inputs) -> tuple[str, ...]:
    """Return the paths of the input files as a tuple of str; a single str is one path.

    Raises
    ------
    UsageError
        If an entry is neither a str nor `os.PathLike`, or has a NUL.
    """
    if isinstance(inputs, str | bytes | os.PathLike) or not isinstance(inputs, Iterable):
        return (_text(inputs),)
    return tuple(map(_text, inputs))


def _text(path: object) -> str:
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or "\0" in text:
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


JobOptions: TypeAlias = PredictOptions | EmbedOptions


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
    options
        The options as the user gave them. `virnucpro.compute.preflight.settled` resolves the
        precision ``auto``, and takes what is None from the run that is resumed.
    fallback
        Scores the windows without an item; None for a job whose items are whole windows.
    record
        Scores the pieces of records; None for a job that scores windows only.
    classifier
        Fields of the run's `Manifest` that describe the classifier.
    calls
        Rule of the calls; None for the rule of the run that is resumed, or the default rule. The
        rule does not affect vectors or scores, so a resume may change it.
    extracts
        Fields of `ExtractOptions` that are given; the others are as in the run that is resumed, or
        by default.
    rules
        Which trouble in the inputs is refused; it does not change the results of accepted inputs.
    outputs
        Options that choose outputs, by their names; the others are as in the run that is resumed,
        or not chosen.
    formats
        Formats beside embeddings.h5; None for those of the run that is resumed, or none.

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
    options: JobOptions = field(default_factory=PredictOptions)
    head: Path | None = None
    classifier: Mapping[str, Any] = field(default_factory=partial(dict, labels=(), thresholds={}))
    fallback: Classifier | None = None
    record: Classifier | None = None
    calls: CallOptions | None = None
    extracts: Mapping[str, Any] = field(default_factory=dict)
    formats: tuple[str, ...] | None = None
    rules: InputRules = field(default_factory=InputRules)
    outputs: Mapping[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what, given, known in (
            ("precision", self.options.precision, get_args(PrecisionChoice)),
            ("precision of embeddings", self.stored_dtype, get_args(EmbeddingsDtype)),
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
        if self.options.precision == "auto":
            raise UsageError(
                "precision 'auto' depends on the devices of a run: resolve it first with "
                "virnucpro.compute.preflight.settled, or give fp32, fp16 or bf16"
            )
        return self.options.precision

    @property
    def others(self) -> dict[int, Classifier]:
        """Return the classifiers beside `head`, by the kind of the rows that they score."""
        kinds = {WINDOW_ITEM: self.fallback, PIECE_ITEM: self.record}
        return {kind: classifier for kind, classifier in kinds.items() if classifier is not None}

    @property
    def pooling(self) -> Pooling:
        """Return the pooling of the encoders."""
        return self.encoders[0].pooling

    @property
    def stored_dtype(self) -> EmbeddingsDtype:
        """Return the precision of the stored vectors; ``none`` if no vectors are stored."""
        return self.options.embeddings or "none"

    def with_options(self, **changes: Any) -> "Job":  # noqa: ANN401 - values of options
        """Return the job with other values of some options."""
        return replace(self, options=replace(self.options, **changes))

    def parameters(self) -> dict[str, Any]:
        """Return name and value of each parameter of this job; a resume needs equal values.

        These are the model and all options that change numbers, as they are used.
        """
        used = {
            **vars(self.options),
            "window": self.index.window,
            "tiling": self.index.tiling,
            "genetic_code": self.index.genetic_code,
            "min_length": self.index.min_length,
            "precision": self.settled_precision,
            "embeddings": self.stored_dtype,
            **self.pooling.parameters(),
        }
        return {
            "bundle": self.model_name,
            "bundle_fingerprint": self.model,
            **({"fallback": self.fallback.fingerprint} if self.fallback else {}),
            "alphabet": self.index.alphabet.name.lower(),
            **inherited(type(self.options), used),
        }
