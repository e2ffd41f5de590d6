"""Options of a run that do not affect results.

This module imports quickly, because the command line needs it.
"""

from dataclasses import dataclass, field
from pathlib import Path

from virnucpro.errors import UsageError
from virnucpro.option import cpu_threads, integer_from, option, seconds
from virnucpro.runtime.policy import RestartPolicy
from virnucpro.runtime.watchdog import Deadlines
from virnucpro.task import Task, task_option

_SLOW = "a worker that exceeds this limit is killed and restarted"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of a run that do not affect results, for the command line and the Python API."""

    resume: bool = option(
        False,
        "--resume",
        group="existing run",
        help="resume the work in DIR if there is any; requires the same inputs and parameters",
    )
    force: bool = option(
        False, "--force", group="existing run", help="delete the work in DIR and start anew"
    )
    devices: str = option(
        "auto",
        "--devices",
        metavar="LIST",
        group="machine",
        help="devices, one worker process each: auto (all visible GPUs; without a GPU, one CPU "
        "worker per thread as far as memory allows; without language models and for inputs of at "
        "most 512 KiB, the process of the command), 0,1 (these GPUs), cpu:2 (two CPU workers)",
    )
    threads: int | None = option(
        None,
        *("-t", "--threads"),
        metavar="N",
        parse=cpu_threads,
        group="machine",
        help="CPU threads of all workers together",
        default_text="all CPUs of this process",
    )
    lock: bool = option(
        True,
        "--no-lock",
        group="machine",
        help="do not lock the run folder, for file systems without locks; no other process may "
        "write there meanwhile",
    )


@dataclass(frozen=True, kw_only=True)
class Execution(RunOptions):
    """Options of a run that do not affect results. A resumed run may use other values.

    Attributes
    ----------
    outdir
        Folder of the run, as Path or str.
    stop_timeout
        Maximum seconds between the last result of a worker and the end of its process.
    in_process
        True: a single CPU worker is not a process of its own but runs in the calling process, and
        ``auto`` without a GPU selects a single CPU worker. An error of the worker is raised; there
        are no restarts and no deadlines.

    Raises
    ------
    UsageError
        If devices or threads have a wrong type or value, or both `resume` and `force` are given.
    """

    outdir: Path = field(kw_only=False)
    task: Task | None = option(
        None,
        "--task",
        metavar="K/N|auto",
        parse=task_option,
        group="machine",
        help="compute a share of the work: this process is number K, from 0, of N that run this "
        "command; auto: K and N of a SLURM array, srun or MPI",
        default_text="all",
    )
    report: bool = option(
        True,
        "--no-report",
        group="further outputs",
        help="do not write report.html, and remove that of an earlier run in DIR, whose tables are "
        "written again; to write it later: virnucpro report DIR",
    )
    fail_empty: bool = option(
        False,
        "--fail-empty",
        group="inputs",
        help="exit with code 1 if no sequence gets a score or vector, for pipelines",
    )
    # A batch of a large encoder takes minutes on a slow CPU; weights on a network load slowly.
    start_timeout: float = option(
        600.0,
        "--start-timeout",
        metavar="SECONDS",
        parse=seconds,
        group="failed workers",
        help=f"maximum time between the start of a worker and its first batch; {_SLOW}",
    )
    progress_timeout: float = option(
        600.0,
        "--progress-timeout",
        metavar="SECONDS",
        parse=seconds,
        group="failed workers",
        help=f"maximum time between two batches of a worker; {_SLOW}",
    )
    max_restarts: int = option(
        RestartPolicy().max_restarts,
        "--max-restarts",
        metavar="N",
        parse=integer_from(0),
        group="failed workers",
        help="maximum restarts without progress per worker",
    )
    stop_timeout: float = 60.0
    in_process: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "outdir", Path(self.outdir))
        if self.resume and self.force:
            raise UsageError("--resume keeps the run and --force replaces it: give one of them")
        if self.task and self.force:
            raise UsageError("--force would delete the work of other tasks: omit it with --task")
        if not isinstance(self.devices, str):
            raise UsageError(
                f"devices must be text such as 'auto', '0,1' or 'cpu:2', not {self.devices!r}"
            )
        whole = isinstance(self.threads, int) and not isinstance(self.threads, bool)
        if self.threads is not None and not (whole and self.threads > 0):
            raise UsageError(
                f"threads must be an integer of at least 1, or None for all, not {self.threads!r}"
            )

    @property
    def deadlines(self) -> Deadlines:
        """Return the maximum times of a rank without progress, in seconds."""
        return Deadlines(self.start_timeout, self.progress_timeout, self.stop_timeout)

    @property
    def restarts(self) -> RestartPolicy:
        """Return the limits for restarts of failed ranks."""
        return RestartPolicy(max_restarts=self.max_restarts)
