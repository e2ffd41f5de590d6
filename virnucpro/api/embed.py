"""``virnucpro embed`` as a function."""

import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from virnucpro.api.compute import compute
from virnucpro.api.embeddings import Embeddings, embeddings_of
from virnucpro.api.source import Source
from virnucpro.encoders.pooling import Long, Method, Pooling
from virnucpro.pipeline.jobs.embed_job import embed_job
from virnucpro.pipeline.jobs.job import PrecisionChoice

__all__ = ["embed"]


def embed(
    source: Source,
    encoder: str | os.PathLike[str],
    *,
    devices: str = "auto",
    outdir: str | os.PathLike[str] | None = None,
    precision: PrecisionChoice = "auto",
    pooling: Method = "mean",
    layer: int | Sequence[int] = (),
    max_length: int | None = None,
    long: Long = "refuse",
    embeddings: Literal["fp16", "fp32"] = "fp32",
    strict: bool = False,
    force_alphabet: bool = False,
    threads: int | None = None,
    resume: bool = False,
    force: bool = False,
    progress: bool = False,
) -> Embeddings:
    """Compute vectors of whole sequences with one encoder, as ``virnucpro embed`` does.

    Parameters
    ----------
    source, devices, outdir, strict, threads, resume, force, progress
        As for `virnucpro.classify`. The sequences are nucleotides or proteins, as the encoder
        requires.
    encoder
        ``BUNDLE/VIEW``, such as ``mini-deep/protein`` or ``mini/nucleotide``; the path of a
        fair-esm checkpoint (``esm2_*.pt``); a DNABERT-S folder; or a Hugging Face folder of an ESM,
        T5 or BERT model. A path needs the main guard in a script, because a separate process reads
        the files.
    precision
        Precision of the encoder: ``auto``, ``fp32``, ``fp16`` or ``bf16``.
    pooling
        Vector of a sequence: ``mean`` or ``max`` over its tokens, or ``cls`` (the first special
        token). ``none``: one vector per token (residue).
    layer
        Layer of the vectors, from 0 (embeddings) to the number of layers, or negative from the last
        layer, -1; several layers are joined. Empty for the last layer.
    max_length
        Maximum tokens of a sequence, without special tokens; None for the limit of the model.
    long
        Longer sequences: ``truncate`` (their first tokens), ``chunk-mean`` (the mean of chunks), or
        ``refuse`` (no vector).
    embeddings
        Precision of the vectors.
    force_alphabet
        True: accept nucleotides for an encoder of proteins, and the reverse.

    Returns
    -------
    Embeddings
        One row per sequence, in input order. A sequence without a vector, such as an empty one, has
        a row of NaN. With ``pooling="none"``, one row per token; see `Embeddings.offsets`.

    Raises
    ------
    UsageError
        If there is no such encoder, or as for `virnucpro.classify`.
    InputError, BundleError, DeviceError, RunError, WorkerError
        As for `virnucpro.classify`.

    Examples
    --------
    >>> import virnucpro
    >>> vectors = virnucpro.embed("proteins.faa", "mini-deep/protein")  # doctest: +SKIP
    >>> vectors.matrix.shape  # doctest: +SKIP
    (200, 64)
    """
    several = isinstance(layer, Iterable) and not isinstance(layer, str)
    layers: Any = layer if several else (layer,)
    pooled = Pooling(pooling, layers, max_length, long)
    computed = compute(
        source,
        lambda inputs: embed_job(
            inputs,
            encoder=encoder,
            precision=precision,
            embeddings=embeddings,
            pooling=pooled,
            strict=strict,
            force_alphabet=force_alphabet,
        ),
        outdir=outdir,
        devices=devices,
        threads=threads,
        resume=resume,
        force=force,
        progress=progress,
    )
    return embeddings_of(computed.folder, "sequence")
