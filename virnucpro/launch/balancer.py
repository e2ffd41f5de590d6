"""Collection of the results of a running launch: counts, progress lines, exit code."""

import math
import queue
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from virnucpro.console import counted, say
from virnucpro.launch.results import FileResult, ResultQueue, RunOver, WorkerTrouble
from virnucpro.launch_dir import FileStatus

SILENCE_S = 2.0
"""Interval in seconds of the calls of `silence_callback` while no result arrives."""


_FIRST_WAIT_S = 10.0
"""Seconds without a result after which the activity of the workers is printed."""


class LoadBalancer:
    """Collects and counts the results of the files of a launch.

    This object does not assign files: an idle worker gets the next file of the queue.

    Workers may return a number ``duration``, the length of an input recording in seconds. The
    real-time factor (RTF) is the processing time divided by this length.

    Parameters
    ----------
    gpu_ids
        Numbers of the workers.
    stream
        Stream to which lines are printed; default: standard error.
    devices
        Name of the device of each worker, for printed lines.

    Attributes
    ----------
    results
        Results so far, in order of arrival.
    troubles
        Failures of workers and retries of files, one line of text each.
    error
        The error that ended the launch before all files had a result, or None.
    """

    def __init__(
        self,
        gpu_ids: Sequence[int],
        stream: TextIO | None = None,
        devices: Mapping[int, str] | None = None,
    ) -> None:
        self._gpu_ids = list(dict.fromkeys(gpu_ids))
        self._stream = stream
        self._devices = devices or {}
        self._expected: int | None = None
        self._seconds = 0.0
        self.results: list[FileResult] = []
        self.troubles: list[str] = []
        self.error: BaseException | None = None

    def monitor_progress(
        self,
        result_queue: ResultQueue,
        total_files: int,
        progress_callback: Callable[[FileResult | WorkerTrouble], object] | None = None,
        silence_callback: Callable[[float], object] | None = None,
    ) -> None:
        """Collect results until all workers have ended.

        Parameters
        ----------
        progress_callback
            Function that is called with the result of each file and each failure of a worker.
        silence_callback
            Function that is called with the seconds since the last result, every `SILENCE_S`.
        """
        self._expected = total_files
        started = last = time.perf_counter()
        while True:
            try:
                item = result_queue.get(timeout=SILENCE_S)
            except queue.Empty:
                if silence_callback is not None:
                    silence_callback(time.perf_counter() - last)
                continue
            if isinstance(item, RunOver):
                self.error = item.error
                return
            last = time.perf_counter()
            self._seconds = last - started
            if isinstance(item, FileResult):
                self.results.append(item)
            else:
                self.troubles.append(item.error)
            if progress_callback is not None:
                progress_callback(item)

    def add(
        self, results: Iterable[FileResult], troubles: Iterable[str] = (), seconds: float = 0.0
    ) -> None:
        """Add results and failures that another process has collected in `seconds`."""
        new = list(results)
        self.results += new
        self.troubles += troubles
        self._seconds = max(self._seconds, seconds)
        workers = (outcome.gpu_id for outcome in new if outcome.gpu_id is not None)
        self._gpu_ids = sorted({*self._gpu_ids, *workers})

    def get_overall_rtf(self) -> float:
        """Return the real-time factor: total processing time divided by total input duration.

        Return 0.0 if no worker returned a duration.
        """
        duration = self._duration()
        return self._processing() / duration if duration else 0.0

    def get_speedup(self) -> float:
        """Return the speedup; 0.0 before the first result.

        If workers returned the duration of their data, such as seconds of a recording, the speedup
        is the total duration divided by the total processing time. Without durations, the speedup
        is the total processing time of all workers divided by the elapsed time.
        """
        processing, duration = self._processing(), self._duration()
        if duration:
            return duration / processing if processing else 0.0
        return processing / self._seconds if self._seconds else 0.0

    def get_per_gpu_stats(self) -> dict[int, dict[str, float]]:
        """Return a dict that maps each worker number to the statistics of this worker.

        Each value is a dict: processed and failures (numbers of files), time (seconds).
        """
        stats: dict[int, dict[str, float]] = {
            gpu: {"processed": 0, "time": 0.0, "failures": 0} for gpu in self._gpu_ids
        }
        for outcome in self.results:
            if outcome.gpu_id in stats:
                share = stats[outcome.gpu_id]
                share["processed" if outcome.status.answered else "failures"] += 1
                share["time"] += outcome.seconds or 0.0
        return stats

    def get_summary_stats(self) -> dict[str, Any]:
        """Return the counts of the launch as a dict.

        Numbers of files: completed (with any status but left), successful, partial, failed. Times
        in seconds: seconds (elapsed), total_duration (input), total_processing_time. Other keys:
        overall_rtf, speedup, gpu_stats (see `get_per_gpu_stats`), error_count (failed files, plus
        failures of workers and retries).
        """
        successful = sum(outcome.complete for outcome in self.results)
        partial = sum(outcome.status is FileStatus.PARTIAL for outcome in self.results)
        completed = sum(outcome.status is not FileStatus.LEFT for outcome in self.results)
        failed = completed - successful - partial
        return {
            "completed": completed,
            "successful": successful,
            "partial": partial,
            "failed": failed,
            "seconds": self._seconds,
            "total_duration": self._duration(),
            "total_processing_time": self._processing(),
            "overall_rtf": self.get_overall_rtf(),
            "speedup": self.get_speedup(),
            "gpu_stats": self.get_per_gpu_stats(),
            "error_count": failed + len(self.troubles),
        }

    def get_exit_code(self) -> int:
        """Return the exit code: 0 if all files are done, 1 if no file has a result, else 2."""
        over = self.results and len(self.results) == (self._expected or len(self.results))
        if over and all(outcome.complete for outcome in self.results):
            return 0
        return 2 if any(outcome.status.answered for outcome in self.results) else 1

    def print_progress(self, item: FileResult | WorkerTrouble) -> None:
        """Print one line about the result of a file, or about the failure of a worker."""
        if isinstance(item, WorkerTrouble):
            self.say(f"warning: {self.worker_name(item.gpu_id)}: {item.error}")
            return
        line = f"{len(self.results):,}/{self._expected or len(self.results):,} "
        line += f"{Path(item.file).name}: {item.status}"
        if item.seconds is not None:
            line += f", {item.seconds:.1f} s"
        line += f", {self.worker_name(item.gpu_id)}"
        self.say(f"{line}: {item.error}" if item.error else line)

    def print_summary(self, total_files: int) -> None:
        """Print the number of files by status, in total and for each worker."""
        stats = self.get_summary_stats()
        line = f"{counted(total_files, 'file')}: {stats['successful']:,} done"
        for count, name in (
            (stats["partial"], "partial"),
            (stats["failed"], "failed"),
            (total_files - stats["completed"], "left"),
        ):
            line += f", {count:,} {name}" if count else ""
        self.say(f"{line}; {stats['seconds']:.1f} s")
        for gpu, share in stats["gpu_stats"].items():
            files = counted(share["processed"], "file")
            self.say(
                f"{self.worker_name(gpu)}: {files} in {share['time']:.1f} s, "
                f"{share['failures']:,} failed"
            )
        if stats["total_duration"]:
            rtf, speedup = self.get_overall_rtf(), self.get_speedup()
            self.say(f"real-time factor {rtf:.3f}, speedup {speedup:.2f}")

    def say(self, text: str) -> None:
        """Print one line of text to the stream; ignore write errors."""
        say(text, self._stream)

    def worker_name(self, gpu_id: int | None) -> str:
        """Return the name of a worker for messages, such as ``worker 0 (cpu)``."""
        if gpu_id is None:
            return "no worker"
        device = self._devices.get(gpu_id)
        return f"worker {gpu_id} ({device})" if device else f"worker {gpu_id}"

    def _processing(self) -> float:
        return sum(outcome.seconds or 0.0 for outcome in self.results)

    def _duration(self) -> float:
        durations = [outcome.result.get("duration") for outcome in self.results]
        return float(
            sum(
                value
                for value in durations
                if isinstance(value, int | float) and math.isfinite(value)
            )
        )


