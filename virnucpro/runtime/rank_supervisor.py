"""A thread that starts and restarts the workers of a job and records how each worker ends."""

import pickle
import queue
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from virnucpro.errors import UsageError, WorkerError
from virnucpro.runtime import supervisor
from virnucpro.runtime.child import Setup, WorkerFunction
from virnucpro.runtime.messages import Ask, Failure, Report, encode_answer
from virnucpro.runtime.process import SpawnProcess
from virnucpro.runtime.status import (
    Death,
    WorkerState,
    WorkerStatus,
    after_exit,
    after_message,
    waiting,
)
from virnucpro.runtime.supervisor import Event, Late, StopMethod, Supervisor
from virnucpro.runtime.watchdog import NEVER, Deadlines, Watched


class ResultsQueue:
    """Queue of the workers' reports, in memory.

    A report is unpickled only when a caller gets it, so an invalid report affects no other report.
    """

    def __init__(self) -> None:
        self._reports: deque[tuple[int, bytes]] = deque()
        self._senders = 0
        self._changed = threading.Condition()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: ANN401, FBT001, FBT002 - the signature of queue.Queue
        """Remove and return the next report.

        Parameters
        ----------
        block
            Whether to wait for a report if the queue is empty and a worker is alive.
        timeout
            Maximum wait in seconds; None for no limit.

        Raises
        ------
        queue.Empty
            If no report arrives within `timeout`, or the queue is empty and all workers have ended.
        WorkerError
            If the report cannot be unpickled. The report is removed.
        """
        with self._changed:
            if block:
                self._changed.wait_for(lambda: self._reports or not self._senders, timeout)
            if not self._reports:
                raise queue.Empty
            rank, payload = self._reports.popleft()
        return _unpickle(rank, payload)

    def get_nowait(self) -> Any:  # noqa: ANN401 - workers send what they like
        """Remove and return the next report; raise `queue.Empty` if there is no report."""
        return self.get(block=False)

    def empty(self) -> bool:
        """Return whether the queue is empty."""
        return not self._reports

    def qsize(self) -> int:
        """Return the number of reports in the queue."""
        return len(self._reports)

    def take_all(self) -> list[Any]:
        """Remove and return all reports that have arrived.

        Raises
        ------
        WorkerError
            If a report cannot be unpickled. It is removed; the next call returns the other reports.
        """
        with self._changed:
            taken, self._reports = self._reports, deque()
        reports = []
        for number, (rank, payload) in enumerate(taken):
            try:
                reports.append(_unpickle(rank, payload))
            except WorkerError:
                del taken[number]
                with self._changed:
                    self._reports.extendleft(reversed(taken))
                raise
        return reports

    def add(self, rank: int, payload: bytes) -> None:
        """Append a pickled report from the worker `rank`."""
        with self._changed:
            self._reports.append((rank, payload))
            self._changed.notify_all()

    def add_senders(self, count: int) -> None:
        """Add `count` to the number of living workers; a negative `count` records ended workers."""
        with self._changed:
            self._senders += count
            self._changed.notify_all()


def _unpickle(rank: int, payload: bytes) -> Any:  # noqa: ANN401 - workers send what they like
    try:
        return pickle.loads(payload)  # noqa: S301 - written by a worker of this very process
    except Exception as error:
        raise WorkerError(
            f"a result of worker {rank} ({len(payload):,} bytes) cannot be unpickled: "
            f"{type(error).__name__}: {error}. Send plain data: dicts, lists, strings, numbers."
        ) from error


_EXTRA_S = 1.0
"""Extra seconds for a stop, in addition to the waits after SIGTERM and SIGKILL."""

_FAILED = "stopped: the supervisor thread failed"


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """Description of a child process to start.

    The child calls ``function(rank, world_size, channel, *arguments)``.
    """

    setup: Setup
    function: WorkerFunction
    arguments: tuple[object, ...]


