"""What has become of the files of a launch, counted while it goes on."""

import math
import queue
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from virnucpro.launch.results import (
    FileResult,
    FileStatus,
    ResultQueue,
    RunOver,
    WorkerTrouble,
    shown,
)

__all__ = ["SILENCE_S", "LoadBalancer"]

SILENCE_S = 2.0
"""After so many seconds without a word, and so many more, whoever wants to know is told."""


class LoadBalancer:
    """Takes results in, and counts. The balance itself is dynamic: who is free takes the next file.

    A worker whose result has a number ``duration`` (seconds of input that a file holds, as a
    recording does) has a real-time factor.

    Parameters
    ----------
    gpu_ids
        The workers' GPUs.
    stream
        Gets what is printed; standard error by default.

    Attributes
    ----------
    results
        Of all files so far, in the order of their ends.
    troubles
        What befell workers, a line each.
    error
        Why the run ended before all files were answered, or None.
    """

    def __init__(self, gpu_ids: Sequence[int], stream: TextIO | None = None) -> None:
        self._gpu_ids = list(dict.fromkeys(gpu_ids))
        self._stream = stream
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
        """Take results until the run is over: also how its workers put away.

        Parameters
        ----------
        progress_callback
            Told each result, and what befalls workers, as it comes.
        silence_callback
            Told every `SILENCE_S` for how many seconds nothing came.
        """
        self._expected = total_files
        began = heard = time.perf_counter()
        while True:
            try:
                item = result_queue.get(timeout=SILENCE_S)
            except queue.Empty:
                if silence_callback is not None:
                    silence_callback(time.perf_counter() - heard)
                continue
            if isinstance(item, RunOver):
                self.error = item.error
                return
            heard = time.perf_counter()
            self._seconds = heard - began
            if isinstance(item, FileResult):
                self.results.append(item)
            else:
                self.troubles.append(item.error)
            if progress_callback is not None:
                progress_callback(item)

    def get_overall_rtf(self) -> float:
        """Divide processing time by the duration of the input; 0.0 where it has none."""
        duration = self._duration()
        return self._processing() / duration if duration else 0.0

    def get_speedup(self) -> float:
        """Say how much faster the launch was; 0.0 at first.

        Than the input's duration, where it has one: the inverse of the real-time factor. Else than
        one worker that does all files: processing time by the time that has passed.
        """
        processing, duration = self._processing(), self._duration()
        if duration:
            return duration / processing if processing else 0.0
        return processing / self._seconds if self._seconds else 0.0

    def get_per_gpu_stats(self) -> dict[int, dict[str, float]]:
        """Count for each GPU: processed (files), time (seconds), failures."""
        stats: dict[int, dict[str, float]] = {
            gpu: {"processed": 0, "time": 0.0, "failures": 0} for gpu in self._gpu_ids
        }
        for one in self.results:
            if one.gpu_id in stats:
                share = stats[one.gpu_id]
                share["processed" if one.status.answered else "failures"] += 1
                share["time"] += one.seconds or 0.0
        return stats

    def get_summary_stats(self) -> dict[str, Any]:
        """Give all numbers: completed, successful, partial, failed, seconds, ... as plain data."""
        successful = sum(one.complete for one in self.results)
        partial = sum(one.status is FileStatus.PARTIAL for one in self.results)
        return {
            "completed": len(self.results),
            "successful": successful,
            "partial": partial,
            "failed": len(self.results) - successful - partial,
            "seconds": self._seconds,
            "total_duration": self._duration(),
            "total_processing_time": self._processing(),
            "overall_rtf": self.get_overall_rtf(),
            "speedup": self.get_speedup(),
            "gpu_stats": self.get_per_gpu_stats(),
            "error_count": len(self.results) - successful - partial + len(self.troubles),
        }

    def get_exit_code(self) -> int:
        """Give 0 where all files are done, 1 where none is, 2 where some are, or are in part."""
        over = self.results and len(self.results) == (self._expected or len(self.results))
        if over and all(one.complete for one in self.results):
            return 0
        return 2 if any(one.status.answered for one in self.results) else 1

    def print_progress(self, item: FileResult | WorkerTrouble) -> None:
        """Print a line about a result, or about what befell a worker."""
        if isinstance(item, WorkerTrouble):
            self.say(f"warning: {_worker(item.gpu_id)}: {item.error}")
            return
        count = f"{len(self.results):,}/{self._expected or len(self.results):,}"
        took = "" if item.seconds is None else f", {item.seconds:.1f} s"
        line = f"{count} {Path(item.file).name}: {item.status}{took} ({_worker(item.gpu_id)})"
        self.say(f"{line}: {item.error}" if item.error else line)

    def print_summary(self, total_files: int) -> None:
        """Print how it went."""
        stats = self.get_summary_stats()
        left = total_files - stats["completed"]
        line = f"{total_files:,} files: {stats['successful']:,} done"
        for number, what in (
            (stats["partial"], "in part"),
            (stats["failed"], "failed"),
            (left, "left"),
        ):
            line += f", {number:,} {what}" if number else ""
        self.say(f"{line}; {stats['seconds']:.1f} s")
        for gpu, one in stats["gpu_stats"].items():
            self.say(
                f"{_worker(gpu)}: {one['processed']:,} files in {one['time']:.1f} s, "
                f"{one['failures']:,} failed"
            )
        if stats["total_duration"]:
            rtf, speedup = self.get_overall_rtf(), self.get_speedup()
            self.say(f"real-time factor {rtf:.3f}, speedup {speedup:.2f}")

    def say(self, text: str) -> None:
        """Print a line."""
        (self._stream or sys.stderr).write(f"[virnucpro] {shown(text)}\n")

    def _processing(self) -> float:
        return sum(one.seconds or 0.0 for one in self.results)

    def _duration(self) -> float:
        durations = [one.result.get("duration") for one in self.results]
        return float(
            sum(one for one in durations if isinstance(one, int | float) and math.isfinite(one))
        )


def _worker(gpu_id: int | None) -> str:
    return "no worker" if gpu_id is None else f"worker {gpu_id}"
