"""The job of ``virnucpro embed``: vectors of whole sequences from one encoder."""

import os

from virnucpro.errors import UsageError
from virnucpro.pipeline.jobs.job import EmbeddingsDtype, Inputs, Job, PrecisionChoice, inputs_of
from virnucpro.pipeline.jobs.named_encoder import find_encoder
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec

__all__ = ["embed_job"]

_ALPHABETS = {"nucleotide": Alphabet.NUCLEOTIDE, "protein": Alphabet.PROTEIN}


def embed_job(
    inputs: Inputs,
    *,
    encoder: str | os.PathLike[str],
    precision: PrecisionChoice = "fp32",
    embeddings: EmbeddingsDtype = "fp16",
) -> Job:
    """Return a job for `virnucpro.pipeline.predict.predict`.

    Parameters
    ----------
    inputs
        FASTA or FASTQ files: one path or several, ``-`` for standard input.
    encoder
        As `find_encoder` takes it.
    precision
        As `virnucpro.pipeline.predict.predict_job` takes it.
    embeddings
        Precision of the stored vectors: ``fp16`` or ``fp32``.

    Raises
    ------
    UsageError
        If there is no such encoder, or an option is invalid.
    BundleError
        If the encoder is damaged.
    """
    if embeddings not in ("fp16", "fp32"):
        raise UsageError(f"unknown kind of embeddings {embeddings!r} for embed: give fp16 or fp32")
    found = find_encoder(encoder)
    return Job(
        command="embed",
        inputs=inputs_of(inputs),
        index=IndexSpec(kind="whole", alphabet=_ALPHABETS[found.spec.view]),
        encoders=(found.spec,),
        model_name=found.name,
        model=found.fingerprint(),
        precision=precision,
        embeddings=embeddings,
        verified_precisions=found.bundle.verified_precisions if found.bundle else (),
    )
