"""Options of a run that do not affect results.

This module imports quickly, because the command line needs it.
"""

from dataclasses import dataclass, field
from pathlib import Path

from virnucpro.errors import UsageError
from virnucpro.runtime.events import LogFormat
from virnucpro.runtime.policy import RestartPolicy
from virnucpro.runtime.watchdog import Deadlines

__all__ = ["Execution"]

_DEADLINES = Deadlines(start=600.0, progress=600.0, stop=60.0)
"""Default time limits in seconds.

A batch of a large encoder takes minutes on a slow CPU, and loading weights over a network is slow.
"""


@dataclass(frozen=True, slots=True)
class Execution:
    """Options of a run that do not affect results. A resumed run may use other values.

    Attributes
    ----------
    outdir
        Folder of the run, as Path or str.
    devices
        Devices such as ``auto``, ``0,1`` or ``cpu:2``; see
        `virnucpro.runtime.devices.parse_devices`.
    threads
        Total CPU threads of all ranks; None for all CPUs available to the process.
    resume
        True: resume the run in `outdir`. Without a run in `outdir`, a new run is created.
    force
        True: replace an existing run in `outdir` by a new run.
    restarts
        Limits for restarts of failed ranks.
    redeal
        True: reassign the units of failed and slow ranks to idle ranks.
    deadlines
        Maximum seconds of a rank without progress. A rank that exceeds a limit is killed, and
        is handled like a failed rank.
    log_format
        ``text`` for events in ``logs/*.log``, or ``json`` for events in ``logs/*.jsonl``.
    lock
        False: do not lock the run folder, for file systems without locks.
    check_inputs
        True: a resume reads all inputs completely, also those that seem unchanged.
    in_process
        True: a single CPU worker is not a process of its own but runs in the calling process, and
        ``auto`` without a GPU selects a single CPU worker. An error of the worker is raised; there
        are no restarts and no deadlines.
    report
        True: write report.html from the tables of a run of predict.

    Raises
    ------
    UsageError
        If devices or threads have a wrong type or value, or both `resume` and `force` are given.
    """

    outdir: Path
    devices: str = "auto"
    threads: int | None = None
    resume: bool = False
    force: bool = False
    restarts: RestartPolicy = field(default_factory=RestartPolicy)
    redeal: bool = True
    deadlines: Deadlines = _DEADLINES
    log_format: LogFormat = "text"
    lock: bool = True
    check_inputs: bool = False
    in_process: bool = False
    report: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "outdir", Path(self.outdir))
        if self.resume and self.force:
            raise UsageError("--resume keeps the run and --force replaces it: give one of them")
        if not isinstance(self.devices, str):
            raise UsageError(
                f"devices must be text such as 'auto', '0,1' or 'cpu:2', not {self.devices!r}"
            )
        whole = isinstance(self.threads, int) and not isinstance(self.threads, bool)
        if self.threads is not None and not (whole and self.threads > 0):
            raise UsageError(
                f"threads must be an integer of at least 1, or None for all, not {self.threads!r}"
            )
