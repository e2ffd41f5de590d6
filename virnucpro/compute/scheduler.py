"""Executors of one launch, and the scheduler of ranks in processes of their own."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from virnucpro.compute.rank_main import Assignment, RankTask, Share, run_rank
from virnucpro.compute.unit_queue import UnitQueue
from virnucpro.run.coordinator_files import CoordinatorLog
from virnucpro.run.execution import Execution
from virnucpro.runtime.policy import Action, Findings, decide, findings
from virnucpro.runtime.status import Fault, WorkerState, WorkerStatus

if TYPE_CHECKING:
    from virnucpro.runtime.gpu_coordinator import GPUProcessCoordinator

Show: TypeAlias = Callable[[Mapping[int, WorkerStatus]], None]
"""Function that shows the statuses of all ranks."""

_SILENT_S, _SILENT_UNITS = 5.0, 3
"""Other ranks compute the units of a rank if its heartbeat is missing for longer than this.

In seconds, plus this number of times its mean seconds per unit.
"""

_TICK_S = 0.5
"""Maximum seconds between two steps of the scheduler."""

_SHOW_S = 0.25
"""Minimum seconds between two calls of `show`. A step follows each question of a rank."""

_MOST_REASON = 4_096
"""Maximum length of the reason of a failure that is sent to ranks with a unit."""

_NEXT_STEP = {
    Action.RESTART: "restarted",
    Action.NARROW: "restarted, searching for the row that kills the worker",
    Action.QUARANTINE: "restarted without the row that kills the worker",
}


class RankReports:
    """What the ranks of a launch have reported.

    Attributes
    ----------
    statistics
        Statistics that each rank sent after its last unit.
    committed
        For each rank, the units that it has committed, and their numbers of rows.
    faults
        All failures of ranks, oldest first.
    """

    def __init__(self) -> None:
        self.statistics: dict[int, Mapping[str, Any]] = {}
        self.committed: dict[int, dict[int, int]] = {}
        self.faults: list[Fault] = []

    def rows(self, rank: int) -> int:
        """Return the number of rows that a rank has committed."""
        return sum(self.committed.get(rank, {}).values())

    def take(self, report: Mapping[str, Any]) -> None:
        """Store one report."""
        rank = report["rank"]
        if "committed" in report:
            self.committed.setdefault(rank, {})[report["committed"]] = report["rows"]
        else:
            self.statistics[rank] = report


class Executor(Protocol):
    """Computes the shares of one launch.

    Attributes
    ----------
    reports
        Reports and failures of the ranks.
    """

    reports: RankReports

    @property
    def statuses(self) -> Mapping[int, WorkerStatus]:
        """The status of each rank."""

    def run(self, show: Show) -> None:
        """Compute, and return when every rank has ended and none will be restarted.

        `show` is called with the statuses of all ranks about twice a second.
        """

    def close(self) -> None:
        """End all ranks, read their last reports and log each ended rank."""


class RankScheduler:
    """Executor of ranks in processes: hands out units and restarts failed ranks.

    Parameters
    ----------
    ranks
        The processes of the launch, not yet started.
    task
        Parameters that are the same for all ranks.
    shares
        First units of each rank.

    Attributes
    ----------
    reports
        Reports and failures of the ranks.
    """

    def __init__(
        self,
        ranks: "GPUProcessCoordinator",
        task: RankTask,
        shares: Mapping[int, Share],
        execution: Execution,
        log: CoordinatorLog,
    ) -> None:
        self._ranks = ranks
        self._execution = execution
        self._task = task
        self._log = log
        self._shares = dict(shares)
        self._queue = UnitQueue({rank: share.units for rank, share in shares.items()})
        self._handled: set[tuple[int, int]] = set()
        self._answered: dict[int, tuple[int, int]] = {}
        self._helped: set[tuple[int, int]] = set()
        self._known = Findings()
        self._next_show = -math.inf
        self.reports = RankReports()

    @property
    def statuses(self) -> Mapping[int, WorkerStatus]:
        """The status of each rank."""
        return self._ranks.statuses

    def run(self, show: Show) -> None:
        """Start all ranks, and return when every rank has ended and none will be restarted."""
        self._ranks.spawn_workers(run_rank, (self._task, self._shares))
        while not all(map(self._is_handled, self.statuses.values())):
            self._ranks.wait_for_change(_TICK_S)
            self.step(show)

    def step(self, show: Show) -> None:
        """Process new reports, restart failed ranks and hand out units; `show` if it is time."""
        statuses = self._collect()
        self._handle_ends(statuses)
        self._hand_out(statuses)
        if time.monotonic() >= self._next_show:
            self._next_show = time.monotonic() + _SHOW_S
            show(self.statuses)

    def close(self) -> None:
        """End all ranks, read their last reports and log each ended rank; restart no rank."""
        self._ranks.terminate_all()
        self._execution = replace(self._execution, max_restarts=0)
        self._handle_ends(self._collect())

    def _collect(self) -> Mapping[int, WorkerStatus]:
        """Read the new reports; return statuses from before, whose ended ranks send no others."""
        statuses = self.statuses
        for report in self._ranks.collect_results():
            self.reports.take(report)
            if "committed" in report:
                self._queue.commit(report["rank"], report["committed"])
        return statuses

    def _is_handled(self, status: WorkerStatus) -> bool:
        return status.ended and (status.rank, status.attempt) in self._handled

    def _handle_ends(self, statuses: Mapping[int, WorkerStatus]) -> None:
        for status in statuses.values():
            if status.ended and not self._is_handled(status):
                self._handled.add((status.rank, status.attempt))
                if status.state is WorkerState.FAILED:
                    self._handle_failure(status)
                else:
                    self._log.rank_ended(status)

    def _handle_failure(self, status: WorkerStatus) -> None:
        rank, share, faults = status.rank, self._shares[status.rank], self.reports.faults
        before = self._known
        faults.append(status.fault)
        self._known = after = findings(faults)
        own = [fault for fault in faults if fault.rank == rank]
        action, delay = decide(own, before, after, self._execution.restarts)
        spans = (*after.seen, *after.suspects, *(span for span, _ in after.isolated))
        self._queue.suspects = {span.task for span in spans}
        self._queue.put_back(rank, failed=action is Action.GIVE_UP)
        left = self._queue.left(rank)
        if action is Action.GIVE_UP:
            self._log.rank_failed(
                status, f"failed permanently; {len(left):,} of its units are left"
            )
        elif self._queue.is_over:
            self._log.rank_failed(status, "all of its units are committed")
        else:
            self._shares[rank] = replace(
                share,
                units=tuple(left),
                rows_before=self.reports.rows(rank),
                findings=after,
                prefetch=False,
            )
            self._log.rank_failed(status, f"{_NEXT_STEP[action]} in {delay:g} s")
            self._ranks.respawn_worker(rank, (self._task, self._shares), delay)

    def _hand_out(self, statuses: Mapping[int, WorkerStatus]) -> None:
        """Answer the ranks that ask for a unit; stop those without one if all are committed."""
        alive = {rank: status for rank, status in statuses.items() if not status.ended}
        silent = [rank for rank, status in alive.items() if self._is_silent(status)]
        for rank, status in alive.items():
            question = status.attempt, status.asked
            if not status.asked or self._answered.get(rank) == question:
                continue
            # A thread of a rank that has failed would otherwise wait for the answer.
            unit = None if status.kind else self._queue.take(rank, silent)
            if unit is not None or status.kind or self._queue.is_over:
                self._answered[rank] = question
                self._ranks.answer_worker(rank, self._assignment(rank, unit))
        for rank, status in alive.items():
            unneeded = not status.asked or self._queue.holds(rank)
            if unneeded and self._queue.is_over:
                self._ranks.stop_worker(rank, "other workers have computed its units")

    def _assignment(self, rank: int, unit: int | None) -> Assignment | None:
        if unit is None:
            return None
        helped = rank, self._queue.owner(unit)
        if rank != helped[1] and helped not in self._helped:
            self._helped.add(helped)
            self._log.units_taken(*helped)
        found = self._known.of_task(unit)
        isolated = tuple((span, _brief(fault)) for span, fault in found.isolated)
        prefetch = unit not in self._queue.dropped
        return Assignment(unit, replace(found, isolated=isolated), prefetch)

    def _is_silent(self, status: WorkerStatus) -> bool:
        """Return whether a rank that has begun seems to hang."""
        if status.state is not WorkerState.RUNNING or not status.began_at or status.waits:
            return False
        n_units = len(self.reports.committed.get(status.rank, ()))
        unit = (status.last_heartbeat - status.began_at) / max(1, n_units)
        return time.monotonic() - status.last_heartbeat > _SILENT_S + _SILENT_UNITS * unit


def _brief(fault: Fault) -> Fault:
    return replace(fault, traceback="", reason=fault.reason[:_MOST_REASON])
