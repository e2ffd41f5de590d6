"""A discrete-event simulation of one run that many tasks compute: no files, no processes.

Each worker takes units by `claim_units` of the program itself, from claims in memory. Waiting for
the claims of others is computed by events (`copies`), because `claim_copies` blocks; a test
compares the two.
"""

import heapq
import math
import random
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Final

from simulation.board import (
    BIN_S,
    CLOCK_CALLS,
    LOOK_CALLS,
    LOOK_S,
    Board,
    Look,
    SimulatedClaims,
    copies,
    next_look,
)

from virnucpro.compute.claims import (
    _UNIT_TIMES,
    _WATCHED,
    COPY_AFTER_S,
    RoundShare,
    claim_units,
)
from virnucpro.compute.rounds import Round, own_strides
from virnucpro.run_dir import RunDirectory

NOTHING_OPEN_S: Final = 5.0
"""Seconds that a task needs to find that no unit is open; it ends before it imports torch."""


class Policy(StrEnum):
    """How workers choose units."""

    STATIC = "static strides"
    CLAIMS = "claims, no copies"
    COPIES = "claims and copies"


@dataclass(frozen=True, slots=True)
class Scenario:
    """Parameters of one simulated run.

    Attributes
    ----------
    tasks, ranks
        Number of tasks, and of workers in each task. A failure ends all workers of a task.
    units, unit_seconds, unit_spread
        Number of units; their mean seconds of computation on a worker of speed 1; their standard
        deviation as a share of the mean (log-normal).
    policy
        Choice of units.
    start_seconds
        From the start of an attempt to its first unit: imports and weights.
    queue_seconds
        Mean wait of an attempt in the queue (exponential).
    gap_seconds
        Mean time between two tasks that the scheduler starts (exponential); 0: no limit.
    node_spread
        Standard deviation of the logarithm of a node's speed.
    slow_share, slow_factor
        Share of attempts on slow nodes, and the time of a unit there divided by the usual time.
    mtbf_hours
        Mean hours between failures of a worker.
    preempt_hours, limit_hours, lead_seconds
        Mean hours until an attempt is preempted, its time limit, and the seconds between the signal
        and the end. A worker finishes its open unit if it can in this time.
    requeues
        Maximum number of requeues of a task; 0: a lost task is lost for good.
    watched_strides, look_seconds, patience_units
        Number of other strides whose units a worker watches at the end, the seconds between two
        looks, and the age of a claim at its copy in unit times; `claim_copies` has constants.
    seed
        Seed of all draws. Policies with one seed have the same nodes, failures and waits.
    """

    tasks: int
    units: int
    unit_seconds: float
    policy: Policy = Policy.COPIES
    ranks: int = 1
    unit_spread: float = 0.2
    start_seconds: float = 180.0
    queue_seconds: float = 0.0
    gap_seconds: float = 0.0
    node_spread: float = 0.05
    slow_share: float = 0.0
    slow_factor: float = 3.0
    mtbf_hours: float = math.inf
    preempt_hours: float = math.inf
    limit_hours: float = math.inf
    lead_seconds: float = 60.0
    requeues: int = 100
    watched_strides: int = _WATCHED
    look_seconds: float = LOOK_S
    patience_units: float = _UNIT_TIMES
    seed: int = 1


@dataclass(slots=True)
class Outcome:
    """Result of a simulated run; times are in seconds, held times in seconds of one worker.

    Attributes
    ----------
    units, done, double
        Numbers of all units, of units done, and of finished computations beyond the first of each.
    useful, vain, cut, start
        Time of the first computation of each unit, of later ones, of those that a failure or signal
        ended, and of starts.
    held
        Time from start to end of each attempt, for all its workers.
    kept
        Time from the end of each task to the end of the last one: held too in one allocation.
    end
        When the last unit was done, from the submission.
    attempts
        Number of attempts that started.
    calls
        File system calls of claims by minute.
    """

    units: int
    done: int = 0
    double: int = 0
    useful: float = 0.0
    vain: float = 0.0
    cut: float = 0.0
    start: float = 0.0
    held: float = 0.0
    kept: float = 0.0
    end: float = 0.0
    attempts: int = 0
    calls: Counter[int] = field(default_factory=Counter)

    @property
    def left(self) -> int:
        """Return the number of units left for a rescue."""
        return self.units - self.done

    @property
    def idle(self) -> float:
        """Return the share of the time held by the tasks of an array without a useful result."""
        return 1 - self.useful / self.held

    @property
    def idle_allocation(self) -> float:
        """Return the same share if all tasks are held until the last one ends."""
        return 1 - self.useful / (self.held + self.kept)


