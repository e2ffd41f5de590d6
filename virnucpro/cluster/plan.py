"""Plan a run for many machines: index, units and the first round of work."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from virnucpro.compute.preflight import auto_precision, space_needed, vector_bytes
from virnucpro.compute.rounds import write_round
from virnucpro.console import counted
from virnucpro.errors import RunExistsError
from virnucpro.run.creation import claimed, created
from virnucpro.run.execution import Execution
from virnucpro.run.job import Job
from virnucpro.run.reporter import Reporter
from virnucpro.run_dir import RunDirectory, is_run
from virnucpro.runtime.devices import Kind

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
        if 0 < self.units < LEAST_UNITS * self.workers and self.workers > 1:
            most = counted(max(1, self.units // LEAST_UNITS), "worker")
            found.append(
                f"{self.units / self.workers:.1f} units per worker: workers idle at the end of the "
                f"run. Use at most {most}."
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
        As `virnucpro.run.creation.claimed` and `created`.
    """
    if not execution.force:
        _refuse_existing(RunDirectory(execution.outdir))
    job = auto_precision(job, kind)
    with claimed(job, execution):
        run = created(job, execution, reporter, kind, workers)
        write_round(run.paths, range(run.n_units), workers, model)
        return Plan(
            root=run.paths.root,
            workers=workers,
            units=run.n_units,
            rows=run.index.n_rows,
            positions=int(run.index.row_lengths.sum(dtype="int64")),
            unit_rows=run.manifest.units["rows"],
            n_bytes=space_needed(run.index, run.n_units, run.index.n_rows, vector_bytes(job)),
            precision=job.settled_precision,
        )


def _refuse_existing(run: RunDirectory) -> None:
    """Raise RunExistsError with the next step if the folder has a run."""
    run.require_regular_files()
    if is_run(run.root):
        begin = "" if run.round_numbers() else f"virnucpro rescue {run.root}, then "
        raise RunExistsError(
            f"{run.root} already contains a run. To compute it: {begin}virnucpro submit {run.root}."
            " To plan another one, choose another folder, or replace the run with virnucpro plan "
            "--force."
        )
