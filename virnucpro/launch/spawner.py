"""Workers of a launch: one process per device; a dispatcher in a thread sends the files."""

import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from virnucpro.console import printable
from virnucpro.dispatch import BaseWorker, Dispatcher
from virnucpro.dispatch.dispatcher import SETUP_S, worker_ids
from virnucpro.dispatch.protocol import CleanupFailed, WorkerDied
from virnucpro.errors import UsageError
from virnucpro.launch.allocator import TaskQueue
from virnucpro.launch.results import (
    FileResult,
    ResultQueue,
    RunOver,
    WorkerTrouble,
    plain_result,
    reason_of,
)
from virnucpro.launch_dir import FileStatus
from virnucpro.runtime.devices import Device

_TERMINATE_INTERVAL_S = 0.05


class ProcessSpawner:
    """Starts workers, sends files to them and ends them, without blocking the caller's thread.

    If the program ends, the workers end too. If a worker dies, a new process replaces it and its
    file is retried.

    Parameters
    ----------
    max_attempts
        Maximum number of attempts for a file if workers die while they process it.
    file_timeout
        Time limit of a file in seconds; None for no limit.
    setup_timeout, cleanup_timeout
        Time limits in seconds of a worker's ``setup`` and ``cleanup``; None for no limit.
    progress_timeout
        Maximum seconds without progress within a file; None for the limit of the worker class.
    environment
        Environment variables of the workers.
    log_folder
        Folder for the output of the workers; None discards the output.
    show_ui
        Whether to show a table on the terminal; this requires the package extra ``ui``.
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
        self._gpus: dict[int, int] = {}
        self._retries: dict[int, int] = {}
        self._results = ResultQueue()

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
        """Start one worker for each GPU; return without waiting.

        Parameters
        ----------
        gpu_ids
            Numbers of the workers, passed to their ``setup``.
        task_queue
            Queue of files, ended by None. A worker gets one file at a time.
        result_queue
            Receives a `FileResult` for each file, a `WorkerTrouble` for each failure of a worker,
            and a `RunOver` at the end.
        devices
            The device of each worker; default: the GPUs with the numbers `gpu_ids`.
        total_files
            Number of files, for the progress display.
        **setup_kwargs
            Keyword arguments for the worker's ``setup``.
        keywords
            Mapping with more keyword arguments for ``setup``. It may contain names of parameters of
            this method, such as ``total_files``.

        Raises
        ------
        UsageError
            If this spawner already has running workers.
        TypeError, ValueError, DeviceError
            The same errors as `Dispatcher` raises.
        """
        if self._thread is not None and self._thread.is_alive():
            raise UsageError("workers are running: wait for their end, or use another spawner.")
        self._files, self._retries = [], {}
        self._gpus = dict(zip(worker_ids(gpu_ids), gpu_ids, strict=True))
        self._results = result_queue
        self._dispatcher, run = self._dispatch(worker, gpu_ids, devices or list(gpu_ids))
        options = {
            "task_timeout": self._file_timeout,
            "total_tasks": total_files,
            "keywords": setup_kwargs | dict(keywords or {}),
        }
        # A daemon thread: a program that exits early does not wait for it.
        self._thread = threading.Thread(
            target=self._run, args=(run, self._tasks(task_queue), options), daemon=True
        )
        self._thread.start()

    def wait_for_completion(self, timeout: float | None = None) -> bool:
        """Wait for the end of all workers, at most `timeout` seconds; return whether they ended."""
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def terminate_all(self) -> None:
        """End all workers, with SIGKILL if necessary, and wait for their end."""
        while self._dispatcher is not None and not self.wait_for_completion(_TERMINATE_INTERVAL_S):
            self._dispatcher.terminate()  # repeated: no effect before the run starts

    def get_process_status(self) -> dict[int, dict[str, Any]]:
        """Return the state of each worker: a dict from worker number to a dict about this worker.

        The keys of a worker's dict include status, current_task (file), completed and failed
        (numbers of files).
        """
        if self._dispatcher is None:
            return {}
        workers: dict[int, dict[str, Any]] = self._dispatcher.get_stats()["workers"]
        for worker in workers.values():
            task = worker["current_task"]
            worker["current_task"] = None if task is None else self._files[task]
        return workers

    def _tasks(self, task_queue: TaskQueue) -> Iterator[str]:
        for file in iter(task_queue.get, None):
            self._files.append(str(file))
            yield str(file)

    def _dispatch(
        self,
        worker: type[BaseWorker],
        gpu_ids: Sequence[int],
        devices: Sequence[int | str | Device],
    ) -> tuple[Dispatcher, Callable[..., object]]:
        """Return a dispatcher and the function that runs it.

        If `show_ui` is true, the returned function also shows a live table on the terminal.
        """
        options = self._options | {"devices": devices}
        if not self._show_ui:
            quiet = self._options["log_folder"] is None
            dispatcher = Dispatcher(worker, gpu_ids, len(gpu_ids), quiet, **options)
            return dispatcher, dispatcher.run
        from virnucpro.dispatch.ui import RichDispatcher  # noqa: PLC0415 - an extra

        table = RichDispatcher(
            worker,
            gpu_ids,
            len(gpu_ids),
            describe=lambda task: printable(Path(self._files[task]).name),
            **options,
        )
        return table.dispatcher, table.run

    def _run(
        self, run: Callable[..., object], tasks: Iterator[str], options: Mapping[str, Any]
    ) -> None:
        error: BaseException | None = None
        try:
            run(
                tasks,
                self._on_success,
                on_error=self._on_error,
                on_timeout=self._on_timeout,
                on_setup_fail=self._on_setup_fail,
                on_retry=self._on_retry,
                on_fault=self._on_fault,
                **options,
            )
        except BaseException as raised:  # noqa: BLE001 - passed on through the queue
            error = raised
        self._results.put(RunOver(error))

    def _on_success(self, task: int, data: object, worker: int) -> None:
        try:
            result = plain_result(data)
        except Exception as error:  # noqa: BLE001 - raised by methods of the worker's objects
            reason = f"the worker's result cannot be saved: {error}."
            details = traceback.format_exc()
            self._put(task, worker, FileStatus.FAILED, error=reason, details=details)
            return
        complete, skipped = result.pop("complete", True), result.pop("skipped", False)
        status = FileStatus.SKIPPED if skipped else FileStatus.DONE
        self._put(task, worker, status if complete else FileStatus.PARTIAL, result=result)

    def _on_error(self, task: int, text: str, worker: int | None) -> None:
        status = FileStatus.LEFT if worker is None else FileStatus.FAILED
        self._put(task, worker, status, error=reason_of(text), details=text)

    def _on_timeout(self, task: int, timeout: float, worker: int) -> None:
        error = f"exceeded the limit of {timeout:g} s."
        self._put(task, worker, FileStatus.TIMED_OUT, error=error)

    def _on_setup_fail(self, gpu_id: int, error: str) -> None:
        self._trouble(gpu_id, f"setup failed: {reason_of(error)}")

    def _on_retry(self, task: int, attempt: int, error: str, worker: int) -> None:
        self._retries[task] = attempt
        name = Path(self._files[task]).name
        self._trouble(self._gpus.get(worker), f"{name} is retried: {reason_of(error)}")

    def _on_fault(self, fault: WorkerDied | CleanupFailed) -> None:
        # If the worker died within a file, the retry or failure of the file reports it.
        if isinstance(fault, CleanupFailed):
            self._trouble(fault.gpu_id, f"cleanup failed: {reason_of(fault.error)}")
        elif fault.task_id is None:
            gpu_id = self._gpus.get(fault.worker_id)
            self._trouble(gpu_id, f"died while it processed no file: {reason_of(fault.how)}")

    def _put(self, task: int, worker: int | None, status: FileStatus, **content: Any) -> None:  # noqa: ANN401 - FileResult's own
        self._results.put(
            FileResult(
                self._files[task],
                status,
                gpu_id=None if worker is None else self._gpus[worker],
                seconds=None if worker is None else self._seconds(worker),
                attempts=(worker is not None) + self._retries.pop(task, 0),
                **content,
            )
        )

    def _seconds(self, worker: int) -> float | None:
        """Return the seconds that a worker's last file took; None if unknown."""
        seconds: float | None = self.get_process_status()[worker]["last_duration"]
        return seconds

    def _trouble(self, gpu_id: int | None, text: str) -> None:
        self._results.put(WorkerTrouble(gpu_id, text))
