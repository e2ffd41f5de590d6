"""The workers of a launch: one process a device, fed by a dispatcher in a thread."""

import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from virnucpro.dispatch import BaseWorker, Dispatcher
from virnucpro.dispatch.dispatcher import SETUP_S, worker_ids
from virnucpro.dispatch.protocol import CleanupFailed, WorkerDied
from virnucpro.errors import UsageError
from virnucpro.launch.allocator import TaskQueue
from virnucpro.launch.plain import plain_result
from virnucpro.launch.results import (
    FileResult,
    FileStatus,
    ResultQueue,
    RunOver,
    WorkerTrouble,
    reason_of,
    shown,
)
from virnucpro.runtime.devices import Device

__all__ = ["ProcessSpawner"]

_AGAIN_S = 0.05


class ProcessSpawner:
    """Starts workers on files, and ends them. The caller's thread stays free.

    No worker outlives the program. A worker that dies is replaced, and its file begun again.

    Parameters
    ----------
    max_attempts
        How often a file may be begun whose workers die.
    file_timeout
        Seconds that a file may take, or None.
    setup_timeout, cleanup_timeout
        Seconds that a worker may take to set up and to put away, or None.
    progress_timeout
        Seconds that a worker may go on with a file without progress; None for what its class says.
    environment
        Variables to set in the workers.
    log_folder
        Takes what the workers print; None throws it away.
    show_ui
        Whether to show a table on the terminal; needs the extra ``ui``.
    """

    def __init__(
        self,
        *,
        max_attempts: int = 3,
        file_timeout: float | None = None,
        setup_timeout: float | None = SETUP_S,
        cleanup_timeout: float | None = 60.0,
        progress_timeout: float | None = None,
        environment: Mapping[str, str] | None = None,
        log_folder: Path | None = None,
        show_ui: bool = False,
    ) -> None:
        self._options: dict[str, Any] = {
            "max_attempts": max_attempts,
            "setup_timeout": setup_timeout,
            "cleanup_timeout": cleanup_timeout,
            "progress_timeout": progress_timeout,
            "environment": environment,
            "log_folder": log_folder,
        }
        self._file_timeout = file_timeout
        self._show_ui = show_ui
        self._dispatcher: Dispatcher | None = None
        self._thread: threading.Thread | None = None
        self._files: list[str] = []

    def spawn_workers(
        self,
        gpu_ids: Sequence[int],
        task_queue: TaskQueue,
        result_queue: ResultQueue,
        worker: type[BaseWorker],
        *,
        devices: Sequence[int | str | Device] | None = None,
        total_files: int | None = None,
        keywords: Mapping[str, Any] | None = None,
        **setup_kwargs: Any,  # noqa: ANN401 - the worker's own
    ) -> None:
        """Start a worker for each GPU, and return at once.

        Parameters
        ----------
        gpu_ids
            What each worker is told that it is.
        task_queue
            Files, then None. A worker takes one when it has done the last one.
        result_queue
            Gets a `FileResult` for each file that was begun, a `WorkerTrouble` for each worker that
            fails, and a `RunOver` at the very end.
        devices
            What each worker sees; the GPUs of these numbers by default.
        total_files
            How many files there are, for those who look.
        **setup_kwargs
            For the worker's ``setup``.
        keywords
            More of them, whatever they are called.

        Raises
        ------
        UsageError
            When workers are at work already.
        TypeError, ValueError, DeviceError
            As `Dispatcher` raises them.
        """
        if self._thread is not None and self._thread.is_alive():
            raise UsageError("workers are at work already: wait for them, or use another spawner.")
        self._files = []
        dispatcher, runner = self._dispatch(worker, gpu_ids, devices or list(gpu_ids))
        listener = _Listener(dispatcher, self._files, gpu_ids, result_queue)

        self._dispatcher = dispatcher
        # Daemonic: a program that ends without waiting ends, and takes the workers along.
        self._thread = threading.Thread(
            target=self._work,
            args=(runner, task_queue, listener, total_files, setup_kwargs | dict(keywords or {})),
            name="virnucpro-launch",
            daemon=True,
        )
        self._thread.start()

    def wait_for_completion(self, timeout: float | None = None) -> bool:
        """Wait until all workers have ended, or for `timeout` seconds; say whether they have."""
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def terminate_all(self) -> None:
        """End all workers, at last by force. None lives on return."""
        while self._dispatcher is not None and not self.wait_for_completion(_AGAIN_S):
            # Again and again: the thread may not have come to where it can be broken off.
            self._dispatcher.terminate()

    def get_process_status(self) -> dict[int, dict[str, Any]]:
        """Say for each worker what it does: status, current_task (a file), completed, failed."""
        if self._dispatcher is None:
            return {}
        workers: dict[int, dict[str, Any]] = self._dispatcher.get_stats()["workers"]
        for one in workers.values():
            task = one["current_task"]
            one["current_task"] = None if task is None else self._files[task]
        return workers

    def _work(
        self,
        runner: Any,  # noqa: ANN401 - a dispatcher, with or without a table around it
        task_queue: TaskQueue,
        listener: "_Listener",
        total_files: int | None,
        keywords: Mapping[str, Any],
    ) -> None:
        """Run the dispatcher to its end, in the thread."""
        error: BaseException | None = None
        try:
            runner.run(
                self._tasks(task_queue),
                **listener.callbacks,
                task_timeout=self._file_timeout,
                total_tasks=total_files,
                keywords=keywords,
            )
        except BaseException as raised:  # noqa: BLE001 - told to whoever waits for results
            error = raised
        listener.over(error)

    def _tasks(self, task_queue: TaskQueue) -> Iterator[str]:
        for file in iter(task_queue.get, None):
            self._files.append(str(file))
            yield str(file)

    def _dispatch(
        self,
        worker: type[BaseWorker],
        gpu_ids: Sequence[int],
        devices: Sequence[int | str | Device],
    ) -> tuple[Dispatcher, Any]:
        """Make the dispatcher, and what runs it: itself, or a table around it."""
        options = self._options | {"devices": devices, "one_at_a_time": True}
        if not self._show_ui:
            quiet = self._options["log_folder"] is None
            dispatcher = Dispatcher(worker, gpu_ids, len(gpu_ids), quiet, **options)
            return dispatcher, dispatcher
        from virnucpro.dispatch.ui import RichDispatcher  # noqa: PLC0415 - an extra

        table = RichDispatcher(
            worker,
            gpu_ids,
            len(gpu_ids),
            describe=lambda task: shown(Path(self._files[task]).name),
            **options,
        )
        return table.dispatcher, table


