"""Which rows of a unit go through an encoder when, where an earlier attempt died of one of them.

Pure. A rank that starts again is told in which batches ranks have died: it takes all others first.
A batch in which ranks died twice comes last, in two halves. A death in a half narrows the suspicion
to it, so that one row out of n is found in about log2(n) more starts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from virnucpro.encoders.base import IntArray
from virnucpro.encoders.batching import batches
from virnucpro.runtime.policy import Findings

__all__ = [
    "FINISHING",
    "Suspicion",
    "UnitSpan",
    "Watch",
    "arranged",
    "pieces",
    "suspicion_of",
    "tokenising",
]

FINISHING = -1
"""The stage after the encoders: the head, and what is stored. It concerns no single row."""


def tokenising(encoder: int) -> int:
    """Name the stage in which the rows of a unit become tokens of an encoder."""
    return FINISHING - 1 - encoder


class UnitSpan(NamedTuple):
    """Where a rank is at work: some rows of a unit at one stage. Plain integers.

    Attributes
    ----------
    unit
        The unit's number.
    stage
        An encoder's number in the order of the run; below 0 `tokenising` or `FINISHING`.
    first, stop
        Positions ``first`` to ``stop - 1`` among the unit's rows: for an encoder longest first, as
        it counts tokens, and else as they come. They do not depend on how rows are cut into
        batches.
    """

    unit: int
    stage: int
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What earlier attempts taught about the rows of one unit.

    Attributes
    ----------
    seen
        Where one died, once.
    suspects
        Where they died again; disjoint.
    convicted
        (stage, position) -> why that row is not to be tried again; positions as in `UnitSpan`.
    """

    seen: tuple[UnitSpan, ...] = ()
    suspects: tuple[UnitSpan, ...] = ()
    convicted: Mapping[tuple[int, int], str] = field(default_factory=dict)

    def seen_in(self, stage: int) -> list[range]:
        """Give the positions at a stage that are to be taken late."""
        return _ranges(self.seen, stage)

    def suspects_in(self, stage: int) -> list[range]:
        """Give the positions at a stage that are to be taken last, in halves."""
        return _ranges(self.suspects, stage)

    def convicted_in(self, stage: int) -> dict[int, str]:
        """Give the positions at a stage that are not to be tried again, with the reasons."""
        return {
            position: reason
            for (number, position), reason in self.convicted.items()
            if number == stage
        }


def suspicion_of(findings: Findings, unit: int) -> Suspicion:
    """Tell what the deaths of ranks say of one unit."""
    known = findings.of(unit)
    return Suspicion(
        seen=tuple(UnitSpan(*place) for place in known.seen),
        suspects=tuple(UnitSpan(*place) for place in known.suspects),
        convicted={
            (
                place.stage,
                place.first,
            ): f"kills_process: alone, at first and at last: {fault.reason}"
            for place, fault in known.convicted
        },
    )


class Watch(Protocol):
    """Hears where a unit stands."""

    def at(self, place: UnitSpan) -> None:
        """Hear what is tried next. It must be told to the outside before this returns."""

    def through(self, rows: int) -> None:
        """Hear how many of the unit's rows are through, all encoders counted evenly."""


def pieces(
    lengths: IntArray, budget: Callable[[int], int], suspicion: Suspicion, encoder: int
) -> Iterator[IntArray]:
    """Lay the rows of a unit out for one encoder, in batches; see `arranged`.

    Parameters
    ----------
    lengths
        (n,) tokens of each row, descending.
    budget
        As `batches` takes it; halves stay within it, too.

    Yields
    ------
    (k,) int64, k >= 1
        Positions in `lengths`, ascending; every one that is not convicted exactly once.
    """
    for piece, suspected in arranged(batches(lengths, budget), len(lengths), suspicion, encoder):
        if not suspected:
            yield piece
            continue
        for batch in batches(lengths[piece], budget):
            yield piece[batch.start : batch.stop]


def arranged(
    whole: Iterable[range], n_rows: int, suspicion: Suspicion, stage: int
) -> Iterator[tuple[IntArray, bool]]:
    """Put the work of a stage into an order in which what is suspected holds up nothing else.

    Batches that hold nothing suspected stay as they are, without the rows that are convicted. Then
    come those in which a rank died once; at last the suspected rows, each place in two halves.

    Parameters
    ----------
    whole
        The batches, together all positions from 0 to ``n_rows - 1``.

    Yields
    ------
    (k,) int64, k >= 1
        Positions, ascending; every one that is not convicted exactly once.
    bool
        Whether they are suspected.
    """
    convicted = suspicion.convicted_in(stage)
    suspects = suspicion.suspects_in(stage)
    seen = suspicion.seen_in(stage)
    late: list[range] = []
    for batch in whole:
        for part in _around(batch, suspects):
            if any(_overlap(part, place) for place in seen):
                late.append(part)
            else:
                yield from ((kept, False) for kept in _kept(part, convicted))
    for part in late:
        yield from ((kept, False) for kept in _kept(part, convicted))
    for place in suspects:
        for accused in _kept(range(place.start, min(place.stop, n_rows)), convicted):
            yield from ((half, True) for half in np.array_split(accused, 2) if len(half))


def _ranges(places: tuple[UnitSpan, ...], stage: int) -> list[range]:
    return sorted(
        (range(place.first, place.stop) for place in places if place.stage == stage),
        key=lambda positions: positions.start,
    )


def _overlap(one: range, other: range) -> bool:
    return max(one.start, other.start) < min(one.stop, other.stop)


def _around(batch: range, suspects: list[range]) -> Iterator[range]:
    """Cut a batch into what stands before, between and behind the suspected positions."""
    start = batch.start
    for place in suspects:
        if _overlap(batch, place):
            yield range(start, place.start)
            start = place.stop
    yield range(start, batch.stop)


def _kept(positions: range, convicted: Mapping[int, str]) -> list[IntArray]:
    """Leave out the convicted; no array where nobody is left."""
    kept = [position for position in positions if position not in convicted]
    return [np.array(kept, np.int64)] if kept else []
