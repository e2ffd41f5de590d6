"""One launch of ranks: start them, schedule their units, record the results."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from virnucpro.compute.preflight import threads_of_rank
from virnucpro.compute.rank_main import RankTask, Share
from virnucpro.compute.scheduler import Executor, RankReports, RankScheduler
from virnucpro.durable import write_file
from virnucpro.encoders.batching import BATCH_TOKENS, Filling
from virnucpro.encoders.registry import shapes_of
from virnucpro.errors import UsageError, WorkerError
from virnucpro.machine import scheduler_limit
from virnucpro.run.coordinator_files import CoordinatorLog, write_status
from virnucpro.run.execution import Execution
from virnucpro.run.job import Job
from virnucpro.run.manifest import Launch
from virnucpro.run.reporter import Reporter, Workload
from virnucpro.run.run import Run
from virnucpro.runtime.devices import Device
from virnucpro.runtime.status import NO_MAIN_GUARD, WorkerStatus
from virnucpro.sequences.records import Alphabet

ExecutorMaker: TypeAlias = Callable[[RankTask, Mapping[int, Share], CoordinatorLog], Executor]


@dataclass(frozen=True, slots=True)
class RankLaunch:
    """One launch; the method `run` writes its plan, runs the ranks and records the results.

    Attributes
    ----------
    opened
        The run, or the attempt of a task in it.
    devices
        One device per rank.
    """

    opened: Run
    job: Job
    devices: Sequence[Device]
    execution: Execution
    reporter: Reporter
    log: CoordinatorLog

    def run(
        self,
        shares: Mapping[int, Share],
        executor_of: ExecutorMaker | None = None,
    ) -> None:
        """Compute units in an executor; by default, start a process per device.

        Parameters
        ----------
        shares
            First units of each rank.
        executor_of
            Returns the executor of task, shares and log.

        Raises
        ------
        WorkerError
            If every rank failed and no unit is committed.
        """
        task = rank_task(self.opened, self.job, self.devices, self.execution)
        plan = sorted(unit for share in shares.values() for unit in share.units)
        record = _freeze_plan(self.opened, plan, self.devices)
        work = _workload(self.opened, plan, len(self.devices))
        on = self.devices if task.torch_device == "cuda" else [Device("cpu")]
        work = replace(
            work,
            devices=", ".join(dict.fromkeys(map(str, on))),
            limit=scheduler_limit(len(self.devices), self.execution.threads),
        )
        self.log.launch_started(record.number, record.n_units, record.devices, work)
        started = time.perf_counter()
        executor = (executor_of or self._processes)(task, shares, self.log)
        try:
            executor.run(self._show)
            self._show(executor.statuses)  # the last one of `run` may be of some time before
        except BaseException:  # the launch is recorded, then the error is raised
            with suppress(OSError):
                self._close(executor, record, started)
            raise
        try:
            self._close(executor, record, started)
        finally:  # report that all ranks failed rather than that run.json cannot be written
            advice = f"rerun with --resume{' instead of --force' * self.execution.force}"
            if self.opened.paths.attempt:
                advice = "rerun the command"
            _refuse_total_failure(self.opened, executor.statuses, advice)

    def _processes(
        self, task: RankTask, shares: Mapping[int, Share], log: CoordinatorLog
    ) -> Executor:
        from virnucpro.runtime.gpu_coordinator import GPUProcessCoordinator  # noqa: PLC0415 - multiprocessing

        ranks = GPUProcessCoordinator(
            len(self.devices),
            self.opened.paths.root,
            self.devices,
            threads=task.threads,
            attempt=self.opened.paths.attempt,
            deadlines=self.execution.deadlines,
        )
        return RankScheduler(ranks, task, shares, self.execution, log)

    def _show(self, statuses: Mapping[int, WorkerStatus], *, running: bool = True) -> None:
        run = self.opened.paths
        if not run.attempt:  # status.json is that of a process that computes the run alone
            try:
                write_status(run, statuses, running=running)
            except OSError as error:
                self.reporter.warn(f"{run.status_json} cannot be written: {error.strerror}")
        if running:
            self.reporter.ranks(statuses)
            self.log.check_output()

    def _close(self, executor: Executor, record: Launch, started: float) -> None:
        """End the launch: stop the ranks, and record the statistics of each rank in run.json."""
        executor.close()
        self.reporter.computed()
        self._show(executor.statuses, running=False)
        seconds = round(time.perf_counter() - started, 3)
        self.log.launch_ended(record.number, seconds, len(executor.reports.faults))
        self.opened.paths.remove_unfinished()  # temporary files of killed ranks
        records = _rank_records(executor.statuses, executor.reports)
        record = replace(record, seconds={"ranks": seconds}, ranks=records)
        self.opened.record(record)


def _freeze_plan(run: Run, plan: Sequence[int], devices: Sequence[Device]) -> Launch:
    """Write the plan file of a new launch, and record the launch; return it.

    The plan file lists the units to compute. The list does not change while ranks commit units.
    """
    run.paths.launches.mkdir(exist_ok=True)
    number = 1 if run.paths.attempt else run.manifest.next_launch
    with write_file(run.paths.launch(number)) as stream:
        stream.write(json.dumps({"units": list(plan)}).encode())
    launch = Launch(
        number=number,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        devices=[str(device) for device in devices],
        n_units=len(plan),
        attempt=run.paths.attempt,
    )
    run.record(launch)
    return launch


def _workload(run: Run, plan: Sequence[int], workers: int) -> Workload:
    """Return what a launch of the units `plan` computes."""
    index, rows = run.index, run.n_rows_of(plan)
    share = rows / max(1, index.n_rows)
    return Workload(
        records=round(share * index.n_records),
        letters=round(share * index.stored_letters),
        rows=rows,
        workers=workers,
        protein=index.spec.alphabet is Alphabet.PROTEIN,
        resumed=rows < index.n_rows and not run.paths.attempt,
        model=Path(str(run.manifest.parameters["bundle"])).name,
    )


def rank_task(run: Run, job: Job, devices: Sequence[Device], execution: Execution) -> RankTask:
    """Return the parameters that are equal for all ranks of a launch."""
    kind = devices[0].kind if shapes_of(*job.encoders) else "cpu"  # a GPU is for weights
    return RankTask(
        run=run.paths,
        fingerprint=run.manifest.fingerprint,
        encoders=job.encoders,
        head=job.head,
        precision=job.settled_precision,
        embeddings=job.stored_dtype,
        unit_rows=run.manifest.units["rows"],
        unit_positions=run.manifest.units["positions"],
        batch_tokens=BATCH_TOKENS[kind],
        torch_device=kind,
        threads=threads_of_rank(execution, len(devices)),
        others=job.others,
    )


def _rank_records(
    statuses: Mapping[int, WorkerStatus], reports: RankReports
) -> dict[str, dict[str, Any]]:
    """Return rank number and run.json entry of each rank."""
    records: dict[str, dict[str, Any]] = {
        str(rank): {
            "state": status.state,
            "exit": status.exit,
            "reason": status.reason,
            "attempts": status.attempt,
            "faults": [fault.reason for fault in status.faults],
        }
        for rank, status in statuses.items()
    }
    for rank, report in reports.statistics.items():
        filling = Filling(**report["filling"])
        records[str(rank)] |= {
            "batches": filling.batches,
            "tokens": filling.tokens,
            "unused": round(filling.unused, 4),
            "seconds": {stage: round(value, 3) for stage, value in report["seconds"].items()},
            "rows": reports.rows(rank),
            "recomputed": report["recomputed"],
        }
    return records


def _refuse_total_failure(run: Run, statuses: Mapping[int, WorkerStatus], advice: str) -> None:
    """Raise an error if every rank failed and no unit is committed.

    Raises
    ------
    UsageError
        If the ranks failed because the main script lacks the main guard.
    WorkerError
        After all other failures.
    """
    if all(not status.succeeded for status in statuses.values()) and not run.paths.has_segments():
        rank, status = min(statuses.items())
        if status.kind == NO_MAIN_GUARD:
            raise UsageError(status.reason)
        raise WorkerError(
            f"all workers ({len(statuses)}) failed before the first unit was computed. Worker "
            f"{rank}: {status.reason.rstrip('.')}. See {run.paths.log(rank)}, correct the error, "
            f"and {advice}."
        )
