"""Engine for SLURM: its own arrays, dependencies and requeues; no process of ours remains."""

import shlex
from collections.abc import Callable, Sequence

from virnucpro.errors import EngineError, UsageError
from virnucpro.pipeline.engines.request import Request
from virnucpro.pipeline.engines.slurm_jobs import largest_array, refuse_larger_array, submissions
from virnucpro.runtime.program import output_of

__all__ = ["SlurmEngine", "require_array"]


class SlurmEngine:
    """Submits all rounds of a run as SLURM jobs.

    Parameters
    ----------
    report
        Function that gets each sbatch command, and then the number of its job, as lines.
    """

    def __init__(self, report: Callable[[str], object]) -> None:
        self._report = report

    def submit(self, request: Request) -> int:
        """Submit an array of tasks and a merge for each round; return 0.

        Raises
        ------
        UsageError
            If SLURM is not installed, or an option is invalid.
        EngineError
            If SLURM refuses a job or does not answer.
        """
        jobs = submissions(request)
        (request.run / "logs").mkdir(exist_ok=True)
        numbers: dict[str, str] = {}
        for job in jobs:
            words = job.words(numbers.get(job.after, ""))
            self._report(shlex.join(words))
            try:
                answer = _output(words).split()
            except EngineError as error:
                if numbers:
                    queued = " ".join(numbers.values())
                    error.add_note(f"Submitted before: {queued}. Cancel with: scancel {queued}")
                raise
            numbers[job.name] = answer[-1].partition(";")[0]
            self._report(f"{job.name}: job {numbers[job.name]}")
        return 0


def require_array(tasks: int) -> None:
    """Check that the arrays of this cluster can have a number of tasks.

    Raises
    ------
    UsageError
        If they are too small, or SLURM is not installed here.
    EngineError
        If SLURM does not answer.
    """
    refuse_larger_array(tasks, largest_array(_output(["scontrol", "show", "config"])))


def _output(words: Sequence[str]) -> str:
    try:
        return output_of(words)
    except FileNotFoundError:
        raise UsageError(
            f"{words[0]} is not installed here. Run this command on a login node of a SLURM "
            "cluster, print its commands with --print, or choose another --engine."
        ) from None
