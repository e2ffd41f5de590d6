"""Who does what next, once ranks have failed or run out of work. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from virnucpro.sequences.partition import deal

__all__ = ["Straggler", "lend", "spread"]

_KEPT = 2
"""Units that a rank which makes progress keeps: the one it computes, the one it commits."""

_SILENT_S = 5.0
"""Silence in seconds, beside three starts and units, after which a rank keeps nothing."""


def spread(units: Sequence[int], ranks: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Deal units to ranks as a launch does; who gets none is left out."""
    shares = {
        rank: tuple(deal(units, number, len(ranks))) for number, rank in enumerate(sorted(ranks))
    }
    return {rank: share for rank, share in shares.items() if share}


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank at work while others have nothing to do.

    Attributes
    ----------
    left
        Its units that nobody has done, in the order in which it takes them.
    unit_seconds
        What a unit takes it; None where it has done none yet.
    silent
        Seconds since it was heard of.
    """

    left: Sequence[int]
    unit_seconds: float | None
    silent: float


def lend(straggler: Straggler, idle: Sequence[int], start: float) -> Mapping[int, tuple[int, ...]]:
    """Choose which of a rank's units idle ranks do, where that ends the work sooner.

    They get the last ones, in equal parts with the rank's own. A unit done twice costs work and
    harms nothing.

    Parameters
    ----------
    idle
        Ranks that have nothing to do.
    start
        Seconds that a rank needs before it does its first unit.

    Returns
    -------
    Idle rank -> its units; empty where help would come too late.
    """
    unit = straggler.unit_seconds
    if straggler.silent > _SILENT_S + 3 * (start + (unit or 0.0)):
        return spread(straggler.left, idle)
    free = list(straggler.left[_KEPT:])
    if unit is None or len(straggler.left) * unit <= 2 * start:
        return {}
    taken = len(free) * len(idle) // (len(idle) + 1)
    return spread(free[len(free) - taken :], idle)
