"""Which rows of a unit go through an encoder when, where an earlier attempt died of one of them.

Pure. A rank that died twice in the same batch is told so when it starts again: it takes all other
batches first and the suspected rows last, in two halves. A death in a half narrows the suspicion to
it, so that one row out of n is found in about log2(n) more starts.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from virnucpro.encoders.base import IntArray
from virnucpro.encoders.batching import batches

__all__ = ["Place", "Suspicion", "Watch", "pieces"]


class Place(NamedTuple):
    """Where a rank is at work: some rows of a unit in one encoder. Plain integers.

    Attributes
    ----------
    unit
        The unit's number.
    encoder
        The encoder's number in the order of the run.
    first, stop
        Positions ``first`` to ``stop - 1`` among the unit's rows, longest first as the encoder
        counts tokens. They do not depend on how the rows are cut into batches.
    """

    unit: int
    encoder: int
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What earlier attempts taught about the rows of one unit.

    Attributes
    ----------
    suspect
        Where they died.
    convicted
        (encoder, position) -> why that row is not to be tried again; positions as in `Place`.
    """

    suspect: Place | None = None
    convicted: Mapping[tuple[int, int], str] = field(default_factory=dict)

    def suspects(self, encoder: int) -> range:
        """Give the suspected positions in an encoder."""
        if self.suspect is None or self.suspect.encoder != encoder:
            return range(0)
        return range(self.suspect.first, self.suspect.stop)

    def convicted_in(self, encoder: int) -> dict[int, str]:
        """Give the positions in an encoder that are not to be tried again, with the reasons."""
        return {
            position: reason
            for (number, position), reason in self.convicted.items()
            if number == encoder
        }


class Watch(Protocol):
    """Hears where a unit stands."""

    def at(self, place: Place) -> None:
        """Hear what is tried next. It must be told to the outside before this returns."""

    def through(self, rows: int) -> None:
        """Hear how many of the unit's rows are through, all encoders counted evenly."""


def pieces(
    lengths: IntArray, budget: Callable[[int], int], suspicion: Suspicion, encoder: int
) -> Iterator[IntArray]:
    """Lay the rows of a unit out for one encoder: whole batches, then what is suspected.

    Batches that hold nothing suspected are those of `batches`, without the rows that are
    convicted. Of the others, the suspected rows come last, in two halves, neither over the budget.

    Parameters
    ----------
    lengths
        (n,) tokens of each row, descending.
    budget
        As `batches` takes it.

    Yields
    ------
    (k,) int64, k >= 1
        Positions in `lengths`, ascending; every one that is not convicted exactly once.
    """
    convicted = suspicion.convicted_in(encoder)
    suspects = suspicion.suspects(encoder)
    for batch in batches(lengths, budget):
        for part in _around(batch, suspects):
            yield from _kept(part, convicted)
    left = [position for position in suspects if position < len(lengths)]
    for accused in _kept(left, convicted):
        for half in np.array_split(accused, 2):
            for batch in batches(lengths[half], budget):
                yield half[batch.start : batch.stop]


def _around(batch: range, suspects: range) -> tuple[range, ...]:
    """Cut a batch into what stands before the suspected positions and what stands behind them."""
    if not range(max(batch.start, suspects.start), min(batch.stop, suspects.stop)):
        return (batch,)
    return range(batch.start, suspects.start), range(suspects.stop, batch.stop)


def _kept(
    positions: Iterator[int] | list[int] | range, convicted: Mapping[int, str]
) -> list[IntArray]:
    """Leave out the convicted; no array where nobody is left."""
    kept = [position for position in positions if position not in convicted]
    return [np.array(kept, np.int64)] if kept else []
