"""How to go about a job. Light to import: the command line reads its options into this."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Execution"]


@dataclass(frozen=True, slots=True)
class Execution:
    """How to go about it. Nothing here changes a number; a resume may differ in all of it.

    Attributes
    ----------
    devices
        As `virnucpro.runtime.devices.parse_devices` takes them.
    threads
        CPU threads for all ranks together; None for as many as the process may use.
    resume
        Go on with the run in the folder where there is one.
    force
        Remove the run in the folder and start anew.
    """

    outdir: Path
    devices: str = "auto"
    threads: int | None = None
    resume: bool = False
    force: bool = False