class _Listener:
    """Puts what a dispatcher tells into the queue of results."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        files: Sequence[str],
        gpu_ids: Sequence[int],
        results: ResultQueue,
    ) -> None:
        self._dispatcher = dispatcher
        self._files = files
        self._results = results
        self._gpus = dict(zip(worker_ids(gpu_ids), gpu_ids, strict=True))
        self._retries: dict[int, int] = {}

    def over(self, error: BaseException | None) -> None:
        """Tell that there will be nothing more."""
        self._results.put(RunOver(error))

    @property
    def callbacks(self) -> dict[str, Any]:
        """Give what `Dispatcher.run` calls."""
        return {
            "on_success": self._succeeded,
            "on_error": self._failed,
            "on_timeout": self._timed_out,
            "on_setup_fail": lambda gpu, error: self._trouble(gpu, "set-up failed", error),
            "on_retry": self._retried,
            "on_fault": self._fault,
        }

    def _succeeded(self, task: int, data: object, worker: int) -> None:
        try:
            result = plain_result(data)
        except Exception as error:  # noqa: BLE001 - the worker's own objects may raise anything
            why = f"what the worker returned cannot be written down: {error}."
            self._answer(task, worker, FileStatus.FAILED, error=why, details=traceback.format_exc())
            return
        complete, skipped = result.pop("complete", True), result.pop("skipped", False)
        status = FileStatus.SKIPPED if skipped else FileStatus.DONE
        if not complete:
            status = FileStatus.PARTIAL
        self._answer(task, worker, status, result=result)

    def _failed(self, task: int, text: str, worker: int) -> None:
        status = FileStatus.LEFT if worker < 0 else FileStatus.FAILED
        self._answer(task, worker, status, error=reason_of(text), details=text)

    def _timed_out(self, task: int, timeout: float, worker: int) -> None:
        error = f"took longer than {timeout:g} s."
        self._answer(task, worker, FileStatus.TIMED_OUT, error=error)

    def _answer(self, task: int, worker: int, status: FileStatus, **content: Any) -> None:  # noqa: ANN401 - FileResult's own
        begun = status is not FileStatus.LEFT
        self._results.put(
            FileResult(
                self._files[task],
                status,
                gpu_id=self._gpus.get(worker),
                seconds=self._seconds(worker) if begun else None,
                attempts=begun + self._retries.pop(task, 0),
                **content,
            )
        )

    def _seconds(self, worker: int) -> float | None:
        """Say how long the worker's last task took, unless it died of it."""
        stats = self._dispatcher.get_stats()["workers"].get(worker, {})
        seconds: float | None = stats.get("last_duration")
        return None if stats.get("status") == "restarting" else seconds

    def _retried(self, task: int, attempt: int, error: str, worker: int) -> None:
        self._retries[task] = attempt
        again = f"{Path(self._files[task]).name} is begun again: {reason_of(error)}"
        self._results.put(WorkerTrouble(self._gpus.get(worker), again))

    def _fault(self, fault: WorkerDied | CleanupFailed) -> None:
        # A death in a task is told by the task's retry or answer.
        if isinstance(fault, CleanupFailed):
            self._trouble(fault.gpu_id, "clean-up failed", fault.error)
        elif fault.task_id is None:
            self._trouble(self._gpus.get(fault.worker_id), "died while idle", fault.how)

    def _trouble(self, gpu_id: int | None, what: str, error: str) -> None:
        self._results.put(WorkerTrouble(gpu_id, f"{what}: {reason_of(error)}"))
