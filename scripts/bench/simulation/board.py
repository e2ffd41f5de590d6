"""Claims and segments in memory, with the rules of `virnucpro.compute.claims`."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from virnucpro.compute.claims import _PATIENCE_S, MOST_COPIES, Unfinished

LOOK_S: Final = _PATIENCE_S[1]
"""Seconds between two looks of a waiting worker; the first looks are more frequent."""

BIN_S: Final = 60.0
"""Seconds over which file system operations are averaged."""

LOOK_CALLS: Final = 4
"""Calls to look at one unfinished unit: the claim's target and time, the segment, the next copy."""

CLOCK_CALLS: Final = 3
"""Calls to read the server's time: a link is made, examined and removed."""


class Claim(NamedTuple):
    """Holder and time of a claim."""

    holder: "SimulatedClaims"
    at: float


class Board:
    """What the shared disk holds: claims and segments, and the clock.

    Attributes
    ----------
    now
        Seconds since the submission.
    claimed
        Units with a claim, for each stride.
    claims
        Claims of each unit: the first one and its copies.
    segments
        Finished computations: worker and unit.
    done_at
        When each unit was first done.
    calls
        Calls to the file system for claims, by minute.
    """

    def __init__(self, strides: int) -> None:
        self.now = 0.0
        self.claimed: list[set[int]] = [set() for _ in range(strides)]
        self.claims: dict[int, list[Claim]] = defaultdict(list)
        self.segments: set[tuple[SimulatedClaims, int]] = set()
        self.done_at: dict[int, float] = {}
        self.calls: Counter[int] = Counter()

    def count(self, calls: int) -> None:
        """Count calls to the file system."""
        self.calls[int(self.now // BIN_S)] += calls


class SimulatedClaims:
    """Claims of one worker, with the rules of `virnucpro.compute.claims.Claims`."""

    def __init__(self, board: Board, task: int, attempt: int) -> None:
        self.task, self.attempt, self.began = task, attempt, board.now
        self.listed: list[int] = []
        self._board = board

    def take(self, unit: int, copy: int = 0) -> bool:
        """Claim a unit, or a further copy of it; return whether this worker has it now."""
        board = self._board
        board.count(1)
        claims = board.claims[unit]
        if copy >= len(claims):
            claims.append(Claim(self, board.now))
            board.claimed[unit % len(board.claimed)].add(unit)
            return True
        holder, at = claims[copy]
        if holder is self:
            return True
        if holder.task != self.task or holder.attempt == self.attempt or at >= self.began:
            return False
        if (holder, unit) in board.segments:
            return False
        claims[copy] = Claim(self, board.now)
        return True

    def claimed(self, stride: int) -> Collection[int]:
        """Return the units of a stride with a claim."""
        self._board.count(1)
        self.listed.append(stride)
        return self._board.claimed[stride]

    def unfinished(self, unit: int) -> Unfinished | None:
        """Return the last claim of a unit; None if the unit is done or has no claim."""
        claims = self._board.claims.get(unit)
        if not claims or any((holder, unit) in self._board.segments for holder, _ in claims):
            return None
        holder, at = claims[-1]
        return Unfinished(len(claims) - 1, at, holder is self)

    def server_time(self) -> float:
        """Return the time."""
        self._board.count(CLOCK_CALLS)
        return self._board.now


class Look(NamedTuple):
    """Time of the next look at the claims of others, and the unfinished units."""

    at: float
    units: Sequence[int]


def copies(
    claims: SimulatedClaims,
    board: Board,
    watched: Sequence[int],
    patience: float,
    interval: float = LOOK_S,
) -> Iterator[int | Look]:
    """Yield units to copy after `patience` seconds, or the next look, as `claim_copies` would.

    A look that can change nothing is left out, so the caller must also resume this iterator when
    the last watched unit is done.
    """
    while watched:
        latest = claims.server_time() - patience
        waiting: list[tuple[float, int]] = []
        for unit in watched:
            claim = claims.unfinished(unit)
            if claim is None:
                continue
            young = not claim.own and claim.claimed_at > latest
            if not young and claim.copy == MOST_COPIES and not claim.own:
                continue
            if not young and (claim.own or claims.take(unit, claim.copy + 1)):
                yield unit
            else:
                waiting.append((claim.claimed_at, unit))
        watched = [unit for _, unit in waiting]
        if watched:
            yield Look(next_look(board.now, min(waiting)[0] + patience, interval), watched)


def next_look(now: float, at: float, interval: float) -> float:
    """Return the time of the first look after `at`, at one interval or several after `now`."""
    return now + interval * max(1, math.ceil((at - now) / interval))
