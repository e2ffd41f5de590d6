"""Work stealing: which units idle ranks take over from ranks at work. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from virnucpro.sequences.partition import deal

__all__ = ["BusyRank", "split", "steal"]

_KEPT = 2
"""Units that a rank which makes progress keeps: the one that it computes, the one that it commits.
"""

_SILENT_S = 5.0
"""Seconds without a heartbeat, beside three starts and units, after which a rank keeps no unit."""


def split(units: Sequence[int], ranks: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Return rank -> units, dealt as at the start of a launch, for ranks that get any."""
    shares = {
        rank: tuple(deal(units, number, len(ranks))) for number, rank in enumerate(sorted(ranks))
    }
    return {rank: share for rank, share in shares.items() if share}


@dataclass(frozen=True, slots=True)
class BusyRank:
    """A rank at work.

    Attributes
    ----------
    share
        All units of its attempt.
    left
        Those that no rank has committed, in the order in which it computes them.
    unit_seconds
        Mean time of a unit; None before the first one.
    silent
        Seconds since its last heartbeat.
    failing
        Whether it failed twice or more in this launch.
    """

    rank: int
    share: Sequence[int]
    left: Sequence[int]
    unit_seconds: float | None
    silent: float
    failing: bool = False


def steal(
    busy: Sequence[BusyRank],
    idle: Sequence[int],
    start: float,
    suspects: Collection[int] = (),
) -> tuple[int, Mapping[int, tuple[int, ...]]]:
    """Choose units of the rank with the most left, if idle ranks end the work sooner with them.

    The idle ranks get its last units, in equal parts with the rank itself. Units that another rank
    has taken over already stay. A unit that is computed twice costs time only.

    Parameters
    ----------
    busy, idle
        Ranks at work, at least one, and ranks without work.
    start
        Seconds that an idle rank needs before its first unit.
    suspects
        Units in which processes died: they are not taken from a failing rank.

    Returns
    -------
    rank
        The rank whose units are chosen.
    units
        Idle rank -> its new units; empty if help would come too late.
    """
    slowest = max(busy, key=lambda one: len(one.left))
    owners = Counter(unit for one in busy for unit in one.share)
    left = [unit for unit in slowest.left if owners[unit] == 1]
    return slowest.rank, split(_available(slowest, left, len(idle), start, suspects), idle)


def _available(
    victim: BusyRank, left: Sequence[int], n_idle: int, start: float, suspects: Collection[int]
) -> Sequence[int]:
    """Return the units among `left` that idle ranks should compute."""
    if victim.failing:
        return [unit for unit in left if unit not in suspects]
    unit = victim.unit_seconds
    if victim.silent > _SILENT_S + 3 * (start + (unit or 0.0)):
        return left
    if unit is None or len(left) * unit <= 2 * start:
        return ()
    free = left[_KEPT:]
    return free[len(free) - len(free) * n_idle // (n_idle + 1) :]
