"""Task and target function of a rank's process: it computes its share of the plan into its shard.

Light to import: modules that read the device mask are imported inside, after the mask is set.
"""

import gc
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

from virnucpro.encoders.base import EncoderSpec, Precision
from virnucpro.pipeline.jobs.job import EmbeddingsDtype
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.devices import Kind
from virnucpro.runtime.events import LogFormat
from virnucpro.runtime.policy import Findings

if TYPE_CHECKING:
    from virnucpro.pipeline.worker.rank_encoder import Models

__all__ = ["RankChannel", "RankTask", "Share", "UnitProgress", "run_rank"]


@dataclass(frozen=True, slots=True)
class RankTask:
    """The part of a rank's task that is the same for every rank of a launch.

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
        Initial token budget of a batch.
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
        """Report the next `UnitSpan`, which is where a death of the process is located."""
        self._channel.mark(span)

    def through(self, rows: int) -> None:
        """Report the completed rows of the unit, averaged over the encoders."""
        self._channel.progress(self._done + rows, self._total)


def run_rank(
    rank: int,
    world_size: int,
    results: RankChannel,
    task: RankTask,
    shares: Mapping[int, Share],
    models: "Models | None" = None,
) -> None:
    """Embed, score and commit the units of ``shares[rank]`` without a valid segment.

    `models` are loaded models for the task; None to load them.

    Sends ``{"rank", "device", "learnt": {budget: tokens}}`` whenever a token budget changes, and
    at the end ``{"rank", "units", "rows", "seconds": {stage: s}, "again": {precision: rows},
    "filling"}``. A killed rank loses the unit that it computes and the one that it writes.

    Raises
    ------
    BundleError, IndexFormatError, OSError
        If a file is missing or damaged, or a segment cannot be written. Committed segments are
        kept.
    """
    _rank_loop().RankLoop(rank, world_size, results, task, shares[rank], models).run()


def _rank_loop() -> ModuleType:
    """Import the module with torch, after the device mask is set.

    The garbage collector is off during the import and ignores the modules' objects afterwards. It
    would traverse half a million of them several times: a fifth of the time.

    Raises
    ------
    ImportError
        With advice about the installation and the address space.
    """
    name = f"{__package__}.rank_loop"
    if name in sys.modules:
        return sys.modules[name]
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    except ImportError as error:
        error.add_note(
            "The installation is damaged, or the address space is too small: torch needs about "
            "2 GB (see ulimit -v)."
        )
        raise
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
