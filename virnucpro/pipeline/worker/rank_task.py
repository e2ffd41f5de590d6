"""Task of a worker process (a rank): plain data that can be pickled, light to import."""

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

__all__ = ["RankChannel", "RankTask", "Share", "UnitProgress"]


@dataclass(frozen=True, slots=True)
class RankTask:
    """The part that is the same for every rank of a launch.

    Attributes
    ----------
    run
        The run's folder, with index, plan and segments.
    fingerprint
        The run's fingerprint; part of every segment.
    encoders
        In the order in which their vectors are joined.
    head
        Weights of the classifier; None for vectors only.
    unit_rows, unit_positions
        Limits of a unit; with the index they determine the bounds of all units.
    batch_tokens
        First token budget of a batch.
    learnt
        Learnt token budgets by device.
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
    """The work of one rank in one attempt.

    Attributes
    ----------
    units
        Numbers in order. Units with a valid segment are skipped.
    rows_before
        Rows that this rank has completed earlier in the launch; its progress starts there.
    findings
        Findings from the deaths of ranks.
    """

    units: tuple[int, ...]
    rows_before: int = 0
    findings: Findings = field(default_factory=Findings)


class RankChannel(Protocol):
    """Messages of a rank to its coordinator."""

    def put(self, payload: object) -> None:
        """Send a result."""

    def progress(self, done: int, total: int) -> None:
        """Report the number of committed or encoded rows."""

    def mark(self, place: tuple[int, ...]) -> None:
        """Report the next piece of work; it has left the process when this returns."""


class UnitProgress:
    """Reports the work on one unit.

    Parameters
    ----------
    channel
        Receives the reports.
    done
        Rows of all units before this one.
    total
        Rows of all units.
    """

    def __init__(self, channel: RankChannel, done: int, total: int) -> None:
        self._channel, self._done, self._total = channel, done, total

    def at(self, span: tuple[int, ...]) -> None:
        """Report the `UnitSpan` that is next: if the process dies, it died there."""
        self._channel.mark(span)

    def through(self, rows: int) -> None:
        """Report the completed rows of the unit, averaged over the encoders."""
        self._channel.progress(self._done + rows, self._total)
