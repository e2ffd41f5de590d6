"""Encode the rows of a unit in batches; a batch that does not fit into memory is halved."""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import numpy as np

from virnucpro.arrays import Float32Array, IntArray, IntegerArray, joined_ranges
from virnucpro.encoders.base import Encoder
from virnucpro.encoders.batching import Filling, TokenBudget, longest_first
from virnucpro.encoders.device import Shortage, within_memory
from virnucpro.encoders.pooling import MEAN, PoolingPlan

Item = TypeVar("Item")
Made = TypeVar("Made")

_PATIENCE_S = 0.05
"""Seconds after which a missing item of `taken_ahead` counts as a wait."""


def taken_ahead(
    source: Iterator[Item],
    preparation: Callable[[Item], Callable[[], Made] | None],
    wait: Callable[[], object],
) -> Generator[tuple[Item, Future[Made] | None]]:
    """Yield items in order; a thread takes and prepares the next item while the caller uses one.

    The source may wait. The thread ends with the source, or when the iterator is closed and the
    source returns.

    Parameters
    ----------
    preparation
        Returns the function that prepares an item, or None; called in the thread.
    wait
        Called in the caller's thread before it waits for an item, unless the wait is short.

    Yields
    ------
    item
        The item.
    made : Future or None
        Future result or exception of the preparation.
    """
    thread = ThreadPoolExecutor(1, "ahead")

    def take() -> tuple[Item, Future[Made] | None] | None:
        for item in source:
            make = preparation(item)
            return item, None if make is None else thread.submit(make)
        return None

    try:
        coming = thread.submit(take)
        while True:
            if not futures.wait([coming], _PATIENCE_S).done:
                wait()
            if (taken := coming.result()) is None:
                return
            coming = thread.submit(take)
            yield taken
    finally:
        thread.shutdown(wait=False, cancel_futures=True)


class UnitTokens:
    """Token ids of a unit's rows.

    Attributes
    ----------
    unit
        Number of the unit.
    ids
        Token ids of each row; empty for an isolated row (known to kill workers), which is not
        encoded.
    lengths
        (n,) int64, number of tokens of each row.
    order
        (n,) int64, row numbers by descending length. Positions in a `TaskSpan` of an encoder are
        indices into this array.
    refused
        Reason of each row that is too long for the pooling; such a row has no token ids.
    n_vectors
        (n,) int64, number of vectors of each row: 1, or one for each token.
    """

    def __init__(self, unit: int, ids: Sequence[IntegerArray], plan: PoolingPlan = MEAN) -> None:
        self.unit = unit
        self.ids = list(ids)
        self.lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        self.refused: dict[int, str] = {}
        if plan.refusal(int(self.lengths.max(initial=0))):
            reasons = ((row, plan.refusal(n)) for row, n in enumerate(self.lengths.tolist()))
            self.refused = {row: reason for row, reason in reasons if reason}
            for row in self.refused:
                self.ids[row], self.lengths[row] = ids[row][:0], 0
        self.order = longest_first(self.lengths)
        self.n_vectors = plan.n_vectors(self.lengths)
        self._first = np.cumsum(self.n_vectors) - self.n_vectors

    def vectors_of(self, rows: IntArray) -> IntArray:
        """Return the positions of the vectors of `rows`, row by row, among those of the unit."""
        return joined_ranges(self._first[rows], self.n_vectors[rows])


