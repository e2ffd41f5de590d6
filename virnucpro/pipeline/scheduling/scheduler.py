"""Keeps the ranks of a launch at work: restarts, re-deals, and ends what is needed no more."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.run.coordinator_log import CoordinatorLog
from virnucpro.pipeline.run.token_budgets import merge_budgets, write_budgets
from virnucpro.pipeline.scheduling.work_stealing import Straggler, lend, spread
from virnucpro.pipeline.worker.rank_main import run_rank
from virnucpro.pipeline.worker.rank_task import RankTask, Share
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.gpu_coordinator import GPUProcessCoordinator
from virnucpro.runtime.policy import Action, decide, findings
from virnucpro.runtime.status import Fault, WorkerState, WorkerStatus

__all__ = ["OpenUnits", "RankScheduler"]

_TICK = 0.5
"""Seconds between two looks at the ranks where nothing happens."""

_TOLD = {
    Action.RESTART: "started again",
    Action.NARROW: "started again, taking what it died in by halves",
    Action.QUARANTINE: "started again without the one row that it dies of",
}


class OpenUnits:
    """Tells which units nobody has committed yet, by the files that are there.

    Parameters
    ----------
    run
        Its shards are looked at, not into: whatever a launch commits is whole.
    rejected
        Files that did not count when the launch began; one that was written anew does.
    """

    def __init__(self, run: RunDirectory, rejected: Collection[Path]) -> None:
        self._run = run
        self._rejected = {(path, path.stat().st_ino) for path in rejected}

    def among(self, units: Sequence[int]) -> list[int]:
        """Keep the units that are still to be done, in their order."""
        committed = {
            unit
            for unit, path in self._run.segments()
            if not self._rejected or (path, path.stat().st_ino) not in self._rejected
        }
        return [unit for unit in units if unit not in committed]


class RankScheduler:
    """One launch: the first wave is the plan dealt to all ranks, further ones are what is left.

    Parameters
    ----------
    coordinator
        Not yet spawned.
    task
        What all ranks are told.
    plan
        The units to do.
    open_units
        Says which of them are done.

    Attributes
    ----------
    reports
        What the ranks said when they were done.
    faults
        All failures of ranks, in the order in which they were seen.
    given_up
        Ranks that are not started again.
    """

    def __init__(
        self,
        coordinator: GPUProcessCoordinator,
        task: RankTask,
        plan: Sequence[int],
        open_units: OpenUnits,
        execution: Execution,
        story: CoordinatorLog,
    ) -> None:
        self._coordinator = coordinator
        self._task = task
        self._open = open_units
        self._execution = execution
        self._story = story
        ranks = range(coordinator.world_size)
        self._shares = {rank: Share(units) for rank, units in spread(plan, ranks).items()}
        self._heard: set[tuple[int, int]] = set()
        self._pool: list[int] = []
        self.reports: list[Mapping[str, Any]] = []
        self.faults: list[Fault] = []
        self.given_up: set[int] = set()

    def run(self, look: Callable[[Mapping[int, WorkerStatus]], None]) -> None:
        """Go on until all is done, or nobody is left to do it.

        `look` is told the ranks' statuses about twice a second, and whenever one changes.
        """
        self._coordinator.spawn_workers(run_rank, (self._task, self._shares))
        while not self._over():
            self._coordinator.wait_for_change(_TICK)
            self._collect()
            for rank, status in self._coordinator.statuses.items():
                if status.ended and (rank, status.attempt) not in self._heard:
                    self._heard.add((rank, status.attempt))
                    self._hear_end(status)
            if self._execution.redeal:
                self._hand_out()
            look(self._coordinator.statuses)
        self._collect()

    def _collect(self) -> None:
        """Take what the ranks report: budgets, for all that start from now on, and their sums."""
        for report in self._coordinator.collect_results():
            if "learnt" not in report:
                self.reports.append(report)
                continue
            learnt = merge_budgets(self._task.learnt, report["device"], report["learnt"])
            self._task = replace(self._task, learnt=learnt)
            self._story.learnt(report["rank"], report["device"], report["learnt"])
            try:
                write_budgets(self._task.run, learnt)
            except OSError as error:
                self._story.budgets_not_kept(error)

    def _over(self) -> bool:
        statuses = self._coordinator.statuses
        return all(
            status.ended and (rank, status.attempt) in self._heard
            for rank, status in statuses.items()
        )

    def _hear_end(self, status: WorkerStatus) -> None:
        rank = status.rank
        if status.state is not WorkerState.FAILED:
            self._story.ended(status)
            return
        left = self._open.among(self._shares[rank].units)
        before = findings(self.faults)
        self.faults.append(status.fault)
        after = findings(self.faults)
        own = [fault for fault in self.faults if fault.rank == rank]
        decision = decide(own, before, after, self._execution.restarts)
        if not left and decision.action is not Action.GIVE_UP:
            self._story.failed(status, "nothing of its share is left to do")
            return
        if decision.action is not Action.GIVE_UP:
            share = self._shares[rank]
            self._shares[rank] = Share(share.units, share.rows_before, after)
            self._story.failed(status, f"{_TOLD[decision.action]} in {decision.delay:g} s")
            self._start(rank, decision.delay)
            return
        self.given_up.add(rank)
        self._pool += left
        self._story.failed(status, f"given up; {len(left):,} of its units are left")

    def _start(self, rank: int, delay: float = 0.0) -> None:
        self._coordinator.respawn_worker(rank, (self._task, self._shares), delay)

    def _hand_out(self) -> None:
        """Give idle ranks what was given up, or what others would be waited for."""
        statuses = self._coordinator.statuses
        # One that was stopped, or died at its end, too: what ailed it need not ail the next one.
        # But none that has failed since ends were heard: what it leaves has not been seen to.
        idle = [
            rank
            for rank, one in statuses.items()
            if one.ended and (rank, one.attempt) in self._heard and rank not in self.given_up
        ]
        busy = [one for one in statuses.values() if not one.ended]
        if not idle or not (busy or self._pool):
            return
        pool, self._pool = self._open.among(self._pool), []
        if pool:
            self._give(spread(pool, idle), "ranks that were given up")
        elif busy:
            self._relieve(busy, idle)

    def _relieve(self, busy: Sequence[WorkerStatus], idle: Sequence[int]) -> None:
        shared = [unit for one in busy for unit in self._shares[one.rank].units]
        lefts = {one.rank: self._open.among(self._shares[one.rank].units) for one in busy}
        for one in busy:
            if not lefts[one.rank] and one.done < one.total:
                self._coordinator.stop_worker(one.rank, "others have done its units")
        slowest = max(busy, key=lambda one: len(lefts[one.rank]))
        left = [unit for unit in lefts[slowest.rank] if shared.count(unit) == 1]
        if not left:
            return
        if len(slowest.faults) > 1:  # whatever ails it: what it did not die of need not wait
            known = findings(self.faults)
            clean = [unit for unit in left if not known.of(unit)]
            self._give(spread(clean, idle), f"rank {slowest.rank}")
            return
        loads = [self._load_seconds(rank) for rank in idle]
        lent = lend(self._straggler(slowest, left), idle, max(loads))
        if lent:
            self._give(lent, f"rank {slowest.rank}")

    def _straggler(self, status: WorkerStatus, left: Sequence[int]) -> Straggler:
        units_done = len(self._shares[status.rank].units) - len(left)
        seconds = None
        if units_done and status.began_at is not None:
            seconds = (status.last_heartbeat - status.began_at) / units_done
        return Straggler(left, seconds, time.monotonic() - status.last_heartbeat)

    def _load_seconds(self, rank: int) -> float:
        status = self._coordinator.statuses[rank]
        return (status.began_at or status.last_heartbeat) - status.started_at

    def _give(self, dealt: Mapping[int, tuple[int, ...]], whose: str) -> None:
        found = findings(self.faults)
        for rank, units in dealt.items():
            self._shares[rank] = Share(units, self._coordinator.statuses[rank].done, found)
            self._story.dealt(rank, units, whose)
            self._start(rank)
