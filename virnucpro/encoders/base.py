"""Types for encoders: view, precision, `EncoderSpec` and `Encoder`. Does not import torch."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from virnucpro.arrays import Float32Array, IntegerArray
from virnucpro.encoders.pooling import MEAN, Pooling, PoolingPlan
from virnucpro.errors import BundleError, InputError

View: TypeAlias = Literal["nucleotide", "protein"]
"""Kind of sequence that an encoder reads."""

Precision: TypeAlias = Literal["fp32", "fp16", "bf16"]
"""Type of the weights and of the arithmetic; vectors are pooled in fp32 with any of them."""

Tokeniser: TypeAlias = Callable[[Sequence[bytes]], list[IntegerArray]]
"""Converts sequences to token ids, special tokens included: (n_tokens,) int64 arrays."""


@dataclass(frozen=True, slots=True)
class EncoderSpec:
    """Description of an encoder for `load_encoder`, small enough to send to a worker process.

    Attributes
    ----------
    name
        Name of the encoder in messages.
    architecture
        Key of the encoder registry.
    view, dim
        Kind of sequence that the encoder reads, and length of its vectors, which join all layers
        of `pooling`.
    folder
        Folder of the encoder's files.
    files
        File name in `folder` for each role. The roles are ``weights`` and, for some
        architectures, ``tokenizer``.
    config
        Settings of the architecture.
    pooling
        How tokens become vectors; from `Pooling.of_model`.
    """

    name: str
    architecture: str
    view: View
    dim: int
    folder: Path
    files: Mapping[str, str]
    config: Mapping[str, object] = field(default_factory=dict)
    pooling: Pooling = field(default_factory=Pooling)

    def file(self, role: str) -> Path:
        """Return the path of the encoder's file for `role`, such as ``weights``.

        Raises
        ------
        BundleError
            If the spec has no file with this role.
        """
        if role not in self.files:
            raise BundleError(
                f"{self.folder}: the {self.architecture} encoder {self.name!r} has no {role!r} "
                f"file; its files are {', '.join(sorted(self.files)) or 'none'}. Get the bundle "
                "again."
            )
        return self.folder / self.files[role]


@dataclass(frozen=True, slots=True)
class Encoder(ABC):
    """A loaded encoder: it converts sequences of one view to vectors.

    Attributes
    ----------
    name
        Name in the bundle, or name of the weights file.
    dim
        Length of a vector.
    view
        Kind of sequence: nucleotide or protein.
    tokeniser
        Converts sequences to token ids, special tokens included.
    plan
        Pooling, and the treatment of long sequences.
    """

    name: str
    dim: int
    view: View
    tokeniser: Tokeniser
    plan: PoolingPlan = field(default=MEAN, kw_only=True)

    def tokenise(self, sequences: Sequence[bytes]) -> list[IntegerArray]:
        """Convert sequences to token ids, special tokens included.

        Parameters
        ----------
        sequences
            Letters in either case. An unknown letter becomes the encoder's unknown token.

        Returns
        -------
        list of (n_tokens,) integers
            In the order of `sequences`.

        Raises
        ------
        InputError
            If a sequence is empty: the mean over its tokens is undefined.
        """
        if not all(sequences):
            raise InputError(
                f"sequence {sequences.index(b'')} of {len(sequences)} is empty, and {self.name} "
                "cannot encode it. Remove empty sequences."
            )
        return [self.plan.truncated(ids) for ids in self.tokeniser(sequences)]

    def judging(self, judge: Callable[[Float32Array], Float32Array]) -> Self:  # noqa: ARG002 - see below
        """Return this encoder with a head; it may then end its vectors with scores of parts.

        Parameters
        ----------
        judge
            Returns the logits ``(n,)`` of vectors ``(n, dim)``.
        """
        return self

    def vectors(self, batch: Sequence[IntegerArray]) -> Float32Array:
        """Return the vectors of tokenised sequences, as `start`."""
        return self.start(self.collate(batch))()

    @abstractmethod
    def collate(self, batch: Sequence[IntegerArray]) -> Any:  # noqa: ANN401 - each encoder has its own type
        """Return a batch of tokenised sequences for `start`; another thread may call it."""

    @abstractmethod
    def start(self, batch: Any) -> Callable[[], Float32Array]:  # noqa: ANN401 - as above
        """Start to encode a batch; return a function that waits for its vectors.

        Returns
        -------
        callable
            Its result is (n, dim) float32, in the order of the batch. With one vector per token, n
            is the number of tokens without special tokens.
        """
