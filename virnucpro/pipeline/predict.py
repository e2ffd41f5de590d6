"""Run a job, from its inputs to its tables."""

from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.jobs.inputs import require_inputs
from virnucpro.pipeline.jobs.job import Job, Reporter, SilentReporter
from virnucpro.pipeline.jobs.predict_job import predict_job
from virnucpro.pipeline.jobs.rank_count import devices_of
from virnucpro.pipeline.run.outputs import Outcome
from virnucpro.pipeline.scheduling.preflight import refuse_what_does_not_fit, with_precision
from virnucpro.pipeline.scheduling.runner import run_job

__all__ = ["predict", "predict_job"]


def predict(job: Job, execution: Execution, reporter: Reporter | None = None) -> Outcome:
    """Compute the missing units of a run, then write its outputs.

    Parameters
    ----------
    job
        Made by `predict_job`, or by `virnucpro.pipeline.jobs.embed_job.embed_job`.

    Returns
    -------
    Counts of the results. Rows of a worker that failed permanently are `missing` in the tables; a
    resume computes them.

    Raises
    ------
    UsageError, InputError, RunError, DeviceError
        Before anything is computed, for example without an input.
    WorkerError
        If every rank failed and nothing was computed.
    """
    require_inputs(job.inputs)
    reporter = reporter or SilentReporter()
    job = with_precision(job, execution)
    devices = devices_of(job, execution)
    refuse_what_does_not_fit(job, devices)
    outcome, _ = run_job(job, devices, execution, reporter)
    return outcome
