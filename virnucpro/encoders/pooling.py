"""From tokens to vectors: pooling, layers, and the treatment of long sequences. Without torch."""

import operator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, SupportsIndex, cast

import numpy as np

from virnucpro.arrays import IntArray, IntegerArray
from virnucpro.encoders.pooling_options import LONG, METHODS, OUTPUTS, Long, Method, Outputs
from virnucpro.errors import UsageError


class TokenLayout(NamedTuple):
    """Layers and special tokens of an encoder.

    Attributes
    ----------
    n_layers
        Number of layers; 0 for an encoder without layers.
    first, last
        Number of special tokens before and after the tokens of a sequence.
    longest
        Maximum number of tokens of a sequence, without special tokens; 0 for no limit.
    has_cls
        Whether the first special token is trained to represent the sequence.
    mean_of_all
        Whether the mean includes the special tokens, as the authors of the model compute it.
    """

    n_layers: int
    first: int = 0
    last: int = 0
    longest: int = 0
    has_cls: bool = True
    mean_of_all: bool = False


@dataclass(frozen=True, slots=True)
class Pooling:
    """How the tokens of a sequence become vectors; part of the run's fingerprint.

    Attributes
    ----------
    method
        ``mean`` or ``max`` over the tokens, ``cls`` (the first special token), or ``none``: one
        vector per token.
    layers
        Layers whose vectors are joined, in this order; 0 are the embeddings before the first
        layer. Empty for the last layer.
    max_length
        Maximum number of tokens of a sequence, without special tokens; None for the limit of the
        model.
    long
        Treatment of longer sequences. ``refuse``: no vector, listed in quarantine.tsv.
        ``truncate``: the first tokens only. ``chunk-mean``: chunks of about equal length, encoded
        separately; the vector is their mean by number of tokens (``max``: their maximum; ``none``:
        the vectors of all chunks).
    outputs
        ``vectors``, or what the head of a masked language model computes in their place:
        ``logits`` of all tokens of the vocabulary for each token, or the ``pseudo_perplexity`` of
        a sequence.

    Raises
    ------
    UsageError
        If a word is unknown, a number is not whole or `max_length` is less than 1, or another
        option has no effect on `outputs`.
    """

    method: Method = "mean"
    layers: tuple[int, ...] = ()
    max_length: int | None = None
    long: Long = "refuse"
    outputs: Outputs = "vectors"

    def __post_init__(self) -> None:
        words = (
            ("--pooling", self.method, METHODS),
            ("--long", self.long, LONG),
            ("--outputs", self.outputs, OUTPUTS),
        )
        for option, given, known in words:
            if given not in known:
                raise UsageError(f"unknown {option} {given!r}: give {', '.join(known)}")
        layers = tuple(
            _whole(layer, "--layer", "a whole number, such as -1 for the last layer")
            for layer in self.layers
        )
        object.__setattr__(self, "layers", layers)
        if self.max_length is not None:
            wanted = "a whole number of tokens of at least 1"
            length = _whole(self.max_length, "--max-length", wanted)
            if length < 1:
                raise UsageError(f"invalid --max-length {length}: give {wanted}")
            object.__setattr__(self, "max_length", length)
        if self.outputs != "vectors" and (self.method != "mean" or self.layers):
            raise UsageError(f"--outputs {self.outputs}: leave out --pooling and --layer")
        if self.outputs == "pseudo_perplexity" and self.long == "chunk-mean":
            raise UsageError("--outputs pseudo_perplexity: give --long truncate or refuse")

    @property
    def per_token(self) -> bool:
        """Return whether each token has a vector of its own."""
        return self.method == "none" or self.outputs == "logits"

    def parameters(self) -> dict[str, Any]:
        """Return the values by the names of the options of ``virnucpro embed``, for JSON."""
        method = {
            "outputs": self.outputs,
            "pooling": self.method,
            "layer": list(self.layers),
        }
        return {**method, "max_length": self.max_length, "long": self.long}

    def of_model(self, name: str, layout: TokenLayout) -> "Pooling":
        """Return this pooling for a model: layers counted from 0, without values of no effect.

        Raises
        ------
        UsageError
            If the model lacks a layer or a first special token, or its limit is exceeded.
        """
        if not layout.n_layers:
            if self != Pooling():
                raise UsageError(
                    f"{name} has no choice of pooling and layers: --outputs, --pooling, --layer, "
                    "--max-length and --long need ESM-2, DNABERT-S or a Hugging Face model."
                )
            return self
        if self.method == "cls" and not layout.has_cls:
            raise UsageError(
                f"{name} has no first token that represents the sequence: give --pooling mean, max "
                "or none."
            )
        limit = self.max_length or None
        if layout.longest and (limit or 0) > layout.longest:
            raise UsageError(
                f"--max-length {limit}: {name} reads at most {layout.longest} tokens. Give at most "
                f"{layout.longest}."
            )
        limit = limit or layout.longest or None
        if limit is None and self.long != "refuse":
            raise UsageError(f"--long {self.long} needs --max-length: {name} has no limit.")
        layers = tuple(_layer(name, layer, layout.n_layers) for layer in self.layers)
        if len(set(layers)) < len(layers):
            raise UsageError(f"--layer: a layer of {name} is given twice. Give each layer once.")
        return Pooling(
            self.method,
            () if layers == (layout.n_layers,) else layers,
            None if limit == layout.longest else limit,
            self.long,
            self.outputs,
        )


