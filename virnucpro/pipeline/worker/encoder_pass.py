"""One pass of a unit's rows through an encoder: batch after batch, in halves what does not fit."""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from virnucpro.encoders.base import IntArray
from virnucpro.encoders.batching import Filling
from virnucpro.encoders.encoder import Encoder
from virnucpro.encoders.memory.out_of_memory import Shortage, within_memory
from virnucpro.encoders.memory.token_budget import TokenBudget
from virnucpro.encoders.packed import Packed
from virnucpro.pipeline.worker.prefetch import prefetch_one
from virnucpro.pipeline.worker.unit_tokens import UnitTokens

__all__ = ["EncoderPass", "fetching"]


class _Launched(NamedTuple):
    """A batch under way: positions along the unit's order, its budget, and how to get its vectors.

    The last waits for the device.
    """

    piece: IntArray
    room: int
    fetch: Callable[[], torch.Tensor]


class EncoderPass:
    """Takes the rows of a unit through an encoder, once.

    Parameters
    ----------
    encoder, budget
        Who encodes, and how many tokens at once. The budget learns from what fits and what not.
    tokens
        The unit.
    begins
        Told before each batch which positions along the unit's order are in it.
    through
        Told after each batch how many rows it had.
    ahead
        Lay the next batch out, and queue it on the device, while the one before it is computed
        there.

    Attributes
    ----------
    vectors
        (n, dim) float32 on the CPU; zeros where there is none.
    shortages
        Row, counted within the unit -> what it was short of. It did not fit even alone.
    filling
        How full the batches were that fitted.
    """

    def __init__(
        self,
        encoder: Encoder,
        budget: TokenBudget,
        tokens: UnitTokens,
        begins: Callable[[IntArray], None],
        through: Callable[[int], None],
        *,
        ahead: bool,
    ) -> None:
        self.vectors = torch.zeros(len(tokens.ids), encoder.dim)
        self.shortages: dict[int, Shortage] = {}
        self.filling = Filling()
        self._encoder = encoder
        self._budget = budget
        self._tokens = tokens
        self._begins = begins
        self._through = through
        self._ahead = ahead
        self._under_way: deque[_Launched] = deque()

    def take(self, batches: Iterator[IntArray]) -> None:
        """Take all batches, each as positions along the unit's order."""
        if self._ahead:
            for piece, laid_out in prefetch_one(batches, self._laid_out):
                self._launch(piece, laid_out.result)
        else:
            for piece in batches:
                self._launch(piece, partial(self._laid_out, piece))
        self._fetch(0)

    def _laid_out(self, piece: IntArray) -> Packed:
        rows = self._tokens.order[piece]
        return self._encoder.collate([self._tokens.ids[row] for row in rows])

    def _launch(self, piece: IntArray, batch: Callable[[], Packed]) -> None:
        """Start a batch; wait for the one before it, or for this one where none is to be ahead."""
        self._begins(piece)
        room = self._budget(int(self._lengths(piece).max()))
        fetch = within_memory(lambda: fetching(self._encoder.encode(batch())))
        if isinstance(fetch, Shortage):
            self._fetch(0)
            self._split(piece, fetch)
        else:
            self._under_way.append(_Launched(piece, room, fetch))
            self._fetch(1 if self._ahead else 0)

    def _fetch(self, leave: int) -> None:
        """Wait for the oldest batches until no more than so many are under way."""
        while len(self._under_way) > leave:
            piece, room, fetch = self._under_way.popleft()
            fetched = within_memory(fetch)
            if isinstance(fetched, Shortage):
                self._split(piece, fetched)
            else:
                self._keep(piece, room, fetched)

    def _keep(self, piece: IntArray, room: int, vectors: torch.Tensor) -> None:
        lengths = self._lengths(piece)
        self.vectors[torch.from_numpy(self._tokens.order[piece])] = vectors
        self._budget.fitted(int(lengths.max()))
        self.filling = self.filling.after(int(lengths.sum()), room)
        self._through(len(piece))

    def _split(self, piece: IntArray, shortage: Shortage) -> None:
        """Try a batch that did not fit by halves; give up a row that does not fit alone."""
        self._budget.was_short()
        if len(piece) == 1:
            self.shortages[int(self._tokens.order[piece[0]])] = shortage
            self._through(1)
            return
        lengths = self._lengths(piece)
        self._budget.lower(int(lengths.max()), int(lengths.sum()))
        for half in np.array_split(piece, 2):
            self._launch(half, partial(self._laid_out, half))

    def _lengths(self, piece: IntArray) -> IntArray:
        lengths: IntArray = self._tokens.lengths[self._tokens.order[piece]]
        return lengths


def fetching(vectors: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Begin to copy a batch's vectors to the CPU.

    Returns
    -------
    callable
        Waits for this copy alone, not for what is queued on the device behind it, and gives it.
    """
    if not vectors.is_cuda:
        return lambda: vectors
    copy = vectors.to("cpu", non_blocking=True)  # pinned: the host goes on at once
    there = torch.cuda.Event()  # type: ignore[no-untyped-call]
    there.record()

    def fetch() -> torch.Tensor:
        there.synchronize()
        return copy

    return fetch
