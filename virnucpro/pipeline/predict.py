"""Create the job of ``virnucpro predict``, and compute a job from its inputs to its tables."""

import os
from dataclasses import replace
from typing import Final

from virnucpro.bundles.bundle import Bundle, open_bundle
from virnucpro.bundles.published import published_names
from virnucpro.classifier.call_options import CallOptions
from virnucpro.classifier.decision import require_applicable
from virnucpro.errors import UsageError
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.jobs.job import (
    Classifier,
    EmbeddingsDtype,
    Inputs,
    Job,
    PrecisionChoice,
    Reporter,
    SilentReporter,
    inputs_of,
    require_inputs,
)
from virnucpro.pipeline.run.outputs import Outcome
from virnucpro.pipeline.scheduling.preflight import (
    as_resumed,
    check_device_memory,
    devices_of,
    with_precision,
)
from virnucpro.pipeline.scheduling.runner import run_in_process, run_job
from virnucpro.report.extract_options import ExtractOptions
from virnucpro.runtime.devices import Device
from virnucpro.sequences.input_rules import InputRules
from virnucpro.sequences.items import LEAST_BASES
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import KIND_OF_ITEMS, IndexSpec, default_min_length
from virnucpro.sequences.windows import Tiling

__all__ = ["FALLBACK", "predict", "predict_job"]

FALLBACK: Final = "mini"
"""Embedded bundle that scores whole windows."""


def predict_job(
    inputs: Inputs,
    *,
    bundle: str | os.PathLike[str] = "mini",
    window: int | None = None,
    tiling: Tiling | None = None,
    genetic_code: int | None = None,
    precision: PrecisionChoice = "fp32",
    embeddings: EmbeddingsDtype | None = None,
    fallback: bool = True,
    min_length: int | None = None,
    strict: bool = False,
    calls: CallOptions | None = None,
    extracts: ExtractOptions | None = None,
    published_files: bool | None = None,
) -> Job:
    """Return the job of ``virnucpro predict``; the function `predict` computes it.

    Parameters
    ----------
    inputs
        FASTA or FASTQ files: one path or several; ``-`` for standard input.
    bundle
        Name or folder of the bundle, as for `open_bundle`.
    window, tiling, genetic_code
        Window length in bases, tiling and number of the genetic code; None for the values of the
        bundle.
    precision
        Precision of the encoders. `predict` replaces ``auto`` by a precision that suits device and
        model; a resumed run keeps its precision.
    embeddings
        Precision of the stored vectors, ``fp16`` or ``fp32``, or ``none`` to store no vectors.
        None for the choice of the resumed run, or ``none``.
    fallback
        Whether the embedded bundle `FALLBACK` scores the windows without an open frame or long
        stretch, if the bundle scores only these. A resumed run keeps its choice.
    min_length
        Least length of a record in bases; shorter records are `too_short`. None: a third of a
        window; 0 with the tiling ``published``, because the published tool scores every record. A
        resumed run keeps its least length if none is given.
    strict
        Refuse gaps and invalid letters in the inputs.
    calls
        Rule of the calls; None for the default rule, or for the rule of the resumed run.
    extracts
        Which records are written as FASTA or FASTQ; None for viral.fasta, or as in the resumed run.
    published_files
        Whether the two tables of the published tool are written as well; None for the published
        bundles only, or as in the resumed run.

    Raises
    ------
    BundleError
        If the bundle is missing or damaged; every file is verified.
    UsageError
        If there is no such bundle, it has no classifier, an option is invalid, or the rule of the
        calls needs a calibration that the bundle lacks.
    """
    opened = open_bundle(os.fspath(bundle))
    if opened.head is None:
        raise UsageError(
            f"{bundle}: has encoders but no classifier. Compute vectors with virnucpro embed "
            f"-e {bundle}/{opened.encoders[0].view}, or give a bundle with a classifier."
        )
    if calls is not None:
        require_applicable(calls, calibrated=opened.calibration is not None)
    kind = KIND_OF_ITEMS[opened.items]
    if kind == "windows" and window is not None and window < LEAST_BASES:
        raise UsageError(
            f"--window {window}: {bundle} cannot score windows of fewer than {LEAST_BASES} bases; "
            "give a longer window"
        )
    second = None if kind == "windows" or not fallback else _classifier(open_bundle(FALLBACK))
    spec = IndexSpec(
        kind=kind,
        alphabet=Alphabet.NUCLEOTIDE,
        window=opened.window if window is None else window,
        tiling=opened.tiling if tiling is None else tiling,
        genetic_code=opened.genetic_code if genetic_code is None else genetic_code,
        fallback=second is not None,
    )
    least = default_min_length(spec) if min_length is None else min_length
    return Job(
        command="predict",
        inputs=inputs_of(inputs),
        index=replace(spec, min_length=least),
        encoders=opened.encoders,
        model_name=opened.name,
        model=opened.fingerprint,
        head=opened.head,
        labels=opened.labels,
        thresholds=dict(opened.thresholds),
        fallback=second,
        calibration=opened.calibration,
        calls=calls,
        classes=opened.classes,
        extracts=extracts,
        rules=InputRules(strict=strict),
        min_length=min_length,
        bundle_window=opened.window,
        published_files=published_files or opened.name in published_names() or None,
        precision=precision,
        embeddings=embeddings,
        verified_precisions=opened.verified_precisions,
    )


def _classifier(bundle: Bundle) -> Classifier:
    assert bundle.head is not None
    return Classifier(bundle.encoders, bundle.head, bundle.fingerprint)


def predict(job: Job, execution: Execution, reporter: Reporter | None = None) -> Outcome:
    """Compute the missing units of a run, then write its outputs.

    Parameters
    ----------
    job
        Result of `predict_job` or `virnucpro.pipeline.jobs.embed_job.embed_job`.

    Returns
    -------
    Counts of the results. Rows of a worker that failed permanently are `missing` in the tables; a
    resume computes them.

    Raises
    ------
    UsageError, InputError, RunError, DeviceError
        If the inputs, the run folder or the devices cannot be used. Nothing has been computed.
    WorkerError
        If every rank failed and nothing was computed.
    """
    require_inputs(job.inputs)
    reporter = reporter or SilentReporter()
    job = with_precision(as_resumed(job, execution), execution)
    devices = devices_of(job, execution)
    check_device_memory(job, devices)
    if execution.in_process and devices == [Device("cpu")]:
        outcome, _ = run_in_process(job, execution, devices[0], reporter)
    else:
        outcome, _ = run_job(job, devices, execution, reporter)
    return outcome