def _whole(value: object, option: str, wanted: str) -> int:
    """Return a whole number of any integer type as int; True and False are none."""
    try:
        if not isinstance(value, bool):
            return operator.index(cast("SupportsIndex", value))
    except TypeError:
        pass
    raise UsageError(f"invalid {option} {value!r}: give {wanted}")


def _layer(name: str, number: int, n_layers: int) -> int:
    if not -n_layers - 1 <= number <= n_layers:
        raise UsageError(
            f"--layer {number}: {name} has {n_layers} layers. Give 0 (embeddings) to {n_layers}, "
            f"or -1 (the last layer) to {-n_layers - 1}."
        )
    return number % (n_layers + 1)


@dataclass(frozen=True, slots=True)
class PoolingPlan:
    """The pooling of one model: `Pooling.of_model` and the model's tokens."""

    pooling: Pooling
    layout: TokenLayout

    @property
    def layers(self) -> tuple[int, ...]:
        """Return the layers, counted from 0; by default the last layer."""
        return self.pooling.layers or (self.layout.n_layers,)

    @property
    def limit(self) -> int | None:
        """Return the maximum number of tokens without special tokens; None for no limit."""
        return self.pooling.max_length or self.layout.longest or None

    @property
    def most_tokens(self) -> int | None:
        """Return the maximum number of all tokens that the model can read; None for no limit."""
        layout = self.layout
        return layout.longest + layout.first + layout.last if layout.longest else None

    def truncated(self, ids: IntegerArray) -> IntegerArray:
        """Return token ids of a sequence without the tokens that ``truncate`` removes."""
        if self.pooling.long != "truncate" or not self._is_long(len(ids)):
            return ids
        first, inside, last = self._parts(ids)
        return np.concatenate([first, inside[: self.limit], last])

    def chunks(self, ids: IntegerArray) -> list[IntegerArray]:
        """Return the token ids of each chunk of a sequence, with its special tokens."""
        if self.pooling.long != "chunk-mean" or not self._is_long(len(ids)):
            return [ids]
        assert self.limit is not None
        first, inside, last = self._parts(ids)
        parts = np.array_split(inside, -(-len(inside) // self.limit))
        return [np.concatenate([first, part, last]) for part in parts]

    def refusal(self, n_tokens: int) -> str:
        """Return why a sequence of `n_tokens` token ids gets no vector; "" if it gets one."""
        if self.pooling.long != "refuse" or not self._is_long(n_tokens):
            return ""
        reason = (
            f"too_long: the sequence has {self.inside(n_tokens):,} tokens, more than {self.limit:,}"
        )
        if not self.layout.n_layers:
            return f"{reason}, which is the limit of the encoder"
        return (
            f"{reason}. Start a new run with --long truncate or chunk-mean, or with a larger "
            "--max-length"
        )

    def n_vectors(self, lengths: IntArray) -> IntArray:
        """Return the number of vectors of sequences with these numbers of token ids: (n,) int64."""
        if not self.pooling.per_token:
            return np.ones(len(lengths), np.int64)
        return np.maximum(lengths - self.layout.first - self.layout.last, 0)

    def inside(self, n_tokens: int) -> int:
        """Return the number of tokens without special tokens."""
        return n_tokens - self.layout.first - self.layout.last

    def _is_long(self, n_tokens: int) -> bool:
        return self.limit is not None and self.inside(n_tokens) > self.limit

    def _parts(self, ids: IntegerArray) -> list[IntegerArray]:
        """Return the special tokens before a sequence, its own tokens, and those behind it."""
        return np.split(ids, [self.layout.first, len(ids) - self.layout.last])


MEAN: Final = PoolingPlan(Pooling(), TokenLayout(0))
"""Means of sequences of any length: the plan of an encoder without layers."""
