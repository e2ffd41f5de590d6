"""The whole job: sequences in, one answered row for each of them out."""

import os

from virnucpro.bundles.bundle import open_bundle
from virnucpro.errors import UsageError
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.fitting import refuse_what_does_not_fit
from virnucpro.pipeline.inputs import Inputs, inputs_of, require_inputs
from virnucpro.pipeline.job import Job, PrecisionChoice, Reporter, SilentReporter
from virnucpro.pipeline.launch import compute_missing
from virnucpro.pipeline.outputs import Outcome, write_outputs
from virnucpro.pipeline.precision import with_precision
from virnucpro.pipeline.rank_task import EmbeddingsDtype
from virnucpro.pipeline.ranks import devices_of
from virnucpro.pipeline.session import open_session
from virnucpro.runtime.standby import Standby
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec
from virnucpro.sequences.windows import Tiling

__all__ = ["predict", "predict_job"]


def predict_job(
    inputs: Inputs,
    *,
    bundle: str | os.PathLike[str] = "mini",
    window: int | None = None,
    tiling: Tiling | None = None,
    genetic_code: int | None = None,
    precision: PrecisionChoice = "fp32",
    embeddings: EmbeddingsDtype = "fp16",
) -> Job:
    """Say what to predict, with the bundle's own window, tiling and genetic code where none given.

    Parameters
    ----------
    inputs
        FASTA or FASTQ files: one path or several, ``-`` for standard input.
    bundle
        As `open_bundle` takes it.
    precision
        ``auto`` is settled by the devices and the run, as the command does it, in `predict`.

    Raises
    ------
    BundleError
        When the bundle is missing or damaged: every file of it is verified.
    UsageError
        When there is no such bundle, it has no classifier, or an option makes no sense.
    """
    opened = open_bundle(os.fspath(bundle))
    if opened.head is None:
        raise UsageError(
            f"{bundle}: holds encoders and no classifier. Take its vectors by virnucpro embed "
            f"(-e {bundle}/{opened.encoders[0].view}), or give a bundle with a classifier."
        )
    return Job(
        command="predict",
        inputs=inputs_of(inputs),
        index=IndexSpec(
            kind="frames",
            alphabet=Alphabet.NUCLEOTIDE,
            window=opened.window if window is None else window,
            tiling=opened.tiling if tiling is None else tiling,
            genetic_code=opened.genetic_code if genetic_code is None else genetic_code,
        ),
        encoders=opened.encoders,
        model_name=opened.name,
        model=opened.fingerprint,
        head=opened.head,
        labels=opened.labels,
        thresholds=dict(opened.thresholds),
        precision=precision,
        embeddings=embeddings,
    )


def predict(
    job: Job,
    execution: Execution,
    reporter: Reporter | None = None,
    standby: Standby | None = None,
) -> Outcome:
    """Compute what is missing in the run folder, then write its tables from what is there.

    Parameters
    ----------
    standby
        What `virnucpro.pipeline.ahead.ranks_ahead` gave, where seconds count.

    Returns
    -------
    What was answered. A rank that fails takes nothing with it: its rows are `missing` in the
    tables, and a resume computes them.

    Raises
    ------
    UsageError, InputError, RunError, DeviceError
        Before anything is computed; UsageError where there is no input, too.
    WorkerError
        When every rank failed and nothing was computed.
    """
    require_inputs(job.inputs)
    reporter = reporter or SilentReporter()
    job = with_precision(job, execution, reporter)
    devices = devices_of(job, execution)
    refuse_what_does_not_fit(job, devices)
    with open_session(job, execution, reporter, devices[0].kind) as session:
        compute_missing(session, job, devices, execution, reporter, standby)
        return write_outputs(session, reporter)
