"""``virnucpro embed`` as a function."""

from dataclasses import dataclass
from typing import Literal

from virnucpro.api.compute import CallerOptions, compute
from virnucpro.api.embeddings import Embeddings, embeddings_of
from virnucpro.api.source import Source
from virnucpro.option import from_options, like
from virnucpro.run.embed_job import embed_job
from virnucpro.run.options import EmbedOptions


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
    (200, 64)
    """
    return embeddings_of(compute(source, embed_job, EmbedOptions, options).folder, "sequence")
