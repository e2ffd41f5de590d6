"""Scheduling of one launch: restart failed ranks, and move units from busy to idle ranks.

`steal` chooses the units that idle ranks take over (work stealing), and performs no I/O.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from virnucpro.compute.in_process import InProcessRank
from virnucpro.compute.rank_main import RankTask, Share, run_rank
from virnucpro.run.coordinator_files import CoordinatorLog, merge_budgets, write_budgets
from virnucpro.run.execution import Execution
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.policy import Action, decide, findings
from virnucpro.runtime.status import Fault, WorkerState, WorkerStatus
from virnucpro.sequences.partition import deal

if TYPE_CHECKING:
    from virnucpro.runtime.gpu_coordinator import GPUProcessCoordinator

_KEPT = 2
"""Number of units that are never taken from a rank that makes progress.

The rank computes one of them and commits the other.
"""

_SILENT_S = 5.0
"""All open units of a rank can be taken from it if its heartbeat is missing for longer than this.

In seconds, plus three times the start time of a rank and the mean time of a unit.
"""


def assign_in_turn(units: Sequence[int], ranks: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """Return the units of each rank if units are assigned to ranks in turn (round robin).

    A rank that receives no unit is not in the returned dict.
    """
    shares = {
        rank: tuple(deal(units, number, len(ranks))) for number, rank in enumerate(sorted(ranks))
    }
    return {rank: share for rank, share in shares.items() if share}


@dataclass(frozen=True, slots=True)
class BusyRank:
    """State of a rank that is computing units.

    Attributes
    ----------
    share
        All units assigned to the current attempt of the rank.
    left
        Units of `share` that no rank has committed, in order of computation.
    unit_seconds
        Mean seconds per unit; None before the first unit is committed.
    silent
        Seconds since the last heartbeat of the rank.
    failing
        Whether the rank failed at least twice in this launch.
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
    """Choose units that idle ranks take over from the rank with the most uncommitted units.

    If this busy rank makes progress, it keeps its next units; the last units are divided equally
    among the idle ranks. If it fails repeatedly or sends no heartbeat, more units are taken over.
    Units that two ranks already have are not chosen. If two ranks compute the same unit, the
    results are still correct.

    Parameters
    ----------
    busy, idle
        At least one busy rank, and the numbers of the ranks without work.
    start
        Seconds that an idle rank needs before its first unit.
    suspects
        Units in which processes died. A busy rank that is failing keeps these units.

    Returns
    -------
    rank
        Number of the busy rank with the most uncommitted units.
    units
        New units of each idle rank; empty if moving units would not save time.
    """
    slowest = max(busy, key=lambda rank: len(rank.left))
    owners = Counter(unit for rank in busy for unit in rank.share)
    left = [unit for unit in slowest.left if owners[unit] == 1]
    return slowest.rank, assign_in_turn(_available(slowest, left, len(idle), start, suspects), idle)