@dataclass(slots=True)
class ResultPrinter:
    """Prints the results of a launch as lines of text.

    Attributes
    ----------
    balancer
        Object that collects the results and prints the lines.
    status
        Function that returns the state of each worker by worker number.
    quiet
        Whether to print only failures.
    table
        Whether the terminal shows a live table; then no lines are printed.
    next_wait
        Seconds without a result until the current files are printed.
    """

    balancer: LoadBalancer
    status: Callable[[], Mapping[int, Mapping[str, Any]]]
    quiet: bool
    table: bool
    next_wait: float = _FIRST_WAIT_S

    def print(self, item: FileResult | WorkerTrouble) -> None:
        """Print the result of a file, or the failure of a worker."""
        self.next_wait = _FIRST_WAIT_S
        succeeded = isinstance(item, FileResult) and item.complete
        if not self.table and not (self.quiet and succeeded):
            self.balancer.print_progress(item)

    def print_activity(self, seconds: float) -> None:
        """Print the current file of each worker, after 10, 20, 40, ... seconds without a result."""
        if seconds < self.next_wait or self.quiet or self.table:
            return
        self.next_wait = 2 * seconds
        activities = [
            f"{self.balancer.worker_name(worker)}: {_activity(state)}"
            for worker, state in self.status().items()
            if state["status"] not in {"finished", "error"}
        ]
        self.balancer.say(f"no result for {seconds:.0f} s; {', '.join(activities)}")


def _activity(worker: Mapping[str, Any]) -> str:
    task = worker["current_task"]
    return str(worker["status"]) if task is None else f"processing {Path(task).name}"
