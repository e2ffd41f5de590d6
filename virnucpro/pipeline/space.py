"""A run that cannot fit onto its disk is refused before it computes anything."""

import shutil

from virnucpro.errors import RunError
from virnucpro.pipeline.job import Job
from virnucpro.pipeline.session import Session
from virnucpro.store.coverage import Coverage
from virnucpro.store.space import SpaceNeeded, space_needed

__all__ = ["refuse_small_disk"]

_FLOAT_BYTES = {"fp16": 2, "fp32": 4, "none": 0}


def refuse_small_disk(session: Session, job: Job, coverage: Coverage) -> None:
    """Compare what the run has yet to write with what is free.

    Raises
    ------
    RunError
        When it does not fit, with both figures. The run stays as it is: a resume goes on with it.
    """
    free = _free_bytes(session)
    needed = _needed(session, job, coverage)
    if free is not None and needed.total > free:
        raise RunError(
            f"{session.run.root}: the run needs about {_size(needed.total)} of disk (segments "
            f"{_size(needed.segments)}, embeddings.h5 {_size(needed.embeddings)}, tables "
            f"{_size(needed.tables)}), {_size(free)} are free there. Free space and repeat with "
            "--resume, choose an output folder on another disk, or keep no vectors "
            "(--embeddings none)."
        )


def _needed(session: Session, job: Job, coverage: Coverage) -> SpaceNeeded:
    index, bounds = session.index, coverage.bounds
    dim = sum(encoder.dim for encoder in job.encoders)
    return space_needed(
        units=len(coverage.missing),
        rows=sum(int(bounds[unit + 1] - bounds[unit]) for unit in coverage.missing),
        vector_bytes=dim * _FLOAT_BYTES[job.embeddings],
        records=index.n_records,
        windows=index.n_windows,
        items=index.n_items,
        name_bytes=index.name_bytes / max(1, index.n_records),
    )


def _free_bytes(session: Session) -> int | None:
    """None where the file system does not tell, as some network mounts do not."""
    usage = shutil.disk_usage(session.run.root)
    return usage.free if usage.total else None


def _size(count: int) -> str:
    for unit, scale in (("GB", 10**9), ("MB", 10**6)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count:,} bytes"
