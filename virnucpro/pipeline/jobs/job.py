"""What to compute, and who hears how it goes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args

from virnucpro.encoders.base import EncoderSpec, Precision
from virnucpro.errors import UsageError
from virnucpro.runtime.status import WorkerStatus
from virnucpro.sequences.spec import IndexSpec

__all__ = ["EmbeddingsDtype", "Job", "PrecisionChoice", "Reporter", "SilentReporter"]

EmbeddingsDtype: TypeAlias = Literal["fp16", "fp32", "none"]
PrecisionChoice: TypeAlias = Precision | Literal["auto"]

_PRECISIONS: Final = ("auto", *get_args(Precision))
_EMBEDDINGS: Final = get_args(EmbeddingsDtype)


@dataclass(frozen=True, slots=True)
class Job:
    """What to compute. Every part of it changes a number, and stands in the run's fingerprint.

    Attributes
    ----------
    command
        ``predict`` or ``embed``.
    inputs
        FASTA or FASTQ files, ``-`` for standard input.
    model
        Fingerprint of the bundle, or of the one encoder's weights.
    head
        Weights of the classifier; None where vectors are all that is wanted.
    precision
        ``auto`` until the devices are known; see
        `virnucpro.pipeline.scheduling.preflight.with_precision`.
    verified_precisions
        Precisions that the bundle's card lists as compared with fp32; used to resolve ``auto``.

    Raises
    ------
    UsageError
        When there is no such precision, or no such kind of embeddings.
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
    precision: PrecisionChoice = "fp32"
    embeddings: EmbeddingsDtype = "fp16"
    verified_precisions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for what, given, known in (
            ("precision", self.precision, _PRECISIONS),
            ("kind of embeddings", self.embeddings, _EMBEDDINGS),
        ):
            if given not in known:
                raise UsageError(f"no {what} {given!r}: give {', '.join(known)}")

    @property
    def settled_precision(self) -> Precision:
        """What encoders compute with.

        Raises
        ------
        UsageError
            When it is ``auto`` still.
        """
        if self.precision == "auto":
            raise UsageError(
                "precision 'auto' depends on the devices of a run: resolve it first with "
                "virnucpro.pipeline.scheduling.preflight.with_precision, or give fp32, fp16 or bf16"
            )
        return self.precision

    def parameters(self) -> dict[str, Any]:
        """List the parameters that a resume must repeat, by the names that users know."""
        return {
            "bundle": self.model_name,
            "bundle_fingerprint": self.model,
            "alphabet": self.index.alphabet.name.lower(),
            "window": self.index.window,
            "tiling": self.index.tiling,
            "genetic_code": self.index.genetic_code,
            "precision": self.settled_precision,
            "embeddings": self.embeddings,
        }


class Reporter(Protocol):
    """Hears how a run goes on. Shows it, or does not."""

    def stage(self, text: str) -> None:
        """Hear that a stage of the work begins."""

    def ranks(self, statuses: Mapping[int, WorkerStatus]) -> None:
        """Hear what the ranks are doing, about twice a second."""

    def warn(self, text: str) -> None:
        """Hear of something that a person should know."""


class SilentReporter:
    """Shows nothing."""

    def stage(self, text: str) -> None:
        """Show nothing."""

    def ranks(self, statuses: Mapping[int, WorkerStatus]) -> None:
        """Show nothing."""

    def warn(self, text: str) -> None:
        """Show nothing."""
