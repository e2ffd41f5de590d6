"""``virnucpro embed`` as functions."""

import os
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from virnucpro.api.compute import CallerOptions, Lend, compute, load_models
from virnucpro.api.embeddings import Embeddings, embeddings_of
from virnucpro.api.run_folder import RunFolder
from virnucpro.api.source import Source, streams_of
from virnucpro.arrays import RealArray
from virnucpro.compute.in_memory import compute_index
from virnucpro.compute.preflight import settled
from virnucpro.errors import RunError, UsageError
from virnucpro.option import from_options, like, values_of
from virnucpro.run.embed_job import embed_job
from virnucpro.run.execution import Execution, RunOptions
from virnucpro.run.job import require_inputs
from virnucpro.run.options import EmbedOptions
from virnucpro.run.reporter import Reporter
from virnucpro.runtime.process import leave_unguarded_import
from virnucpro.sequences.index import index_blocks

_BLOCK_BYTES: Final = 256 << 10
_BLOCK_RESIDUES: Final = 64 << 10
"""Letters of a block of `embed_iter`; with one vector per residue, 64 KiB have 0.3 GB of vectors of
1,280 dimensions."""


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptions(EmbedOptions, CallerOptions):
    """Options of `embed`; unlike the command, it stores the vectors at fp32."""

    embeddings: Literal["fp16", "fp32"] = like(EmbedOptions, "embeddings", "fp32")


@from_options(EmbeddingOptions)
def embed(source: Source, options: EmbeddingOptions) -> Embeddings:
    """Compute vectors of whole sequences with one encoder, as ``virnucpro embed`` does.

    The argument after `source` is the encoder. The keyword arguments are the options of the
    command: ``--max-length`` is `max_length`. Several layers are a list. Further ones are `outdir`
    and `progress`.

    Parameters
    ----------
    source
        As for `virnucpro.classify`. The sequences are nucleotides or proteins, as the encoder
        requires. An encoder at a path needs the main guard in a script, because a separate process
        reads the files.

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
    (200, 128)
    """
    return embeddings_of(compute(source, embed_job, EmbedOptions, options).folder, "sequence")


@dataclass(frozen=True, kw_only=True)
class StreamOptions(EmbedOptions):
    """Options of `embed_iter`."""

    embeddings: Literal["fp16", "fp32"] = like(EmbedOptions, "embeddings", "fp32")
    threads: int | None = like(RunOptions, "threads")


@from_options(StreamOptions)
def embed_iter(source: Source, options: StreamOptions) -> Iterator[tuple[str, RealArray]]:
    """Compute vectors of whole sequences one after another, in this process, without a file.

    The argument after `source` is the encoder, which is loaded once, on the CPU. The source is read
    and computed in blocks of 256 KB (64 KB with ``pooling="none"``): the memory needed does not
    depend on the number of sequences. Nothing is kept for a resume.

    Parameters
    ----------
    source
        As for `virnucpro.embed`; a generator may be endless.

    Yields
    ------
    tuple of str and numpy.ndarray
        Name and vector ``(D,)`` of each sequence, in input order; NaN for a sequence without a
        vector, such as an empty one. With ``pooling="none"``, vectors ``(length, D)``, of length 0
        for such a sequence. The numbers are those of `virnucpro.embed` up to rounding.

    Raises
    ------
    UsageError, InputError, BundleError, DeviceError
        As for `virnucpro.embed`. An error in a sequence is raised after the vectors of the blocks
        before it.
    RunError
        If a fork of the process that read the first vector reads another one.

    Examples
    --------
    >>> import virnucpro
    >>> stream = virnucpro.embed_iter("proteins.faa", "mini-deep/protein")  # doctest: +SKIP
    >>> for name, vector in stream:  # doctest: +SKIP
    ...     print(name, vector.shape)
    """
    return stream_vectors(source, options)


def stream_vectors(
    source: Source, options: StreamOptions, models: Lend | None = None
) -> Iterator[tuple[str, RealArray]]:
    """Check options and source, and return the iterator of `embed_iter`.

    Parameters
    ----------
    models
        Lends the loaded encoder of a job for the time of a block; None to load it here.
    """
    leave_unguarded_import()
    if options.format is not None:
        raise UsageError("format is for files, and embed_iter writes none: leave it out")
    execution = Execution(Path(os.devnull), devices="cpu", threads=options.threads)
    job = settled(embed_job((), **values_of(EmbedOptions, options)), execution)
    inputs = streams_of(source)
    require_inputs(tuple(map(str, inputs)))
    if models is None:
        loaded = nullcontext(load_models(job))
    lend: Lend = models or (lambda _: loaded)  # as the method of a model

    def vectors() -> Iterator[tuple[str, RealArray]]:
        owner = os.getpid()
        notes: list[str] = []
        lacking = 0
        n_bytes = _BLOCK_RESIDUES if options.pooling == "none" else _BLOCK_BYTES
        for index in index_blocks(inputs, job.index, job.rules, n_bytes, notes.append):
            if os.getpid() != owner:  # torch would wait for the threads of the parent
                raise RunError("these vectors were begun before the fork: call embed_iter anew")
            with lend(job) as loaded_models:
                memory = compute_index(job, index, loaded_models, execution, Reporter())
            block = embeddings_of(RunFolder(None, memory), "sequence")
            lacking += int((~block.found).sum())
            yield from zip(block.ids, block, strict=True)
        if lacking:
            notes.append(
                f"sequences without a vector: {lacking:,}. They are empty, longer than the encoder "
                "allows, or have invalid letters"
            )
        for text in notes:
            warnings.warn(text, stacklevel=2)

    return vectors()
