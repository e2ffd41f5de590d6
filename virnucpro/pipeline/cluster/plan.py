"""Plan a run for many machines: index, units and the first round of work."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from virnucpro.errors import RunExistsError
from virnucpro.machine import cpu_flags
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.jobs.job import Job, Reporter
from virnucpro.pipeline.parts.rounds import write_round
from virnucpro.pipeline.run.manifest import is_manifest
from virnucpro.pipeline.run.session import Session, open_session
from virnucpro.pipeline.scheduling.preflight import (
    default_precision,
    space_needed,
    vector_bytes,
    weight_bytes,
)
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.devices import Kind

__all__ = ["LEAST_UNITS", "Plan", "plan_run"]

LEAST_UNITS = 16
"""Units per worker below which workers idle at the end of a run."""

_MOST_BYTES = 10**12


@dataclass(frozen=True, slots=True)
class Plan:
    """Size of a run that many machines compute.

    Attributes
    ----------
    root
        Folder of the run.
    workers
        Planned number of workers, which is the number of strides.
    units, rows, positions
        Numbers of units, rows, and residues or bases of all rows.
    unit_rows
        Maximum rows of a unit.
    n_bytes
        Estimated bytes of the run, by kind of file.
    precision
        Precision of the encoders.
    """

    root: Path
    workers: int
    units: int
    rows: int
    positions: int
    unit_rows: int
    n_bytes: Mapping[str, int]
    precision: str

    @property
    def warnings(self) -> list[str]:
        """Return warnings about the number of units and the size of the vectors."""
        found = []
        if 0 < self.units < LEAST_UNITS * self.workers:
            found.append(
                f"{self.units / self.workers:.1f} units per worker: workers idle at the end of the "
                f"run. Use at most {max(1, self.units // LEAST_UNITS):,} workers."
            )
        if self.n_bytes["embeddings.h5"] > _MOST_BYTES:
            found.append(
                f"embeddings.h5 needs {self.n_bytes['embeddings.h5'] / 1e12:.1f} TB, and the "
                "segments as much again. Omit --embeddings if no vectors are needed."
            )
        return found


def plan_run(
    job: Job, execution: Execution, reporter: Reporter, *, workers: int, kind: Kind, model: str
) -> Plan:
    """Create a run with its index and its first round; compute nothing.

    Parameters
    ----------
    job
        Inputs, model and parameters; the precision ``auto`` is resolved for devices of `kind`.
    workers
        Planned number of workers. Other numbers of tasks and workers can compute the run too.
    kind
        Kind of the workers' devices.
    model
        Bundle or encoder as the user named it, for the tasks; a path is absolute.

    Raises
    ------
    RunExistsError, RunLockedError, InputError, UsageError
        As `virnucpro.pipeline.run.session.open_session`.
    """
    if not execution.force:
        _refuse_existing(RunDirectory(execution.outdir))
    if job.precision == "auto":
        size, verified = weight_bytes(job.encoders), job.verified_precisions
        job = replace(job, precision=default_precision(kind, cpu_flags(), size, verified))
    with open_session(job, execution, reporter, kind, workers) as session:
        write_round(session.run, range(len(session.bounds) - 1), workers, model)
        return _plan(session, job, workers)


def _refuse_existing(run: RunDirectory) -> None:
    """Raise RunExistsError with the next step if the folder has a run."""
    run.require_regular_files()
    if is_manifest(run.run_json):
        begin = "" if run.round_numbers() else f"virnucpro rescue {run.root}, then "
        raise RunExistsError(
            f"{run.root} already contains a run. To compute it: {begin}virnucpro submit {run.root}."
            " To plan another one, choose another folder, or replace the run with virnucpro plan "
            "--force."
        )


def _plan(session: Session, job: Job, workers: int) -> Plan:
    index, n_units = session.index, len(session.bounds) - 1
    return Plan(
        root=session.run.root,
        workers=workers,
        units=n_units,
        rows=index.n_rows,
        positions=int(index.row_lengths.sum(dtype="int64")),
        unit_rows=session.manifest.units["rows"],
        n_bytes=space_needed(index, n_units, index.n_rows, vector_bytes(job)),
        precision=job.settled_precision,
    )
