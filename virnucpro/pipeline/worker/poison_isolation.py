"""Order of a unit's rows after a worker died in it: suspected rows last, in halves.

Pure. A restarted worker gets the positions at which workers have died. It takes all other batches
first. A batch in which workers died twice comes last, in two halves. A death in a half narrows the
suspicion to that half, so one row out of n is found in about log2(n) restarts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from virnucpro.encoders.base import IntArray
from virnucpro.encoders.batching import batches
from virnucpro.runtime.policy import Findings

__all__ = [
    "FINISHING",
    "Suspicion",
    "UnitSpan",
    "arranged",
    "pieces",
    "suspicion_of",
    "tokenising",
]

FINISHING = -1
"""The stage after the encoders: classifier and storage. No single row is at work."""


def tokenising(encoder: int) -> int:
    """Return the stage in which a unit's rows become tokens of an encoder."""
    return FINISHING - 1 - encoder


class UnitSpan(NamedTuple):
    """Rows of a unit at one stage of the work. Plain integers.

    Attributes
    ----------
    unit
        Number of the unit.
    stage
        Number of an encoder in the order of the run; negative: `tokenising` or `FINISHING`.
    first, stop
        Positions ``first`` to ``stop - 1`` of the unit's rows: by descending length for an
        encoder, else in input order. They do not depend on how rows are batched.
    """

    unit: int
    stage: int
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class Suspicion:
    """Findings of earlier attempts about the rows of one unit.

    Attributes
    ----------
    seen
        Spans in which one worker died.
    suspects
        Spans in which workers died again; disjoint.
    isolated
        (stage, position) -> reason why the row is not tried again; positions as in `UnitSpan`.
    """

    seen: tuple[UnitSpan, ...] = ()
    suspects: tuple[UnitSpan, ...] = ()
    isolated: Mapping[tuple[int, int], str] = field(default_factory=dict)

    def suspects_in(self, stage: int) -> list[range]:
        """Return the positions of a stage that are taken last, in halves."""
        return _ranges(self.suspects, stage)

    def isolated_in(self, stage: int) -> dict[int, str]:
        """Return the positions of a stage that are not tried again, with the reasons."""
        return {at: reason for (number, at), reason in self.isolated.items() if number == stage}


def suspicion_of(findings: Findings, unit: int) -> Suspicion:
    """Return the findings about one unit."""
    known = findings.of(unit)
    return Suspicion(
        seen=tuple(UnitSpan(*span) for span in known.seen),
        suspects=tuple(UnitSpan(*span) for span in known.suspects),
        isolated={
            (
                span.stage,
                span.first,
            ): f"kills_process: encoded alone, it ends its worker: {fault.reason}"
            for span, fault in known.isolated
        },
    )


def pieces(
    lengths: IntArray, budget: Callable[[int], int], suspicion: Suspicion, encoder: int
) -> Iterator[IntArray]:
    """Cut the rows of a unit into batches for one encoder, in the order of `arranged`.

    Parameters
    ----------
    lengths
        (n,) tokens of each row, descending.
    budget
        As `batches` takes it; it limits halves, too.

    Yields
    ------
    (k,) int64, k >= 1
        Positions in `lengths`, ascending; each one that is not isolated exactly once.
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
    """Order the batches of a stage so that suspected rows delay no others.

    Batches without a suspected row come first, unchanged except for isolated rows. Batches in
    which a worker died once follow. The suspected spans are last, each in two halves.

    Parameters
    ----------
    whole
        The batches, together all positions from 0 to ``n_rows - 1``.

    Yields
    ------
    (k,) int64, k >= 1
        Positions, ascending; each one that is not isolated exactly once.
    bool
        Whether they are suspected.
    """
    isolated = suspicion.isolated_in(stage)
    suspects = suspicion.suspects_in(stage)
    seen = _ranges(suspicion.seen, stage)  # taken late

    def kept(positions: range) -> list[IntArray]:
        left = [position for position in positions if position not in isolated]
        return [np.array(left, np.int64)] if left else []

    late: list[range] = []
    for batch in whole:
        for part in _around(batch, suspects):
            if any(_overlap(part, span) for span in seen):
                late.append(part)
            else:
                yield from ((piece, False) for piece in kept(part))
    for part in late:
        yield from ((piece, False) for piece in kept(part))
    for span in suspects:
        for piece in kept(range(span.start, min(span.stop, n_rows))):
            yield from ((half, True) for half in np.array_split(piece, 2) if len(half))


def _ranges(spans: tuple[UnitSpan, ...], stage: int) -> list[range]:
    return sorted(
        (range(span.first, span.stop) for span in spans if span.stage == stage),
        key=lambda positions: positions.start,
    )


def _overlap(one: range, other: range) -> bool:
    return max(one.start, other.start) < min(one.stop, other.stop)


def _around(batch: range, suspects: list[range]) -> Iterator[range]:
    """Cut a batch into its parts before, between and after the suspected positions."""
    start = batch.start
    for span in suspects:
        if _overlap(batch, span):
            yield range(start, span.start)
            start = span.stop
    yield range(start, batch.stop)
