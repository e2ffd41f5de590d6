"""The job of an existing run, from run.json and the name of its bundle or encoder."""

from typing import Final

from virnucpro.pipeline.jobs.embed_job import embed_job
from virnucpro.pipeline.jobs.job import Job
from virnucpro.pipeline.predict import predict_job
from virnucpro.pipeline.run.manifest import Manifest
from virnucpro.run_dir import RunDirectory

__all__ = ["job_of_run"]

_ADVICE: Final = "Name the bundle or encoder of the run with -b."


def job_of_run(run: RunDirectory, manifest: Manifest, model: str) -> Job:
    """Return the job of a run, with the bundle or encoder `model`.

    Raises
    ------
    UsageError, BundleError
        If there is no such model, or its files are damaged.
    FingerprintError
        If the model differs from that of the run.
    """
    inputs = [file.path for file in manifest.inputs]
    given = manifest.parameters
    if manifest.command == "predict":
        job = predict_job(
            inputs,
            bundle=model,
            window=given["window"],
            tiling=given["tiling"],
            genetic_code=given["genetic_code"],
            precision=given["precision"],
            embeddings=given["embeddings"],
            fallback="fallback" in given,
            min_length=given.get("min_length", 0),
        )
    else:
        job = embed_job(
            inputs, encoder=model, precision=given["precision"], embeddings=given["embeddings"]
        )
    given = {"command": job.command, **job.parameters()}
    manifest.refuse_other_parameters(run, given, advice=_ADVICE)
    return job