class _Worker:
    """State of one worker in one attempt."""

    def __init__(self, attempt: "_Attempt", share: RoundShare, board: Board) -> None:
        self.attempt, self.share, self.board = attempt, share, board
        self.claims = SimulatedClaims(board, attempt.task, attempt.number)
        self.taken: set[int] = set()
        self.open: tuple[float, float] | None = None
        self.computed, self.seconds = 0, 0.0
        self.watched: set[int] = set()
        self.waits_since = 0.0
        self.ticket = 0
        self.life: Iterator[float]

    def units(self, policy: Policy) -> Iterator[int]:
        """Yield units, each claimed when the one before it begins."""
        if policy is Policy.STATIC:
            done = self.board.done_at
            found: Iterator[int] = (unit for unit in self.share.units if unit not in done)
        else:
            found = claim_units(self.share, self.claims)  # type: ignore[arg-type]
        coming = next(found, None)
        while coming is not None:
            self.taken.add(coming)
            unit, coming = coming, next(found, None)
            yield unit

    def to_watch(self, watched_strides: int) -> list[int]:
        """Return the unfinished claimed units of the own strides and of the first others."""
        strides = [*self.share.strides, *self.claims.listed[:watched_strides]]
        self.board.count(len(strides))
        done, taken = self.board.done_at, self.taken
        units = (unit for stride in strides for unit in self.board.claimed[stride])
        return sorted(unit for unit in units if unit not in done and unit not in taken)


@dataclass(slots=True)
class _Attempt:
    """State of one attempt of a task."""

    task: int
    number: int
    began: float
    speed: float
    live: int
    workers: list[_Worker] = field(default_factory=list)
    stopping: bool = False