class EncoderPass:
    """One pass of an encoder over a unit: each row is encoded once.

    Parameters
    ----------
    encoder, budget
        The encoder and its token budget, which is adapted to the available memory.
    tokens
        Token ids of the rows of the unit.
    before
        Called with the positions of each batch before it is encoded.
    after
        Called with the number of rows of each batch after it is encoded, or with 1 for a row that
        does not fit into memory.
    prefetch
        Whether to collate and queue the next batch while the device computes the current batch.

    Attributes
    ----------
    vectors
        (vectors, dim) float32; zeros for rows that were not encoded. See
        `UnitTokens.vectors_of`.
    shortages
        Memory shortage of each row that does not fit into memory even alone. The keys are positions
        of rows within the unit.
    reasons
        For each row that is not encoded for good, the reason. The keys are positions of rows within
        the unit.
    filling
        Sums of tokens and token budgets of the encoded batches.
    """

    def __init__(
        self,
        encoder: Encoder,
        budget: TokenBudget,
        tokens: UnitTokens,
        before: Callable[[IntArray], None],
        after: Callable[[int], None],
        *,
        prefetch: bool,
    ) -> None:
        self.vectors = np.zeros((int(tokens.n_vectors.sum()), encoder.dim), np.float32)
        self.shortages: dict[int, Shortage] = {}
        self.reasons = dict(tokens.refused)
        self.filling = Filling()
        self._encoder, self._budget, self._tokens = encoder, budget, tokens
        self._before, self._after, self._prefetch = before, after, prefetch
        # batches that are queued on the device: positions, token budget, wait for the vectors
        self._started: deque[tuple[IntArray, int, Callable[[], Float32Array]]] = deque()

    def run(self, batches: Iterator[IntArray]) -> None:
        """Encode all batches; a batch is an array of indices into `UnitTokens.order`."""
        if self._prefetch:
            with ThreadPoolExecutor(1, "prefetch") as thread:
                collating = ((batch, thread.submit(self._collate, batch)) for batch in batches)
                coming = next(collating, None)
                while coming is not None:
                    (positions, collated), coming = coming, next(collating, None)
                    self._start(positions, collated.result)
        else:
            for positions in batches:
                self._start(positions, partial(self._collate, positions))
        self._fetch(0)

    def _collate(self, positions: IntArray) -> Any:  # noqa: ANN401 - as `Encoder.collate`
        rows = self._tokens.order[positions]
        return self._encoder.collate([self._tokens.ids[row] for row in rows])

    def _start(self, positions: IntArray, collated: Callable[[], Any]) -> None:
        """Queue a batch on the device, then store the vectors of one batch.

        With prefetching, the method waits for the previous batch. Without prefetching, it waits
        for the batch that was just queued.
        """
        self._before(positions)
        budget = self._budget(int(self._lengths(positions).max()))
        fetch = within_memory(lambda: self._encoder.start(collated()))
        if isinstance(fetch, Shortage):
            self._fetch(0)
            self._split(positions, fetch)
        else:
            self._started.append((positions, budget, fetch))
            self._fetch(1 if self._prefetch else 0)

    def _fetch(self, leave: int) -> None:
        """Store the vectors of the oldest batches, until only `leave` batches are queued."""
        while len(self._started) > leave:
            positions, budget, fetch = self._started.popleft()
            vectors = within_memory(fetch)
            if isinstance(vectors, Shortage):
                self._split(positions, vectors)
                continue
            lengths = self._lengths(positions)
            places = self._tokens.vectors_of(self._tokens.order[positions])
            self.vectors[places] = vectors
            self._budget.fitted(int(lengths.max()))
            self.filling = self.filling.after(int(lengths.sum()), budget)
            self._after(len(positions))

    def _split(self, positions: IntArray, shortage: Shortage) -> None:
        """Encode the two halves of a batch that does not fit into memory.

        A batch of one row is not encoded, but recorded in `shortages`.
        """
        if len(positions) == 1:
            self.shortages[int(self._tokens.order[positions[0]])] = shortage
            self._after(1)
            return
        lengths = self._lengths(positions)
        self._budget.lower(int(lengths.max()), int(lengths.sum()))
        for half in np.array_split(positions, 2):
            self._start(half, partial(self._collate, half))

    def _lengths(self, positions: IntArray) -> IntArray:
        lengths: IntArray = self._tokens.lengths[self._tokens.order[positions]]
        return lengths
