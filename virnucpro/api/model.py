"""A model that is loaded once, for many calls."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from threading import Lock
from typing import Any, Self

from virnucpro.api.classify import ClassifyOptions
from virnucpro.api.compute import compute, load_models
from virnucpro.api.embed import EmbeddingOptions, StreamOptions, stream_vectors
from virnucpro.api.embeddings import Embeddings, embeddings_of
from virnucpro.api.result import Result
from virnucpro.api.source import Source
from virnucpro.arrays import FloatArray, RealArray
from virnucpro.bundles.bundle import list_bundles as read_bundles
from virnucpro.bundles.bundle import open_bundle
from virnucpro.bundles.manifest import Bundle
from virnucpro.compute.rank_encoder import Models
from virnucpro.console import shortened
from virnucpro.errors import RunError, UsageError
from virnucpro.option import from_options_of_method
from virnucpro.run.embed_job import embed_job, encoder_of
from virnucpro.run.job import Job
from virnucpro.run.options import EmbedOptions, PredictOptions
from virnucpro.run.predict_job import predict_job


@dataclass(frozen=True, kw_only=True)
class _ClassifyOptions(ClassifyOptions):
    bundle: str | os.PathLike[str] = field(init=False, default="")
    devices: str = field(init=False, default="cpu")


@dataclass(frozen=True, kw_only=True)
class _EmbeddingOptions(EmbeddingOptions):
    encoder: str | os.PathLike[str] = field(init=False, default="")
    devices: str = field(init=False, default="cpu")
    view: str = field(default="", kw_only=False)


@dataclass(frozen=True, kw_only=True)
class _StreamOptions(StreamOptions):
    encoder: str | os.PathLike[str] = field(init=False, default="")
    view: str = field(default="", kw_only=False)


def _given(options: Any) -> dict[str, Any]:  # noqa: ANN401 - one of the classes above
    """Return the options that are arguments, without `view`."""
    names = (option.name for option in fields(options) if option.init and option.name != "view")
    return {name: getattr(options, name) for name in names}


class Model:
    """A bundle whose encoders and classifiers stay in memory; `virnucpro.load` returns it.

    Threads may share a model: their calls wait for each other. A forked process must load its own.
    `close`, or the end of a ``with`` block, frees the memory.

    Attributes
    ----------
    name : str
        Name of the bundle.
    """

    def __init__(self, bundle: str | os.PathLike[str], device: str = "cpu") -> None:
        if device != "cpu":
            raise UsageError(
                f"device={shortened(repr(device))}: a loaded model computes on the CPU. For a GPU, "
                'call virnucpro.classify or virnucpro.embed with its number: devices="0"'
            )
        self._bundle = open_bundle(os.fspath(bundle))
        self.name = self._bundle.name
        self._lock, self._owner, self._closed = Lock(), os.getpid(), False
        self._loaded: list[tuple[object, Models]] = []  # the last two: of classify and embed

    @from_options_of_method(_ClassifyOptions)
    def classify(self, source: Source, options: _ClassifyOptions) -> Result:
        """Tell which sequences are viral, with the results of `virnucpro.classify`.

        Without an `outdir`, the run stays in memory: about 4 bytes per base. The keyword arguments
        are those of `virnucpro.classify` without `bundle` and `devices`.

        Parameters
        ----------
        source
            As for `virnucpro.classify`.
        """
        return self._classify(source, options)

    @from_options_of_method(_ClassifyOptions)
    def score(self, source: Source, options: _ClassifyOptions) -> FloatArray:
        """Return the column ``score`` of the predictions, ``(n,)`` float64; NaN if not scored.

        Parameters are those of `classify`.
        """
        with self._classify(source, options) as result:
            return result.scores()

    def _classify(self, source: Source, options: _ClassifyOptions) -> Result:
        bundle: Any = self._bundle  # in the place of a name
        made = ClassifyOptions(bundle=bundle, devices="cpu", **_given(options))
        return Result(*compute(source, predict_job, PredictOptions, made, self.models))

    @from_options_of_method(_EmbeddingOptions)
    def embed(self, source: Source, options: _EmbeddingOptions) -> Embeddings:
        """Compute vectors of whole sequences, as `virnucpro.embed`.

        The argument after `source`, `view`, is the encoder of the bundle: ``nucleotide`` or
        ``protein``. It is needed if there are two. The keyword arguments are those of
        `virnucpro.embed` without `devices`.

        Parameters
        ----------
        source
            As for `virnucpro.embed`.
        """
        encoder = self._encoder(options.view)
        made = EmbeddingOptions(encoder, devices="cpu", **_given(options))
        done = compute(source, embed_job, EmbedOptions, made, self.models)
        return embeddings_of(done.folder, "sequence")

    @from_options_of_method(_StreamOptions)
    def embed_iter(
        self, source: Source, options: _StreamOptions
    ) -> Iterator[tuple[str, RealArray]]:
        """Compute vectors of whole sequences one after another, as `virnucpro.embed_iter`.

        Parameters are those of `embed`; the options are those of `virnucpro.embed_iter`. Other
        calls may use the model between two vectors.
        """
        made = StreamOptions(self._encoder(options.view), **_given(options))
        return stream_vectors(source, made, self.models)

    def _encoder(self, view: str) -> Any:  # noqa: ANN401 - in the place of a name
        only = self._bundle.encoders[0].view if len(self._bundle.encoders) == 1 else ""
        return encoder_of(self._bundle, view or only, self.name)

    @contextmanager
    def models(self, job: Job) -> Iterator[Models]:
        """Yield the models of a job, which this thread alone uses until the end of the block.

        Raises
        ------
        RunError
            If the model is closed, or this process is a fork of the one that loaded it.
        """
        if os.getpid() != self._owner:
            raise RunError("this model was loaded before the fork: load it in each process")
        needed = (job.encoders, job.head, job.settled_precision, job.others)
        with self._lock:
            if self._closed:
                raise RunError("this model is closed: load it again")
            found = next((models for known, models in self._loaded if known == needed), None)
            if found is None:
                found = load_models(job)
                self._loaded = [*self._loaded[-1:], (needed, found)]
            yield found

    def close(self) -> None:
        """Free the memory; later calls raise RunError."""
        self._closed = True
        self._loaded.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<virnucpro.Model: {self.name}>"


def load(bundle: str | os.PathLike[str] = "mini", *, device: str = "cpu") -> Model:
    """Load a model once, for many calls in this process, on its CPUs.

    Parameters
    ----------
    bundle
        Name or folder of a bundle. Its files are verified once.
    device
        ``cpu``. For GPUs call `virnucpro.classify` or `virnucpro.embed` with `devices`.

    Returns
    -------
    Model
        Its weights are read by the first call.

    Raises
    ------
    UsageError, BundleError
        If there is no such bundle, or it is damaged; if `device` is another one.

    Examples
    --------
    >>> import virnucpro
    >>> with virnucpro.load("mini") as model:  # doctest: +SKIP
    ...     for batch in batches:
    ...         print(model.score(batch))
    """
    return Model(bundle, device)


def list_bundles() -> dict[str, Bundle]:
    """Return the embedded and installed bundles that can be used, by name."""
    return {name: bundle for name, bundle in read_bundles().items() if isinstance(bundle, Bundle)}