class RankSupervisor:
    """Supervises the workers of one coordinator in a thread. The thread ends after the last worker.

    The thread reads all reports into memory immediately, so no worker waits for a reader.

    Parameters
    ----------
    specs
        The processes to start, one for each rank.
    results
        Queue that receives the workers' reports.
    deadlines
        A worker that exceeds a deadline is terminated and marked as failed.
    """

    def __init__(
        self, specs: Iterable[ProcessSpec], results: ResultsQueue, deadlines: Deadlines = NEVER
    ) -> None:
        self._specs = tuple(specs)
        self._results = results
        self._deadlines = deadlines
        self._statuses: dict[int, WorkerStatus] = {}
        self._processes: dict[int, SpawnProcess] = {}
        self._scheduled: list[tuple[float, ProcessSpec]] = []
        self._answers: list[tuple[int, int, bytes]] = []
        self._unneeded: dict[int, str] = {}
        self._stopped: dict[int, str] = {}
        self._stuck: list[str] = []
        self._changed = threading.Condition()
        self._changes = 0
        self._started = False
        self._over = True
        self._stopping = ""
        self._error: BaseException | None = None

    @property
    def statuses(self) -> dict[int, WorkerStatus]:
        """The current status of each rank."""
        with self._changed:
            return dict(self._statuses)

    @property
    def processes(self) -> dict[int, SpawnProcess]:
        """The current or last process of each rank."""
        return dict(self._processes)

    def start(self) -> None:
        """Start the process of every rank; return when all processes are started.

        If this raises, no process is left running.

        Raises
        ------
        UsageError
            If a function or its arguments cannot be pickled.
        OSError
            If the system cannot start a process.
        RuntimeError
            If the system cannot start a thread.
        """
        try:
            self._start_thread()
            with self._changed:
                self._changed.wait_for(lambda: self._started or self._over)
        except BaseException:  # an interrupt, or the thread cannot start
            self.stop()
            raise
        if self._error is not None:
            raise self._error

    def restart(self, spec: ProcessSpec, delay: float = 0.0) -> None:
        """Restart the ended worker of a rank in `delay` seconds.

        If the system cannot start the process, the status of the worker becomes ``failed``.

        Raises
        ------
        UsageError
            If the worker has not ended, or all workers are being stopped.
        """
        rank = spec.setup.rank
        with self._changed:
            status = self._statuses.get(rank)
            if self._stopping or status is None or not status.ended:
                raise UsageError(
                    f"cannot restart worker {rank}: it is still running, or the job "
                    "is being stopped."
                )
            self._set_status(waiting(status))
            self._scheduled.append((time.monotonic() + delay, spec))
            if self._over:
                self._start_thread()
            else:
                self._children.wake()

    def answer(self, rank: int, payload: object) -> None:
        """Send the answer to the worker's last `Ask`; the call does not wait.

        The call has no effect on an ended worker.

        Raises
        ------
        ValueError
            If the answer is too large.
        """
        data = encode_answer(payload)
        with self._changed:
            if not self._over:
                self._answers.append((rank, self._statuses[rank].attempt, data))
                self._children.wake()

    def stop_one(self, rank: int, why: str) -> None:
        """End a worker or cancel its restart, for the reason `why`; do not wait for its end.

        The call has no effect on an ended worker.
        """
        with self._changed:
            if not self._over:
                self._unneeded[rank] = f"stopped: {why}"
                self._children.wake()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all workers have ended, at most `timeout` seconds; return whether they ended.

        Raises
        ------
        WorkerError
            If the supervisor thread failed; all workers were killed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._over, timeout)
            self._refuse_broken()
            over = self._over
        if over:
            self._join_thread()
        return over

    def wait_for_change(self, seen: int, timeout: float | None = None) -> int:
        """Wait until a worker changes its state, asks or reports, at most `timeout` seconds.

        Parameters
        ----------
        seen
            Return value of the previous call; 0 for the first call.

        Returns
        -------
        Number of such changes of all workers so far.

        Raises
        ------
        WorkerError
            If the supervisor thread failed; all workers were killed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._changes != seen, timeout)
            self._refuse_broken()
            return self._changes

    def stop(self, why: str = "stopped with the run") -> None:
        """End all workers with SIGTERM, then SIGKILL; return when their ends are recorded.

        Parameters
        ----------
        why
            The reason that `statuses` shows for these workers.

        Raises
        ------
        WorkerError
            If a process survives SIGKILL: it is stuck in the kernel. Also if the supervisor thread
            does not end in time; then this call has killed the workers.
        """
        grace = supervisor.TERMINATE_GRACE_S + supervisor.KILL_GRACE_S + _EXTRA_S
        with self._changed:
            for status in list(self._statuses.values()):
                # The signal went to the whole process group and killed this worker first.
                if status.state is WorkerState.FAILED and why.endswith(f" {status.exit}"):
                    self._set_status(replace(status, state=WorkerState.STOPPED, reason=why))
            if not self._over:
                self._stopping = why
                self._children.wake()
            over = self._changed.wait_for(lambda: self._over, grace)
            stuck, self._stuck = self._stuck, []
        if over:
            self._join_thread()
        else:
            self._kill_unsupervised(grace)
        if stuck:
            raise WorkerError(
                f"{', '.join(stuck)} still runs "
                f"{supervisor.KILL_GRACE_S:.0f} s after SIGKILL: stuck in the kernel, in a driver "
                "or a file system. Check dmesg; the node may need a reboot."
            )

    def _kill_unsupervised(self, grace: float) -> NoReturn:
        """Kill all workers, since the supervisor thread did not stop them in `grace` seconds."""
        statuses = self.statuses
        for rank, process in self.processes.items():
            if not statuses[rank].ended:
                process.kill()
        raise WorkerError(
            f"the supervisor thread did not stop the workers within {grace:.0f} s. They were "
            "killed; the state of each worker is unknown. Rerun the command to resume."
        )

    def _refuse_broken(self) -> None:
        if self._error is not None:
            raise WorkerError("the supervisor thread failed; report this bug") from self._error

    def _start_thread(self) -> None:
        """Start a supervisor thread. The thread ends when the last worker has ended."""
        self._thread = threading.Thread(target=self._run, name="virnucpro-supervisor", daemon=True)
        self._children = Supervisor(
            self._watched,
            (self._deadlines.start, self._deadlines.progress, self._deadlines.stop),
            StopMethod.TERMINATE,
        )
        self._over = False
        try:
            self._thread.start()
        except BaseException:  # an interrupt, or the thread cannot start
            if self._thread.ident is None:
                self._cancel_scheduled(dict.fromkeys(self._statuses, _FAILED))
                self._children.close()
                self._end()
            raise

    def _join_thread(self) -> None:
        """Join the ended supervisor thread, which frees the descriptors of the processes."""
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        children = self._children
        try:
            for spec in self._specs:
                if self._stopping:
                    break
                self._start_child(spec)
            self._specs = ()
            with self._changed:
                self._started = True
                self._changed.notify_all()
            while not self._all_done():
                for rank, event in children.step(self._patience()):
                    self._handle_event(rank, event)
                self._send_answers()
                self._stop_unneeded()
                self._start_what_is_due()
        except BaseException as error:  # noqa: BLE001 - raised in the threads that wait
            self._error = error
            self._cancel_scheduled(dict.fromkeys(self._statuses, _FAILED))
            left = children.ranks
            children.close()
            for rank in left:
                self._results.add_senders(-1)
                status = after_exit(self._statuses[rank], Death(None), time.monotonic(), _FAILED)
                self._set_status(status)
            self._end()
        finally:
            children.close()

    def _all_done(self) -> bool:
        """Return whether all workers have ended and no restart is scheduled.

        If so, notify the threads that wait for the workers.
        """
        with self._changed:
            done = not self._children.ranks and not self._scheduled
            if done:
                self._end()
            return done

    def _end(self) -> None:
        with self._changed:
            self._over = True
            self._note_change()

    def _start_child(self, spec: ProcessSpec) -> None:
        rank, now = spec.setup.rank, time.monotonic()
        name = f"virnucpro-rank-{rank:04d}"
        child = self._children.start(name, spec.setup, spec.function, spec.arguments)
        self._results.add_senders(1)
        self._processes[rank] = child.process
        status = WorkerStatus(rank, WorkerState.STARTING, child.process.pid, now, now)
        former = self._statuses.get(rank)
        if former is not None:
            status = replace(
                status,
                attempt=former.attempt + 1,
                faults=former.faults,
                done=former.done,
                total=former.total,
            )
        self._set_status(status)

    def _start_what_is_due(self) -> None:
        now = time.monotonic()
        with self._changed:
            due = [spec for at, spec in self._scheduled if at <= now]
            self._scheduled = [(at, spec) for at, spec in self._scheduled if at > now]
        for spec in due:
            try:
                self._start_child(spec)
            except OSError as error:
                former = self._statuses[spec.setup.rank]
                self._set_status(
                    replace(
                        former,
                        state=WorkerState.FAILED,
                        attempt=former.attempt + 1,
                        kind=type(error).__name__,
                        reason=f"the restart failed: {error}",
                        place=(),
                        begun={},
                    )
                )

    def _patience(self) -> float | None:
        with self._changed:
            next_start = min((at for at, _ in self._scheduled), default=None)
        return None if next_start is None else max(0.0, next_start - time.monotonic())

    def _watched(self) -> Iterator[Watched]:
        for rank in self._children.ranks:
            status = self._statuses[rank]
            if status.waits:
                continue
            limit, fault = self._deadlines.progress, "it made no progress"
            if status.returned:
                limit, fault = (
                    self._deadlines.stop,
                    "after its function returned, its process did not exit",
                )
            elif not status.begun:
                limit, fault = self._deadlines.start, "it did not finish its setup"
            if limit is not None:
                sign = status.attempt, status.done, status.total, status.begun
                yield Watched(rank, fault, limit, sign)

    def _handle_event(self, rank: int, event: Event) -> None:
        now, status = time.monotonic(), self._statuses[rank]
        if isinstance(event, Late):
            self._set_status(replace(status, kind="Hang", reason=event.watched.why))
        elif isinstance(event, Death):
            if event.stuck and self._stopping:
                self._stuck.append(f"worker {rank} (pid {status.pid})")
            self._results.add_senders(-1)
            self._set_status(after_exit(status, event, now, self._stopped.pop(rank, "")))
        else:
            if isinstance(event, Report):
                self._results.add(rank, event.payload)
            self._set_status(after_message(status, event, now))
            if isinstance(event, Ask | Report | Failure):
                self._note_change()

    def _send_answers(self) -> None:
        with self._changed:
            answers, self._answers = self._answers, []
        for rank, attempt, data in answers:
            status = self._statuses[rank]
            # Not to a later attempt: it has not asked.
            if rank in self._children.ranks and status.attempt == attempt:
                self._children.send(rank, data)
                self._set_status(replace(status, answered=status.answered + 1))

    def _stop_unneeded(self) -> None:
        with self._changed:
            unneeded, self._unneeded = self._unneeded, {}
            if self._stopping:
                unneeded = dict.fromkeys(self._statuses, self._stopping)
        self._cancel_scheduled(unneeded)
        for rank in self._children.ranks:
            if rank in unneeded and rank not in self._stopped:
                # A worker that has reported an exception counts as failed, not as stopped.
                self._stopped[rank] = "" if self._statuses[rank].kind else unneeded[rank]
                self._children.end(rank)

    def _cancel_scheduled(self, ranks: Mapping[int, str]) -> None:
        """Cancel the scheduled restarts of `ranks`, which maps each rank to the recorded reason."""
        with self._changed:
            for entry in list(self._scheduled):
                rank = entry[1].setup.rank
                if rank in ranks:
                    self._scheduled.remove(entry)
                    self._set_status(
                        replace(self._statuses[rank], state=WorkerState.STOPPED, reason=ranks[rank])
                    )

    def _set_status(self, status: WorkerStatus) -> None:
        with self._changed:
            former = self._statuses.get(status.rank)
            self._statuses[status.rank] = status
            if former is None or former.state is not status.state:
                self._note_change()

    def _note_change(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()
