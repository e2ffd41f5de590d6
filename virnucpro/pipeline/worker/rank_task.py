"""What a rank is told: plain data, light to import, picklable."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from virnucpro.encoders.base import EncoderSpec, Precision
from virnucpro.pipeline.jobs.job import EmbeddingsDtype
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.devices import Kind
from virnucpro.runtime.events import LogFormat
from virnucpro.runtime.policy import Findings

__all__ = ["RankChannel", "RankTask", "Share"]


@dataclass(frozen=True, slots=True)
class RankTask:
    """What is the same for every rank of a launch.

    Attributes
    ----------
    run
        The run's folder; holds the index, the plan and, in the end, the segments.
    fingerprint
        The run's; stands in every segment.
    encoders
        In the order in which their vectors are joined.
    head
        Weights of the classifier, or None where vectors are all that is wanted.
    unit_rows, unit_positions
        Caps of a unit; with the index they determine all unit bounds.
    batch_tokens
        First budget of a batch: tokens of all its sequences.
    learnt
        Budgets that ranks have learnt, by device.
    """

    run: RunDirectory
    fingerprint: str
    encoders: tuple[EncoderSpec, ...]
    head: Path | None
    precision: Precision
    embeddings: EmbeddingsDtype
    unit_rows: int
    unit_positions: int
    batch_tokens: int
    torch_device: Kind
    threads: int
    learnt: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    log_format: LogFormat = "text"


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank is to do in one attempt.

    Attributes
    ----------
    units
        In their order. Those that have a valid segment by now are passed over.
    rows_before
        Rows of shares that this rank has done earlier in the launch: its progress goes on there.
    findings
        What the deaths of ranks have taught of these units.
    """

    units: tuple[int, ...]
    rows_before: int = 0
    findings: Findings = field(default_factory=Findings)


class RankChannel(Protocol):
    """What a rank may say to its coordinator."""

    def put(self, payload: object) -> None:
        """Send a result."""

    def progress(self, done: int, total: int) -> None:
        """Say how many rows are committed or encoded, of how many."""

    def mark(self, place: tuple[int, ...]) -> None:
        """Say on which piece of work this rank begins."""
