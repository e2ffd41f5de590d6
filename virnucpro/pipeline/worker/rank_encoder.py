"""Encoders and classifier of a rank: vectors of a unit's rows, and a retry of single rows."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import torch

from virnucpro.classify.head import load_head
from virnucpro.encoders.base import EncoderSpec, IntArray, Precision
from virnucpro.encoders.batching import MOST_TOKENS, Filling, TokenBudget
from virnucpro.encoders.device import (
    Shortage,
    device_bytes,
    free_bytes,
    open_device,
    probe,
    try_batch,
    within_memory,
)
from virnucpro.encoders.encoder import Encoder
from virnucpro.encoders.memory import require_memory
from virnucpro.encoders.registry import load_encoder, shapes_of
from virnucpro.errors import DeviceError
from virnucpro.pipeline.worker.encoder_pass import EncoderPass, UnitTokens
from virnucpro.pipeline.worker.poison_isolation import FINISHING, Suspicion, UnitSpan, pieces

__all__ = ["Encoded", "FallbackPrecision", "Models", "RankEncoder", "Retry", "encode_alone"]

_LADDER: Final[Mapping[Precision, tuple[Precision, ...]]] = {
    "fp16": ("fp32", "bf16"),
    "bf16": ("fp32",),
}
"""Precisions with a larger range; bf16 needs no more memory than fp16."""


class Retry(NamedTuple):
    """Result of a row that was encoded again, in a batch of its own.

    Attributes
    ----------
    vector
        (dim,) float32 on the CPU; None without a vector.
    precision
        Precision of the vector.
    attempts
        All attempts as text, for the reason of a quarantined row.
    shortage
        The shortage of memory; None if the row fits.
    """

    vector: torch.Tensor | None
    precision: Precision
    attempts: str
    shortage: Shortage | None = None


class FallbackPrecision:
    """An encoder with a larger range, loaded for the first row that needs it.

    Parameters
    ----------
    spec, device, precision
        As `load_encoder` takes them.
    encoder
        The encoder of the run, used again at fp32.
    """

    def __init__(
        self, spec: EncoderSpec, device: str, precision: Precision, encoder: Encoder
    ) -> None:
        self._spec, self._device = spec, device
        self._precision, self._encoder = precision, encoder

    def retry(self, ids: IntArray) -> Retry:
        """Encode one row.

        Raises
        ------
        BundleError
            If the weights have been damaged since the run started.
        """
        encoder, precision, missing = self._opened
        if self._precision == "fp32":
            attempts = "in a batch and alone"
        else:
            attempts = f"at {self._precision} in a batch"
            if encoder is not None:
                attempts += f" and at {precision} alone"
        if missing:
            attempts += (
                f"; too little memory for a higher precision: {missing}. Run this sequence "
                "separately with another --precision or with more memory"
            )
        if encoder is None:
            return Retry(None, self._precision, attempts)
        vectors = encode_alone(encoder, ids)
        if isinstance(vectors, Shortage):
            return Retry(None, precision, attempts, vectors)
        return Retry(vectors[0], precision, attempts)

    @cached_property
    def _opened(self) -> tuple[Encoder | None, Precision, str]:
        """The encoder, its precision, and reasons against the preferred precisions.

        The free memory is compared first: the system kills a process that exceeds it.
        """
        if self._precision == "fp32":
            return self._encoder, "fp32", ""
        missing: list[str] = []
        for wider in _LADDER[self._precision]:
            try:
                self._require_memory(wider)
                loaded = within_memory(partial(load_encoder, self._spec, self._device, wider))
            except DeviceError as error:
                missing.append(str(error).partition(". ")[0])
                continue
            if not isinstance(loaded, Shortage):
                return loaded, wider, "; ".join(missing)
            missing.append(f"{wider} does not fit into the free memory of {self._device}")
        return None, self._precision, "; ".join(missing)

    def _require_memory(self, precision: Precision) -> None:
        """Raise DeviceError if the encoder does not fit beside those of the run."""
        device = open_device(self._device)
        if device.type == "cuda":
            torch.cuda.empty_cache()  # memory of former batches counts as free afterwards
        name, shapes = self._spec.name, shapes_of(self._spec)
        for room in (free_bytes(device), device_bytes(device)):
            require_memory(name, shapes, precision, self._device, room, free=True)


def encode_alone(encoder: Encoder, ids: IntArray) -> torch.Tensor | Shortage:
    """Encode one row: (1, dim) float32 on the CPU."""
    return within_memory(lambda: encoder.encode(encoder.collate([ids])).cpu())


_ORDINARY_TOKENS = 1_024
"""A sequence that fits on any usable device: the longest in the training of ESM-2, plus two."""


class Encoded(NamedTuple):
    """Result of a unit.

    Attributes
    ----------
    vectors
        (n, dim) float32 on the CPU; zeros for rows without a vector.
    reasons
        Row within the unit -> reason why it has no vector.
    filling
        Tokens and budgets of the batches.
    """

    vectors: torch.Tensor
    reasons: Mapping[int, str]
    filling: Filling


class RankEncoder:
    """An encoder with its token budget and its fallback precision.

    Parameters
    ----------
    number
        Position in the order of the run's encoders.
    spec, device, precision
        As `load_encoder` takes them.
    first_budget
        Tokens of a batch before anything is learnt.
    learnt
        Learnt budgets; see `TokenBudget`.

    Attributes
    ----------
    encoder, budget
        The encoder and its token budget.
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
        self.budget = TokenBudget(spec.name, first_budget, learnt)
        self.encoder = load_encoder(spec, device, precision)
        self._name = spec.name
        self._fallback = FallbackPrecision(spec, device, precision, self.encoder)

    def find_budget(self, sequence: bytes, first: int) -> None:
        """Find a first budget by trial if none is known.

        Parameters
        ----------
        sequence
            The longest sequence of the run. Only its length is used: the trial has synthetic
            tokens, so that a poison row cannot kill the process before its position is reported.
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
        prefetch: bool = False,
    ) -> Encoded:
        """Encode a unit's rows, except rows without tokens.

        Parameters
        ----------
        at
            Called before each batch with its position.
        through
            Called after each batch with its number of rows.
        shortest
            Returns the tokens of the run's shortest row; a device must have memory for it. Called
            after a shortage of memory.
        prefetch
            Queue the next batch on the device while the current one is computed. A process that
            dies then may have died of the batch before the last reported one.

        Raises
        ------
        MemoryError
            If rows do not fit that have fitted before, or no row fits.
        """
        work = EncoderPass(
            self.encoder,
            self.budget,
            tokens,
            lambda positions: at(self._span(tokens, positions)),
            through,
            prefetch=prefetch,
        )
        sizes = tokens.lengths[tokens.order]
        sizes = sizes[sizes > 0]
        work.run(pieces(sizes, self.budget, suspicion, self.number))
        too_large: dict[int, str] = {}
        if work.shortages:
            at(UnitSpan(tokens.unit, FINISHING, 0, 0))  # a death from here on is of no row
            self._require_memory(min(shortest(), _ORDINARY_TOKENS))
            too_large = self._too_large(tokens, work.shortages)
        self._learn_from(suspicion, sizes)
        isolated = {
            int(tokens.order[position]): reason
            for position, reason in suspicion.isolated_in(self.number).items()
        }
        return Encoded(work.vectors, isolated | too_large, work.filling)

    def _require_memory(self, n_tokens: int) -> None:
        """Encode one synthetic sequence, to distinguish a large row from a device without memory.

        Raises
        ------
        MemoryError
            If it does not fit.
        """
        shortage = try_batch(self.encoder, n_tokens, n_tokens)
        if shortage is not None:
            raise MemoryError(
                f"not even one sequence of {n_tokens:,} tokens fits into the memory for "
                f"{self._name}{_wanted(shortage)}; no sequence of this run is shorter. Another "
                "process uses the memory of this device, or the device is too small for this "
                "encoder."
            )
        self.budget.fitted(n_tokens)

    def _too_large(self, tokens: UnitTokens, shortages: Mapping[int, Shortage]) -> dict[int, str]:
        """Return the reasons of rows that do not fit.

        Rows are quarantined only if rows of their length have never fitted: a device whose memory
        another process uses, or a faulty one, raises MemoryError instead. The largest length that
        fitted is kept with the budgets, since the worker is restarted after a MemoryError.
        """
        least = min(shortages, key=lambda row: int(tokens.lengths[row]))
        if tokens.lengths[least] <= self.budget.longest_fitted:
            raise MemoryError(
                f"{self._does_not_fit(tokens, least, shortages[least])}; yet rows of up to "
                f"{self.budget.longest_fitted:,} tokens have fitted before. Another process uses "
                "the memory of this device, or the device is faulty."
            )
        return {
            row: f"out_of_memory: {self._does_not_fit(tokens, row, shortage)}"
            for row, shortage in shortages.items()
        }

    def alone(
        self, tokens: UnitTokens, row: int, at: Callable[[UnitSpan], None]
    ) -> tuple[Retry, str]:
        """Encode one row again; return the result and, if it does not fit, the reason."""
        at(self._span(tokens, np.flatnonzero(tokens.order == row)))
        retry = self._fallback.retry(tokens.ids[row])
        if retry.shortage is None:
            return retry, ""
        reason = self._does_not_fit(tokens, row, retry.shortage)
        return retry, f"out_of_memory: {reason}, tried {retry.attempts}"

    def try_alone(self, tokens: UnitTokens, position: int) -> None:
        """Encode the row at a position of the unit's order; discard the vector."""
        ids = tokens.ids[int(tokens.order[position])]
        if len(ids):
            encode_alone(self.encoder, ids)

    def _learn_from(self, suspicion: Suspicion, sizes: IntArray) -> None:
        """Lower the budget below batches that killed processes and did not in halves.

        The kernel kills a process that exceeds the machine's memory, without an error to catch.
        After a death with another cause, smaller batches cost little.
        """
        for span in suspicion.suspects_in(self.number):
            died = sizes[span.start : span.stop]
            if len(died) > 1:
                self.budget.lower(int(died[0]), int(died.sum()))

    def _span(self, tokens: UnitTokens, positions: IntArray) -> UnitSpan:
        return UnitSpan(tokens.unit, self.number, int(positions[0]), int(positions[-1]) + 1)

    def _does_not_fit(self, tokens: UnitTokens, row: int, shortage: Shortage) -> str:
        return (
            f"its {tokens.lengths[row]:,} tokens do not fit into the memory for {self._name}, "
            f"even alone{_wanted(shortage)}"
        )


def _wanted(shortage: Shortage) -> str:
    return f" ({shortage.wanted} more needed)" if shortage.wanted else ""


class Models:
    """The models, loaded.

    Parameters
    ----------
    specs
        In the order in which their vectors are joined.
    head
        Weights of the classifier; None for vectors only.
    device, precision
        As `load_encoder` takes them.
    first_budget
        Tokens of a batch before anything is learnt.
    learnt
        Budgets learnt on such a device.

    Attributes
    ----------
    encoders
        One for each spec.
    head
        The classifier, or None.

    Raises
    ------
    BundleError, DeviceError
        If the weights are damaged, or the device cannot be used.
    """

    def __init__(
        self,
        specs: Sequence[EncoderSpec],
        head: Path | None,
        device: str,
        precision: Precision,
        first_budget: int,
        learnt: Mapping[str, int] | None = None,
    ) -> None:
        self.encoders = [
            RankEncoder(number, spec, device, precision, first_budget, learnt or {})
            for number, spec in enumerate(specs)
        ]
        self.head = None if head is None else load_head(head, device)
