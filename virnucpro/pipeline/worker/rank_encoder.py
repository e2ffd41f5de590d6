"""One encoder of a rank: what it takes at once, what is too large, rows tried again alone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from virnucpro.encoders.base import EncoderSpec, IntArray, Precision
from virnucpro.encoders.batching import Filling
from virnucpro.encoders.encoder import Encoder
from virnucpro.encoders.memory.out_of_memory import Shortage, within_memory
from virnucpro.encoders.memory.probe import holds, probe
from virnucpro.encoders.memory.token_budget import MOST_TOKENS, TokenBudget
from virnucpro.encoders.registry import load_encoder
from virnucpro.pipeline.worker.encoder_pass import EncoderPass
from virnucpro.pipeline.worker.fallback_precision import Fallback, NoFallback, open_fallback
from virnucpro.pipeline.worker.poison_isolation import FINISHING, Suspicion, UnitSpan, pieces
from virnucpro.pipeline.worker.unit_tokens import UnitTokens

__all__ = ["Again", "Encoded", "RankEncoder"]

_ORDINARY_TOKENS = 1_024
"""A sequence that any device of use holds: the longest that ESM-2 was trained with, and two."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """What became of a unit's rows.

    Attributes
    ----------
    vectors
        (n, dim) float32 on the CPU; zeros where there is none.
    reasons
        Row, counted within the unit -> why it has no vector.
    filling
        How full the batches were.
    """

    vectors: torch.Tensor
    reasons: Mapping[int, str]
    filling: Filling


@dataclass(frozen=True, slots=True)
class Again:
    """What became of a row that was to be encoded again, alone.

    Attributes
    ----------
    vector
        (dim,) float32 on the CPU; None where there is none.
    precision
        What it was computed with.
    how
        What was tried in all: the end of a reason, should it have been in vain.
    too_large
        Why the row is to be set aside, where it did not fit even alone.
    """

    vector: torch.Tensor | None
    precision: Precision
    how: str = ""
    too_large: str = ""


class RankEncoder:
    """An encoder, its budget, and its twin nearer to fp32.

    Parameters
    ----------
    number
        Its place in the order of the run's encoders.
    spec, device, precision
        As `load_encoder` takes them.
    first_budget
        Tokens of a batch of which nothing has been learnt.
    learnt
        What earlier budgets learnt; see `TokenBudget`.

    Attributes
    ----------
    encoder, budget
        Who encodes, and how many tokens at once.
    """

    def __init__(
        self,
        number: int,
        spec: EncoderSpec,
        device: str,
        precision: Precision,
        first_budget: int,
        learnt: Mapping[str, int],
    ) -> None:
        self.number = number
        self.precision = precision
        self.budget = TokenBudget(spec.name, first_budget, learnt)
        self._spec = spec
        self._device = device
        self.encoder: Encoder = load_encoder(spec, device, precision)

    def find_budget(self, sequence: bytes, first: int) -> None:
        """Find a first budget by trial, where none is known.

        Parameters
        ----------
        sequence
            The longest that there will be. Its length alone counts: the trial's tokens are made up,
            so that a row which kills the process does not do so before anybody is told of it.
        first
            Tokens of the first trial.
        """
        if self.budget.known:
            return
        (ids,) = self.encoder.tokenise([sequence])
        self.budget.begin_with(len(ids), probe(self.encoder, len(ids), first, MOST_TOKENS))

    def vectors(
        self,
        tokens: UnitTokens,
        suspicion: Suspicion,
        at: Callable[[UnitSpan], None],
        through: Callable[[int], None],
        *,
        shortest: Callable[[], int],
        ahead: bool = False,
    ) -> Encoded:
        """Encode a unit's rows. Those without tokens are left alone.

        Parameters
        ----------
        at
            Told before each piece of work where it is.
        through
            Told after each how many rows it had.
        shortest
            Gives the tokens of the run's shortest row: what does not hold so many is no device for
            it. Asked where something did not fit.
        ahead
            Lay the next batch out and queue it on the device while the one before is computed
            there. Who dies then, may have died of the batch before the one that was told.

        Raises
        ------
        MemoryError
            When the device does not hold what it has held before, or holds nothing at all.
        """
        work = EncoderPass(
            self.encoder,
            self.budget,
            tokens,
            lambda piece: at(self._place(tokens, piece)),
            through,
            ahead=ahead,
        )
        sizes = tokens.lengths[tokens.order]
        sizes = sizes[sizes > 0]
        work.take(pieces(sizes, self.budget, suspicion, self.number))
        too_large: dict[int, str] = {}
        if work.shortages:
            at(UnitSpan(tokens.unit, FINISHING, 0, 0))  # what dies from here on dies of no row
            self._require_room_for(min(shortest(), _ORDINARY_TOKENS))
            too_large = self._too_large(tokens, work.shortages)
        self._learn_from(suspicion, sizes)
        convicted = {
            int(tokens.order[position]): reason
            for position, reason in suspicion.convicted_in(self.number).items()
        }
        return Encoded(work.vectors, convicted | too_large, work.filling)

    def _require_room_for(self, n_tokens: int) -> None:
        """Try one made-up sequence: the device must have some room at this very moment.

        Raises
        ------
        MemoryError
            When not even that fits.
        """
        shortage = holds(self.encoder, n_tokens, n_tokens)
        if shortage is not None:
            raise MemoryError(
                f"not even one sequence of {n_tokens:,} tokens, no longer than any of this run, "
                f"fits into the memory for {self._spec.name}{_wanted(shortage)}: somebody else "
                "uses the memory of this device, or it has too little for this encoder."
            )
        self.budget.fitted(n_tokens)

    def _too_large(self, tokens: UnitTokens, shortages: Mapping[int, Shortage]) -> dict[int, str]:
        """Tell rows that are too large from a device that is full: others fit there no more either.

        Somebody else's memory, or a device that is bad, is no reason to set rows aside for good.
        What has fitted on such a device is known beyond the process: a rank that fails for want of
        memory starts again.
        """
        least = min(shortages, key=lambda row: int(tokens.lengths[row]))
        if tokens.lengths[least] <= self.budget.longest_fitted:
            raise MemoryError(
                f"{self._does_not_fit(tokens, least, shortages[least])}; yet rows of up to "
                f"{self.budget.longest_fitted:,} tokens have fitted: somebody else uses the memory "
                "of this device, or it is bad."
            )
        return {
            row: f"out_of_memory: {self._does_not_fit(tokens, row, shortage)}"
            for row, shortage in shortages.items()
        }

    def alone(self, tokens: UnitTokens, row: int, at: Callable[[UnitSpan], None]) -> Again:
        """Encode one row by itself, at fp32 or as near to it as there is room for."""
        at(self._place(tokens, np.flatnonzero(tokens.order == row)))
        twin = self._twin
        if isinstance(twin, NoFallback):
            return Again(None, self.precision, _how(self.precision, twin))
        encoded = _encoded_alone(twin.encoder, tokens.ids[row])
        if isinstance(encoded, Shortage):
            reason = f"out_of_memory: {self._does_not_fit(tokens, row, encoded)}"
            return Again(
                None, twin.precision, too_large=f"{reason}, tried again alone at {twin.precision}"
            )
        return Again(encoded[0], twin.precision, _how(self.precision, twin))

    def try_alone(self, tokens: UnitTokens, position: int) -> None:
        """Encode the row at a position of the unit's order by itself, and forget the vector."""
        ids = tokens.ids[int(tokens.order[position])]
        if len(ids):
            _encoded_alone(self.encoder, ids)

    @cached_property
    def _twin(self) -> Fallback | NoFallback:
        """Loaded when a row first needs it, and kept: others will, too."""
        if self.precision == "fp32":
            return Fallback("fp32", self.encoder)
        return open_fallback(self._spec, self._device, self.precision)

    def _learn_from(self, suspicion: Suspicion, sizes: IntArray) -> None:
        """Take batches in which processes died and which went well in halves for too large.

        The kernel kills a process that takes too much memory and raises no error that could be
        caught. Where it was something else, smaller batches cost little.
        """
        for place in suspicion.suspects_in(self.number):
            died = sizes[place.start : place.stop]
            if len(died) > 1:
                self.budget.lower(int(died[0]), int(died.sum()))

    def _place(self, tokens: UnitTokens, positions: NDArray[np.int64]) -> UnitSpan:
        return UnitSpan(tokens.unit, self.number, int(positions[0]), int(positions[-1]) + 1)

    def _does_not_fit(self, tokens: UnitTokens, row: int, shortage: Shortage) -> str:
        return (
            f"its {tokens.lengths[row]:,} tokens do not fit into the memory for "
            f"{self._spec.name}, even alone{_wanted(shortage)}"
        )


def _wanted(shortage: Shortage) -> str:
    return f": {shortage.wanted} more were wanted" if shortage.wanted else ""


def _encoded_alone(encoder: Encoder, ids: IntArray) -> torch.Tensor | Shortage:
    """Encode one sequence: (1, dim) float32 on the CPU."""
    return within_memory(lambda: encoder.encode(encoder.collate([ids])).cpu())


def _how(precision: Precision, twin: Fallback | NoFallback) -> str:
    """Say in words what a row has been tried at."""
    if precision == "fp32":
        return "in a batch and alone"
    tried = f"at {precision} in a batch"
    if isinstance(twin, Fallback):
        tried += f" and at {twin.precision} alone"
    if not twin.short:
        return tried
    return (
        f"{tried}; no nearer to fp32, for want of memory: {twin.short}. A run of its own "
        "at another --precision, or with more memory, may answer it"
    )
