"""How to go about a job. Light to import: the command line reads its options into this."""

from dataclasses import dataclass, field
from pathlib import Path

from virnucpro.errors import UsageError
from virnucpro.runtime.events import LogFormat
from virnucpro.runtime.policy import RestartPolicy
from virnucpro.runtime.watchdog import Deadlines

__all__ = ["Execution"]

_DEADLINES = Deadlines(start=600.0, progress=600.0, stop=60.0)
"""A batch of the largest encoders takes minutes on a slow CPU; weights may come over a network."""


@dataclass(frozen=True, slots=True)
class Execution:
    """How to go about it. Nothing here changes a number; a resume may differ in all of it.

    Attributes
    ----------
    outdir
        Folder of the run; text is taken as a path.
    devices
        As `virnucpro.runtime.devices.parse_devices` takes them.
    threads
        CPU threads for all ranks together; None for as many as the process may use.
    resume
        Go on with the run in the folder where there is one.
    force
        Remove the run in the folder and start anew.
    restarts
        How often a rank that fails is started again before it is given up.
    redeal
        Give what a failed rank leaves, or a slow one would keep others waiting for, to idle ranks.
    deadlines
        A rank that makes no progress for so long hangs: it is ended, and has failed.
    log_format
        ``json`` writes the steps of ranks and coordinator to ``logs/*.jsonl``, for programs.

    Raises
    ------
    UsageError
        When the devices are no text, or the threads no whole number from 1.
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

    def __post_init__(self) -> None:
        object.__setattr__(self, "outdir", Path(self.outdir))
        if not isinstance(self.devices, str):
            raise UsageError(
                f"devices are text such as 'auto', '0,1' or 'cpu:2', not {self.devices!r}"
            )
        whole = isinstance(self.threads, int) and not isinstance(self.threads, bool)
        if self.threads is not None and not (whole and self.threads > 0):
            raise UsageError(
                f"threads are a whole number from 1, not {self.threads!r}; None takes all there are"
            )