def _available(
    victim: BusyRank, left: Sequence[int], n_idle: int, start: float, suspects: Collection[int]
) -> Sequence[int]:
    """Return the units of `left` that idle ranks take over from the rank `victim`.

    If `victim` failed at least twice, return all units except `suspects`. If `victim` has sent no
    heartbeat for too long, return all units. If `victim` has committed no unit, or needs little
    time for the rest, return no unit. In all other cases `victim` keeps its first units; return
    the last units, an equal part for each idle rank.
    """
    if victim.failing:
        return [unit for unit in left if unit not in suspects]
    unit = victim.unit_seconds
    if victim.silent > _SILENT_S + 3 * (start + (unit or 0.0)):
        return left
    if unit is None or len(left) * unit <= 2 * start:
        return ()
    free = left[_KEPT:]
    return free[len(free) - len(free) * n_idle // (n_idle + 1) :]


_TICK = 0.5
"""Maximum seconds between two steps of the scheduler."""

_NEXT_STEP = {
    Action.RESTART: "restarted",
    Action.NARROW: "restarted, searching for the row that kills the worker",
    Action.QUARANTINE: "restarted without the row that kills the worker",
}


class CommittedUnits:
    """Finder of units with a committed segment; it lists the files in the shard folders.

    Parameters
    ----------
    run
        The run. Its segments are listed but not read, because commits are atomic.
    rejected
        Segment files that were invalid at the start of the launch. Their units are open until
        the files are replaced.
    """

    def __init__(self, run: RunDirectory, rejected: Collection[Path]) -> None:
        self._run = run
        self._rejected = {(path, path.stat().st_ino) for path in rejected}

    def numbers(self) -> set[int]:
        """List the shards; return the numbers of the units that have a committed segment."""
        return {
            unit
            for unit, path in self._run.segments()
            if not self._rejected or (path, path.stat().st_ino) not in self._rejected
        }


class RankScheduler:
    """Scheduler of one launch: assigns units to ranks until no unit or no rank is left.

    Parameters
    ----------
    ranks
        The processes of the launch, not yet started.
    task
        Parameters that are the same for all ranks.
    shares
        First units of each rank.
    committed
        Finder of the committed units.

    Attributes
    ----------
    reports
        Statistics that each rank sent after it finished its units.
    faults
        All failures of ranks, oldest first.
    """

    def __init__(
        self,
        ranks: "GPUProcessCoordinator | InProcessRank",
        task: RankTask,
        shares: Mapping[int, Share],
        committed: CommittedUnits,
        execution: Execution,
        log: CoordinatorLog,
    ) -> None:
        self._ranks = ranks
        self._task = task
        self._committed = committed
        self._execution = execution
        self._log = log
        self._shares = dict(shares)
        self._handled: set[tuple[int, int]] = set()
        self._pool: list[int] = []
        self._failed: set[int] = set()
        self.reports: list[Mapping[str, Any]] = []
        self.faults: list[Fault] = []

    def run(self, show: Callable[[Mapping[int, WorkerStatus]], None]) -> None:
        """Start all ranks, and return when every rank has ended and none will be restarted.

        `show` is called with the statuses of all ranks about twice a second, and after each change
        of a status.
        """
        self._ranks.spawn_workers(run_rank, (self._task, self._shares))
        while not self._over():
            self._ranks.wait_for_change(_TICK)
            self.step(show)
        self._collect()

    def step(self, show: Callable[[Mapping[int, WorkerStatus]], None]) -> None:
        """Process new reports, restart failed ranks, reassign units, then call `show` once."""
        self._collect()
        self._handle_ends()
        if self._execution.redeal:
            self._reassign()
        show(self._ranks.statuses)

    def finish(self) -> None:
        """Collect the last reports of all ranks, and log each ended rank; restart no rank."""
        self._execution = replace(self._execution, max_restarts=0)
        self._collect()
        self._handle_ends()

    def _collect(self) -> None:
        """Read the new reports that the ranks sent.

        Statistics are added to `reports`. Token budgets are stored for ranks that start later.
        """
        for report in self._ranks.collect_results():
            if "learnt" not in report:
                self.reports.append(report)
                continue
            learnt = merge_budgets(self._task.learnt, report["device"], report["learnt"])
            self._task = replace(self._task, learnt=learnt)
            self._log.budgets_learnt(report["rank"], report["device"], report["learnt"])
            try:
                write_budgets(self._task.run, learnt)
            except OSError as error:
                self._log.budgets_not_kept(error)

    def _is_handled(self, status: WorkerStatus) -> bool:
        return status.ended and (status.rank, status.attempt) in self._handled

    def _over(self) -> bool:
        return all(map(self._is_handled, self._ranks.statuses.values()))

    def _handle_ends(self) -> None:
        for status in self._ranks.statuses.values():
            if status.ended and not self._is_handled(status):
                self._handled.add((status.rank, status.attempt))
                if status.state is WorkerState.FAILED:
                    self._handle_failure(status)
                else:
                    self._log.rank_ended(status)

    def _handle_failure(self, status: WorkerStatus) -> None:
        rank, share = status.rank, self._shares[status.rank]
        left = _without(self._committed.numbers(), share.units)
        before = findings(self.faults)
        self.faults.append(status.fault)
        after = findings(self.faults)
        own = [fault for fault in self.faults if fault.rank == rank]
        action, delay = decide(own, before, after, self._execution.restarts)
        if action is Action.GIVE_UP:
            self._failed.add(rank)
            self._pool += left
            self._log.rank_failed(
                status, f"failed permanently; {len(left):,} of its units are left"
            )
        elif left or share.of_round is not None:  # it may have taken units of other strides
            self._shares[rank] = replace(share, findings=after, prefetch=False)
            self._log.rank_failed(status, f"{_NEXT_STEP[action]} in {delay:g} s")
            self._start(rank, delay)
        else:
            self._log.rank_failed(status, "all of its units are committed")

    def _start(self, rank: int, delay: float = 0.0) -> None:
        assert not isinstance(self._ranks, InProcessRank)  # it raises its error
        self._ranks.respawn_worker(rank, (self._task, self._shares), delay)

    def _reassign(self) -> None:
        """Assign units of permanently failed ranks, or of the busiest rank, to idle ranks."""
        statuses = self._ranks.statuses
        # A rank that was stopped, or that failed after its last unit, is idle and can be started
        # again. A rank with an unhandled failure is not idle: its old units would be lost.
        idle = [
            rank
            for rank, status in statuses.items()
            if self._is_handled(status) and rank not in self._failed
        ]
        busy = [status for status in statuses.values() if not status.ended]
        if not idle or not (busy or self._pool):
            return
        committed = self._committed.numbers()
        pool, self._pool = _without(committed, self._pool), []
        if pool:
            self._assign(assign_in_turn(pool, idle), "failed workers")
        elif busy:
            self._steal([self._busy_rank(status, committed) for status in busy], idle)

    def _steal(self, busy: Sequence[BusyRank], idle: Sequence[int]) -> None:
        assert not isinstance(self._ranks, InProcessRank)  # it is the only rank
        statuses = self._ranks.statuses
        for computing in busy:
            status = statuses[computing.rank]
            if not computing.left and status.done < status.total:
                self._ranks.stop_worker(status.rank, "other workers have computed its units")
        known = findings(self.faults)
        suspects = [unit for rank in busy for unit in rank.left if known.of_task(unit)]
        start = max(_start_seconds(statuses[number]) for number in idle)
        source, units = steal(busy, idle, start, suspects)
        self._assign(units, f"worker {source}")

    def _busy_rank(self, status: WorkerStatus, committed: Collection[int]) -> BusyRank:
        share = self._shares[status.rank].units
        left = _without(committed, share)
        unit_seconds = None
        if len(left) < len(share) and status.began_at is not None:
            working = status.last_heartbeat - status.began_at
            unit_seconds = working / (len(share) - len(left))
        silent = time.monotonic() - status.last_heartbeat
        failing = len(status.faults) > 1
        return BusyRank(status.rank, share, left, unit_seconds, silent, failing)

    def _assign(self, shares: Mapping[int, tuple[int, ...]], source: str) -> None:
        known = findings(self.faults)
        for rank, units in shares.items():
            done = self._ranks.statuses[rank].done
            self._shares[rank] = Share(units, done, known, prefetch=not self.faults)
            self._log.units_reassigned(rank, units, source)
            self._start(rank)


def _without(committed: Collection[int], units: Sequence[int]) -> list[int]:
    return [unit for unit in units if unit not in committed]


def _start_seconds(status: WorkerStatus) -> float:
    """Return the seconds from the start of a rank to the start of its first unit."""
    return (status.began_at or status.last_heartbeat) - status.started_at
