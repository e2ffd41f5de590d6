"""Parameters and main function of a rank process, which computes units into its shard folder.

The device mask (such as CUDA_VISIBLE_DEVICES) selects the GPU of the process. torch reads it during
the import, so torch is imported inside functions, after the mask is set, for encoders with weights.
"""

import gc
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from virnucpro.bundles.manifest import Classifier
from virnucpro.encoders.base import EncoderSpec, Precision
from virnucpro.encoders.registry import shapes_of
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.devices import Kind
from virnucpro.runtime.policy import Findings
from virnucpro.store.schema import EmbeddingsDtype

if TYPE_CHECKING:
    from virnucpro.compute.rank_encoder import Models


@dataclass(frozen=True, slots=True)
class RankTask:
    """Parameters of a launch that are equal for all its ranks.

    Attributes
    ----------
    run
        The run's folder, with index and segments.
    fingerprint
        The run's fingerprint, which is stored in every segment.
    encoders
        Encoders, in the order in which their vectors are joined.
    head
        Weight file of the classifier; None for a run without scores.
    others
        Classifiers of the rows that `head` does not score, by the kind of these rows.
    unit_rows, unit_positions
        Maximum rows and positions (residues or bases) per unit. The index and these limits
        determine which rows each unit contains.
    batch_tokens
        Initial token budget of a batch.
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
    others: Mapping[int, Classifier] = field(default_factory=dict)


class Assignment(NamedTuple):
    """A unit that a rank computes next, and the rows of this unit at which ranks died.

    `prefetch` is false for a unit that a rank held when it died: its rows must not be tokenised in
    advance, or the cause of a second death would be unknown, too.
    """

    unit: int
    findings: Findings
    prefetch: bool = True


@dataclass(frozen=True, slots=True)
class Share:
    """The units that one rank computes first in one attempt, and what it must know about them.

    Attributes
    ----------
    units
        Unit numbers. Units with a valid segment are skipped.
    rows_before
        Number of rows that this rank committed earlier in the launch. The reported progress
        starts from this number.
    findings
        Rows at which ranks died in this launch.
    prefetch
        Whether a second thread may tokenise the next unit. False once a rank has died in this
        launch: the rows of a death in a second thread are not known.
    """

    units: tuple[int, ...]
    rows_before: int = 0
    findings: Findings = field(default_factory=Findings)
    prefetch: bool = True


class RankChannel(Protocol):
    """Interface for messages from a rank to its coordinator."""

    def put(self, payload: Mapping[str, Any]) -> None:
        """Send a report of the rank to the coordinator."""

    def progress(self, done: int, total: int) -> None:
        """Report the number of finished rows and the number of all rows to the coordinator."""

    def ask(self) -> Assignment | None:
        """Return the next unit, from any thread; None if no further unit follows. May wait."""

    def mark(self, place: tuple[int, ...]) -> None:
        """Report the rows that are computed next (`place`, a `TaskSpan`); return after sending.

        An empty place reports that the rank waits: no row is suspected if it dies.
        """


class UnitProgress:
    """Reporter of the progress of one unit to the coordinator.

    Parameters
    ----------
    channel
        Receives the reports.
    done
        Number of rows in all units before this unit.
    total
        Number of rows in all units.
    """

    def __init__(self, channel: RankChannel, done: int, total: int) -> None:
        self._channel, self._done, self._total = channel, done, total

    def report_next(self, span: tuple[int, ...]) -> None:
        """Report `span`, the rows computed next; these rows are suspected if the process dies."""
        self._channel.mark(span)

    def report_encoded(self, rows: int) -> None:
        """Report `rows`, the encoded rows of the unit so far (mean over all encoders)."""
        self._channel.progress(self._done + rows, self._total)


def run_rank(
    rank: int,
    world_size: int,
    results: RankChannel,
    task: RankTask,
    shares: Mapping[int, Share],
    models: "Models | None" = None,
) -> None:
    """Embed, score and commit units without a valid segment, those of ``shares[rank]`` first.

    `models` are the loaded models of the task; None to load the models here. If a rank is killed,
    at most two units are lost: the unit that it computes and the unit that it writes.

    The rank sends a dict with the keys rank, committed (a unit) and rows (their number) after each
    commit. At the end, it sends a dict with the keys rank, units (their number), seconds (stage ->
    seconds), recomputed (rows at fp32, alone) and filling (sums of tokens and token budgets over
    all batches).

    Raises
    ------
    BundleError, IndexFormatError, OSError
        If a file is missing or damaged, or a segment cannot be written. Committed segments are
        kept.
    """
    _rank_loop(task).RankLoop(rank, world_size, results, task, shares[rank], models).run()


def rank_modules(task: RankTask) -> list[str]:
    """Return the modules that a rank imports: its loop, and torch's if encoders have weights."""
    loop = f"{__package__}.rank_loop"
    return [loop, "virnucpro.encoders.encoder"] if shapes_of(*task.encoders) else [loop]


def _rank_loop(task: RankTask) -> ModuleType:
    """Import and return the module `rank_loop`; import torch, if encoders of the task have weights.

    The garbage collector is off during the import, and ignores the objects of the modules
    afterwards. A collector that is on traverses half a million objects several times, which takes a
    fifth of the import time.

    Raises
    ------
    ImportError
        If torch cannot be imported; a note names possible causes.
    """
    needed = rank_modules(task)
    if set(needed) <= sys.modules.keys():
        return sys.modules[needed[0]]
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        loop, *_ = map(import_module, needed)
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
    return loop
