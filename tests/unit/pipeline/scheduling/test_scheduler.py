"""What becomes of units when ranks end at awkward moments: moments that no real process gives."""

from dataclasses import replace
from pathlib import Path

import pytest

from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.scheduling.scheduler import RankScheduler
from virnucpro.runtime.policy import RestartPolicy
from virnucpro.runtime.status import WorkerState, WorkerStatus

BUSY = WorkerStatus(0, WorkerState.RUNNING, 1, 0.0, 0.0, done=0, total=9, begun={0: 1})
DONE = replace(BUSY, state=WorkerState.SUCCEEDED, done=9, ended_at=1.0)
FAILED = replace(BUSY, state=WorkerState.FAILED, reason="killed", ended_at=1.0)


class Scripted:
    """Stands in for the coordinator: each look at the ranks finds what the script says next."""

    world_size = 2

    def __init__(self, *looks):
        self._looks = [
            {rank: replace(status, rank=rank) for rank, status in enumerate(look)} for look in looks
        ]
        self.started = []

    @property
    def statuses(self):
        return self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]

    def respawn_worker(self, rank, arguments, _delay):
        self.started.append((rank, arguments[1][rank].units))
        last = self._looks[-1]
        attempt = 1 + max(look[rank].attempt for look in self._looks)
        self._looks.append({**last, rank: replace(DONE, rank=rank, attempt=attempt)})

    def spawn_workers(self, *_):
        pass

    def wait_for_change(self, _):
        pass

    def collect_results(self):
        return []


class CoordinatorLog:
    def __getattr__(self, _):
        return lambda *_: None


class AllOpen:
    def among(self, units):
        return list(units)


@pytest.mark.parametrize("restarts", [0, 3])
def test_a_rank_that_fails_while_work_is_handed_out_is_heard_first(restarts):
    between = [(DONE, BUSY), (DONE, BUSY), (DONE, FAILED)]  # asked whether over, heard, handed out
    coordinator = Scripted(*between)
    execution = Execution(Path(), restarts=RestartPolicy(max_restarts=restarts))
    waves = RankScheduler(coordinator, None, [0, 1, 2, 3], AllOpen(), execution, CoordinatorLog())
    waves._pool = [8, 9]  # of a third rank
    waves.run(lambda _: None)
    assert [fault.rank for fault in waves.faults] == [1]
    done = {unit for _, units in coordinator.started for unit in units}
    assert {1, 3} <= done