class _Simulation:
    """One simulated run: events in the order of their time."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.board = Board(scenario.tasks * scenario.ranks)
        self.outcome = Outcome(scenario.units, calls=self.board.calls)
        self.round = Round(1, tuple(range(scenario.units)), scenario.tasks * scenario.ranks, "")
        self.run_directory = RunDirectory(Path("simulated"))
        dice, spread = dice_of(f"{scenario.seed}/units"), scenario.unit_spread
        sigma = math.sqrt(math.log1p(spread**2))
        self.seconds = [
            scenario.unit_seconds * math.exp(dice.gauss(-(sigma**2) / 2, sigma))
            for _ in range(scenario.units)
        ]
        self.ended_at: dict[int, float] = {}
        self.waiting: dict[int, list[_Worker]] = defaultdict(list)
        self.events: list[tuple[float, int, str, object]] = []
        self.order = count()

    def at(self, time: float, what: str, whom: object) -> None:
        """Add an event."""
        if time < math.inf:
            heapq.heappush(self.events, (time, next(self.order), what, whom))

    def run(self) -> Outcome:
        """Handle all events."""
        dice, queue = dice_of(f"{self.scenario.seed}/queue"), 0.0
        for task in range(self.scenario.tasks):
            queue += self.scenario.gap_seconds * dice.expovariate(1)
            self.at(queue + self.wait(task, 0), "begin", (task, 0))
        while self.events:
            self.board.now, _, what, whom = heapq.heappop(self.events)
            getattr(self, what)(whom)
        outcome = self.outcome
        outcome.done, outcome.end = len(self.board.done_at), max(self.board.done_at.values())
        outcome.double = len(self.board.segments) - outcome.done
        last = max(self.ended_at.values(), default=0.0)
        outcome.kept = self.scenario.ranks * sum(last - end for end in self.ended_at.values())
        return outcome

    def wait(self, task: int, number: int) -> float:
        """Return the time of an attempt in the queue."""
        dice = dice_of(f"{self.scenario.seed}/wait/{task}/{number}")
        return self.scenario.queue_seconds * dice.expovariate(1)

    def begin(self, key: tuple[int, int]) -> None:
        """Start an attempt."""
        given, now = self.scenario, self.board.now
        task, number = key
        if len(self.board.done_at) == given.units:
            self.outcome.held += given.ranks * NOTHING_OPEN_S
            self.outcome.start += given.ranks * NOTHING_OPEN_S
            self.ended_at[task] = now + NOTHING_OPEN_S
            return
        dice = dice_of(f"{given.seed}/node/{task}/{number}")
        speed = math.exp(dice.gauss(0, given.node_spread))
        speed /= given.slow_factor if dice.random() < given.slow_share else 1
        fails = 3600 * given.mtbf_hours / given.ranks * dice.expovariate(1)
        stops = 3600 * given.preempt_hours * dice.expovariate(1)
        attempt = _Attempt(task, number, now, speed, given.ranks)
        self.outcome.attempts += 1
        self.at(now + fails, "end", attempt)
        self.at(now + min(stops, 3600 * given.limit_hours - given.lead_seconds), "stop", attempt)
        for rank in range(given.ranks):
            strides = own_strides(self.round.strides, task, given.tasks, rank, given.ranks)
            part = f"{task:04d}.{number:08x}"
            share = RoundShare(self.run_directory, part, rank, self.round, tuple(strides))
            worker = _Worker(attempt, share, self.board)
            worker.life = self.live(worker)
            attempt.workers.append(worker)
            self.resume((worker, 0))

    def resume(self, key: tuple[_Worker, int]) -> None:
        """Continue a worker until its next event, unless another event has continued it before."""
        worker, ticket = key
        if ticket != worker.ticket or worker.attempt.live == 0:
            return
        worker.ticket += 1
        if (time := next(worker.life, None)) is not None:
            self.at(time, "resume", (worker, worker.ticket))
            return
        worker.attempt.live -= 1
        if worker.attempt.live == 0:
            self.close(worker.attempt, finished=not worker.attempt.stopping)

    def live(self, worker: _Worker) -> Iterator[float]:
        """Yield the time of a worker's next event, until it ends."""
        yield self.board.now + self.scenario.start_seconds
        for unit in worker.units(self.scenario.policy):
            yield from self.compute(worker, unit)
        if self.scenario.policy is Policy.COPIES:
            yield from self.copy(worker)

    def copy(self, worker: _Worker) -> Iterator[float]:
        """Copy units of others, and wait for them."""
        mean = worker.seconds / max(1, worker.computed)
        watched = worker.to_watch(self.scenario.watched_strides)
        patience = max(COPY_AFTER_S, self.scenario.patience_units * mean)
        interval = self.scenario.look_seconds
        for found in copies(worker.claims, self.board, watched, patience, interval):
            if isinstance(found, Look):
                yield from self.wait_for(worker, found)
            else:
                worker.taken.add(found)
                yield from self.compute(worker, found)

    def wait_for(self, worker: _Worker, look: Look) -> Iterator[float]:
        """Wait until the next look; `compute` ends this when the last watched unit is done."""
        began = self.board.now
        worker.watched, worker.waits_since = {*look.units}, began
        for unit in look.units:
            self.waiting[unit].append(worker)
        yield look.at
        worker.watched.clear()
        ends = sorted(self.board.done_at.get(unit, math.inf) for unit in look.units)
        for second in range(int(began), int(self.board.now), int(self.scenario.look_seconds)):
            unfinished = len(ends) - bisect_right(ends, second)
            self.board.calls[int(second // BIN_S)] += LOOK_CALLS * unfinished + CLOCK_CALLS

    def compute(self, worker: _Worker, unit: int) -> Iterator[float]:
        """Compute a unit and commit it; after a signal, wait for the end of the attempt."""
        board, outcome = self.board, self.outcome
        if worker.attempt.stopping:
            yield math.inf
        seconds = self.seconds[unit] / worker.attempt.speed
        worker.open = board.now, board.now + seconds
        yield board.now + seconds
        worker.open = None
        worker.computed += 1
        worker.seconds += seconds
        board.segments.add((worker.claims, unit))
        if unit in board.done_at:
            outcome.vain += seconds
            return
        outcome.useful += seconds
        board.done_at[unit] = board.now
        for other in self.waiting.pop(unit, ()):
            if unit in other.watched:
                other.watched.remove(unit)
                if not other.watched:
                    look = next_look(other.waits_since, board.now, self.scenario.look_seconds)
                    self.at(look, "resume", (other, other.ticket))

    def stop(self, attempt: _Attempt) -> None:
        """Signal an attempt: open units that end in the lead time are kept."""
        if attempt.live == 0:
            return
        attempt.stopping = True
        lead = self.board.now + self.scenario.lead_seconds
        ends = [worker.open[1] for worker in attempt.workers if worker.open]
        self.at(min(lead, max(ends, default=self.board.now)), "end", attempt)

    def end(self, attempt: _Attempt) -> None:
        """End an attempt that is still running, with all its open units."""
        if attempt.live:
            self.close(attempt, finished=False)

    def close(self, attempt: _Attempt, *, finished: bool) -> None:
        """Account for an attempt, and requeue its task unless it is finished."""
        now, given = self.board.now, self.scenario
        attempt.live = 0
        for worker in attempt.workers:
            self.outcome.cut += now - worker.open[0] if worker.open else 0.0
        held = now - attempt.began
        self.outcome.held += given.ranks * held
        self.outcome.start += given.ranks * min(held, given.start_seconds)
        if finished:
            self.ended_at[attempt.task] = now
        elif attempt.number < given.requeues:
            number = attempt.number + 1
            self.at(now + self.wait(attempt.task, number), "begin", (attempt.task, number))


def simulate(scenario: Scenario) -> Outcome:
    """Simulate a run."""
    return _Simulation(scenario).run()


def dice_of(key: str) -> random.Random:
    """Return a generator of random numbers."""
    return random.Random(key)  # noqa: S311 - no secret
