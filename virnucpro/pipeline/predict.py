"""Runs a job from its inputs to its tables."""

from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.jobs.inputs import require_inputs
from virnucpro.pipeline.jobs.job import Job, Reporter, SilentReporter
from virnucpro.pipeline.jobs.predict_job import predict_job
from virnucpro.pipeline.jobs.rank_count import devices_of
from virnucpro.pipeline.run.outputs import Outcome, write_outputs
from virnucpro.pipeline.run.session import open_session
from virnucpro.pipeline.scheduling.compute import compute_missing
from virnucpro.pipeline.scheduling.preflight import refuse_what_does_not_fit, with_precision

__all__ = ["predict", "predict_job"]


def predict(job: Job, execution: Execution, reporter: Reporter | None = None) -> Outcome:
    """Compute what is missing in the run folder, then write its tables.

    It runs the jobs of `predict_job` and of `virnucpro.pipeline.jobs.embed_job.embed_job`.

    Returns
    -------
    What was answered. The rows of a worker that failed permanently are `missing` in the tables; a
    resume computes them.

    Raises
    ------
    UsageError, InputError, RunError, DeviceError
        Before anything is computed; UsageError where there is no input, too.
    WorkerError
        When every rank failed and nothing was computed.
    """
    require_inputs(job.inputs)
    reporter = reporter or SilentReporter()
    job = with_precision(job, execution)
    devices = devices_of(job, execution)
    refuse_what_does_not_fit(job, devices)
    with open_session(job, execution, reporter, devices[0].kind) as session:
        compute_missing(session, job, devices, execution, reporter)
        return write_outputs(session, reporter)
