"""bf16 tried on this CPU before a run takes it: held against fp32 in a process of its own.

Light to import: torch is the other process's business, and so is an instruction that this CPU turns
out not to have.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from virnucpro.encoders.base import EncoderSpec, Precision
from virnucpro.encoders.machine_memory import available_memory
from virnucpro.encoders.memory_needed import memory_wanted
from virnucpro.encoders.sizes import shapes_of
from virnucpro.errors import WorkerError
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.gpu_coordinator import GPUProcessCoordinator
from virnucpro.pipeline.job import Job, Reporter
from virnucpro.pipeline.rank_task import RankChannel
from virnucpro.pipeline.ranks import threads_of_rank
from virnucpro.runtime.deadlines import Deadlines
from virnucpro.runtime.devices import Device
from virnucpro.runtime.status import WorkerStatus

__all__ = ["Verdict", "hold_against_fp32", "shortage", "try_bf16", "verdict"]

_STAGES: Final[tuple[Precision, ...]] = ("bf16", "fp32")
"""What the trial computes with, in this order; a mark is a position here."""

_INSIST: Final = "--precision bf16 would insist on it."


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to compute with.

    Attributes
    ----------
    warning
        What a person should know of it; "" where bf16 agrees.
    """

    precision: Precision
    warning: str = ""


def try_bf16(job: Job, execution: Execution, reporter: Reporter) -> Precision:
    """Say what a job whose encoders are large computes with on a CPU that is made for bf16.

    bf16 where it agrees with fp32 on a few made-up items, as `quick_parity` compares them, or where
    there is no room for fp32; else fp32. One encoder is in memory at a time.

    Raises
    ------
    WorkerError
        When the encoders cannot be computed with at all: their files are damaged, or torch is.
    OSError
        When there is no folder for temporary files, or the system refuses a process.
    """
    too_little = shortage(job.encoders, available_memory())
    if too_little:
        reporter.warn(too_little)
        return "bf16"
    reporter.stage("holding bf16 against fp32 on this CPU, on a few made-up items")
    status, problems = _compared(job, execution)
    if status.permanent:
        raise WorkerError(
            f"the encoders could not be tried at bf16: {status.reason.rstrip('.')}. "
            "No run would fare better before that is mended."
        )
    found = verdict(status, problems)
    if found.warning:
        reporter.warn(found.warning)
    return found.precision


def shortage(encoders: Sequence[EncoderSpec], available: int) -> str:
    """Say why nothing can be held against fp32; "" where the largest encoder has room at fp32.

    Parameters
    ----------
    available
        Bytes of memory.
    """
    wanted = max(memory_wanted(shapes_of(spec), "fp32", "cpu") for spec in encoders)
    if wanted <= available:
        return ""
    return (
        f"bf16 is taken without having been held against fp32 on this CPU: that needs "
        f"{wanted / 1e9:.1f} GB of memory, and {available / 1e9:.1f} GB are free. See virnucpro "
        "parity --precision bf16 on a machine of this kind that has more."
    )


def verdict(status: WorkerStatus, problems: Sequence[str]) -> Verdict:
    """Judge by how the comparison ended.

    bf16 needs to have agreed, unless it was fp32 that could not be computed.

    Parameters
    ----------
    status
        Of the process that compared, ended, its place the number of a stage.
    problems
        What did not agree, where it came to an end.
    """
    if status.succeeded:
        if not problems:
            return Verdict("bf16")
        what = "; ".join(problems)
        return Verdict(
            "fp32",
            f"bf16 does not agree with fp32 on this CPU ({what}): computing at fp32. {_INSIST}",
        )
    if status.place == (_STAGES.index("fp32"),):
        return Verdict(
            "bf16",
            "bf16 is taken without having been held against fp32, which could not be computed on "
            f"this CPU ({status.reason}).",
        )
    return Verdict(
        "fp32",
        f"bf16 could not be computed on this CPU ({status.reason}): computing at fp32. {_INSIST}",
    )


def hold_against_fp32(
    rank: int,  # noqa: ARG001 - the coordinator's first two arguments
    world_size: int,  # noqa: ARG001 - as above
    results: RankChannel,
    model: str,
    encoders: Sequence[EncoderSpec],
    head: Path | None,
) -> None:
    """Compare, in a process of its own; puts what does not agree: a tuple of texts.

    Marks each stage before weights are read for it.

    Raises
    ------
    BundleError
        When weights cannot be used.
    """
    # Threads are counted by what the process was told before torch is imported.
    from virnucpro.pipeline.parity import quick_parity  # noqa: PLC0415

    parity = quick_parity(
        model, encoders, head, "bf16", lambda stage: results.mark((_STAGES.index(stage),))
    )
    results.put(parity.problems)


def _compared(job: Job, execution: Execution) -> tuple[WorkerStatus, Sequence[str]]:
    """Run the comparison to its end, however that comes; what it prints is dropped."""
    with (
        tempfile.TemporaryDirectory(prefix="virnucpro-trial-") as folder,
        GPUProcessCoordinator(
            1,
            folder,
            [Device("cpu")],
            threads=threads_of_rank(execution, 1),
            deadlines=_patience(execution.deadlines),
        ) as coordinator,
    ):
        coordinator.spawn_workers(hold_against_fp32, (job.model_name, job.encoders, job.head))
        coordinator.wait_for_completion()
        problems = [text for report in coordinator.collect_results() for text in report]
        return coordinator.statuses[0], problems


def _patience(deadlines: Deadlines) -> Deadlines:
    """Give each stage the time in which a rank loads, and that in which it does a batch."""
    if deadlines.start is None or deadlines.progress is None:
        return Deadlines(stop=deadlines.stop)
    limit = deadlines.start + deadlines.progress
    return Deadlines(limit, limit, deadlines.stop)
