"""A loaded encoder (tokenise, collate, encode), its packed batches, and pooling to vectors.

A packed batch has its sequences end to end, the longest first, without padding. Sequences of equal
length are adjacent and form a group (`EqualLengths`). Layers that treat each token separately
compute all tokens at once, as a matrix with one row per token. In this package, a row of a batch is
a row of this matrix. Attention computes one group at a time, without a mask. On a GPU, attention
can also compute all sequences at once by their offsets.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

import numpy as np
import torch

from virnucpro.arrays import Float32Array, IntArray, IntegerArray
from virnucpro.encoders.base import Encoder
from virnucpro.encoders.batching import BATCH_TOKENS
from virnucpro.encoders.pooling import PoolingPlan

LEAST_ROWS: Final = 32
"""Smallest number of rows of a matrix. With fewer rows, matrix products use other kernels with
other rounding (MKL on AMD: below 4): a short sequence alone would have other bits than in a batch.
"""

CPU_STEP: Final = 32
"""The number of rows on a CPU is rounded up to a multiple of this. oneDNN compiles and caches
kernels for each number of rows: without rounding, the memory of a rank with 2 MB of weights grew by
600 MB, and matrix products took 7 % longer.
"""


class EqualLengths(NamedTuple):
    """Group of adjacent sequences of equal length in a packed batch.

    Attributes
    ----------
    start
        Position of the group's first token in the packed batch.
    n
        Number of sequences.
    length
        Tokens of each sequence.
    """

    start: int
    n: int
    length: int

    @property
    def stop(self) -> int:
        """End of the group in the packed batch: position of its last token, plus 1."""
        return self.start + self.n * self.length

    def of(self, rows: torch.Tensor) -> torch.Tensor:
        """Return this group's part of a tensor with one row per token, as (n, length, ...).

        The part is not a copy: it shares memory with `rows`.
        """
        return rows[self.start : self.stop].view(self.n, self.length, *rows.shape[1:])


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """A packed batch of n sequences with `total` tokens.

    Attributes
    ----------
    tokens
        (rows,) int64 token ids, the longest sequence first. The entries from position `total` on
        are filler: they round the number of rows up for the device.
    groups
        Groups of sequences of equal length, longest first. The groups cover the first `total` rows.
    offsets
        (n + 1,) int32: the tokens of the packed sequence i have the positions ``offsets[i]`` to
        ``offsets[i + 1] - 1``.
    positions
        (rows,) int64 position of each token in its sequence, from 0; 0 for filler.
    places
        (n,) int64: for each sequence of the original batch, its position in the packed batch.
    """

    tokens: torch.Tensor
    groups: tuple[EqualLengths, ...]
    offsets: torch.Tensor
    positions: torch.Tensor
    places: torch.Tensor

    def __len__(self) -> int:
        """Return the number of sequences in the packed batch."""
        return len(self.places)

    @property
    def total(self) -> int:
        """Number of tokens in the packed batch, without filler."""
        return self.groups[-1].stop if self.groups else 0

    @property
    def longest(self) -> int:
        """Number of tokens in the longest sequence of the batch; 0 without sequences."""
        return self.groups[0].length if self.groups else 0

    def to(self, device: torch.device) -> "PackedBatch":
        """Return a copy on `device`; to a GPU, the copy is asynchronous on the current stream."""
        tensors = {
            name: getattr(self, name) for name in ("tokens", "offsets", "positions", "places")
        }
        if device.type == "cuda":
            tensors = {name: tensor.pin_memory() for name, tensor in tensors.items()}
        moved = {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}
        return replace(self, **moved)


def pack(batch: Sequence[IntegerArray], step: int = 1) -> PackedBatch:
    """Pack token ids end to end, the longest sequence first; equal lengths in input order.

    Parameters
    ----------
    batch
        Arrays of token ids, none of them empty.
    step
        The number of rows is rounded up to a multiple of `step`, and to at least `LEAST_ROWS`.

    Returns
    -------
    PackedBatch
        The packed batch, on the CPU.
    """
    lengths = np.array([len(ids) for ids in batch], dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    offsets = np.concatenate([[0], np.cumsum(lengths[order])])
    total = int(offsets[-1])
    filler = np.zeros(max(LEAST_ROWS, total + -total % step) - total, dtype=np.int64)
    tokens = np.concatenate([*(batch[i] for i in order), filler])
    positions = np.arange(total) - np.repeat(offsets[:-1], lengths[order])
    return PackedBatch(
        torch.from_numpy(tokens),
        _groups(lengths),
        torch.from_numpy(offsets.astype(np.int32)),
        torch.from_numpy(np.concatenate([positions, filler])),
        torch.from_numpy(places),
    )


def _groups(lengths: IntArray) -> tuple[EqualLengths, ...]:
    """Return the groups of sequences of equal length, longest first; `lengths` are in tokens."""
    sizes, counts = np.unique(lengths, return_counts=True)
    groups, start = [], 0
    for length, n in zip(sizes[::-1].tolist(), counts[::-1].tolist(), strict=True):
        groups.append(EqualLengths(start, n, length))
        start = groups[-1].stop
    return tuple(groups)


def mean_of_sequences(
    hidden: torch.Tensor, packed: PackedBatch, *, first: int = 0, last: int = 0
) -> torch.Tensor:
    """Return the mean token vector of each sequence, computed in fp32 for any dtype of `hidden`.

    Parameters
    ----------
    hidden
        (rows, dim) floating point, one row per token.
    packed
        The batch from which `hidden` was computed.
    first, last
        Numbers of tokens to omit at the start and at the end: 1 and 1 omit ESM-2's <cls> and <eos>.
        Every sequence must have more tokens than these.

    Returns
    -------
    (n, dim) float32
        In the order of the batch before packing.
    """
    reduce = means_by_segments if hidden.is_cuda else means_by_groups
    return reduce(hidden, packed, first, last)[packed.places]


def means_by_groups(
    hidden: torch.Tensor, packed: PackedBatch, first: int, last: int
) -> torch.Tensor:
    """Compute the mean token vector of each sequence, one group of equal lengths at a time.

    The parameters are those of `mean_of_sequences`. The result is (n, dim) float32 in packed order,
    longest sequence first.

    On a CPU, this function is several times as fast as `means_by_segments`, and more exact.
    """
    return torch.cat(
        [
            group.of(hidden)[:, first : group.length - last].mean(1, dtype=torch.float32)
            for group in packed.groups
        ]
    )


def means_by_segments(
    hidden: torch.Tensor, packed: PackedBatch, first: int, last: int
) -> torch.Tensor:
    """Compute the mean token vectors of all sequences with one GPU kernel.

    The parameters are those of `mean_of_sequences`. The result is (n, dim) float32 in packed order,
    longest sequence first.

    Each sequence has three segments: omitted start, middle, omitted end. The result is the mean of
    the middle segment.
    """
    starts, stops = packed.offsets[:-1], packed.offsets[1:]
    middles = torch.stack([starts, starts + first, stops - last], 1).flatten()
    segments = torch.cat([middles, stops[-1:]])
    means: torch.Tensor = torch.segment_reduce(
        hidden.float(), "mean", offsets=segments, axis=0, unsafe=True
    )
    return means[1::3]


class Chunked(NamedTuple):
    """Packed batches of the chunks of long sequences; see `TorchEncoder.collate`.

    Attributes
    ----------
    parts
        Packed batches, small enough for any sequence length.
    counts
        Number of chunks of each sequence, in the order of the batch.
    sizes
        (chunks,) float32: number of tokens of each chunk, without special tokens.
    """

    parts: tuple[PackedBatch, ...]
    counts: tuple[int, ...]
    sizes: torch.Tensor

    def __len__(self) -> int:
        """Return the number of sequences."""
        return len(self.counts)


@dataclass(frozen=True, slots=True)
class TorchEncoder(Encoder):
    """An encoder with a model of torch.

    Attributes
    ----------
    module
        Converts a batch of at least one sequence to (n, dim) float32 vectors, in the order
        before packing.
    device
        Device of the module.
    """

    module: Callable[[PackedBatch], torch.Tensor]
    device: torch.device

    def collate(self, batch: Sequence[IntegerArray]) -> PackedBatch | Chunked:
        """Return a packed batch of tokenised sequences on the encoder's device, for `encode`.

        Another thread may call `collate` while `encode` runs. The copy to a GPU is asynchronous.
        """
        step = CPU_STEP if self.device.type == "cpu" else 1
        pieces = [self.plan.chunks(ids) for ids in batch]
        counts = tuple(map(len, pieces))
        if sum(counts) == len(batch):
            return pack(batch, step).to(self.device)
        chunks = [chunk for piece in pieces for chunk in piece]
        sizes = torch.tensor([float(self.plan.inside(len(chunk))) for chunk in chunks])
        parts = (pack(part, step).to(self.device) for part in _in_parts(chunks, self.device.type))
        return Chunked(tuple(parts), counts, sizes.to(self.device))

    def encode(self, batch: PackedBatch | Chunked) -> torch.Tensor:
        """Convert a packed batch to vectors in one pass.

        The other sequences in the batch change a vector only by floating-point rounding.

        Returns
        -------
        (n, dim) float32
            Vectors on the encoder's device, in the order before packing. With one vector per
            token, n is the number of tokens without special tokens.
        """
        if not len(batch):
            return torch.empty((0, self.dim), dtype=torch.float32, device=self.device)
        with torch.inference_mode():
            if isinstance(batch, PackedBatch):
                return self.module(batch)
            return self._joined(torch.cat([self.module(part) for part in batch.parts]), batch)

    def start(self, batch: PackedBatch | Chunked) -> Callable[[], Float32Array]:
        """Queue a batch on the device; return a function that waits for its vectors."""
        return start_copy_to_cpu(self.encode(batch))

    def _joined(self, vectors: torch.Tensor, batch: Chunked) -> torch.Tensor:
        """Return the vectors of the sequences from the vectors of their chunks."""
        if self.plan.pooling.per_token:
            return vectors
        of_sequences = torch.split(vectors, list(batch.counts))
        if self.plan.pooling.method == "max":
            return torch.stack([own.amax(0) for own in of_sequences])
        weights = (sizes / sizes.sum() for sizes in torch.split(batch.sizes, list(batch.counts)))
        return torch.stack(
            [weight @ own for weight, own in zip(weights, of_sequences, strict=True)]
        )


def _in_parts(chunks: Sequence[IntegerArray], kind: str) -> Iterator[list[IntegerArray]]:
    """Divide chunks into batches of at most the first token budget of a device, in order."""
    budget, part, tokens = BATCH_TOKENS.get(kind, BATCH_TOKENS["cpu"]), list[IntegerArray](), 0
    for chunk in chunks:
        if part and tokens + len(chunk) > budget:
            yield part
            part, tokens = [], 0
        part.append(chunk)
        tokens += len(chunk)
    yield part


def start_copy_to_cpu(vectors: torch.Tensor) -> Callable[[], Float32Array]:
    """Start the copy of a batch's vectors to the CPU; return a function that waits for it.

    Returns
    -------
    callable
        Function that waits until the copy is complete, and returns the copy. It does not wait for
        later work on the device.
    """
    if not vectors.is_cuda:
        return vectors.numpy
    copy = vectors.to("cpu", non_blocking=True)  # into pinned memory
    # blocking=True: the waiting thread sleeps; the default is a busy loop that uses a CPU
    copied = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
    copied.record()

    def fetch() -> Float32Array:
        copied.synchronize()
        return copy.numpy()

    return fetch


class TokenModel(Protocol):
    """Interface of a model: vectors of all tokens after some layers."""

    def states(self, packed: PackedBatch, layers: Sequence[int]) -> list[torch.Tensor]:
        """Return the vectors of all tokens after each layer: (rows, dim) each, without filler."""


class Pooled:
    """Forward pass of a model, then the pooling of each layer."""

    def __init__(self, model: TokenModel, plan: PoolingPlan) -> None:
        self.model, self._plan = model, plan

    def __call__(self, packed: PackedBatch) -> torch.Tensor:
        """Return vectors, float32, in the order before packing; layers are joined.

        Returns
        -------
        (n, layers * dim), or (tokens without special tokens, layers * dim) for one vector per token
        """
        states = self.model.states(packed, self._plan.layers)
        return torch.cat([self._pool(state, packed) for state in states], 1)

    def _pool(self, state: torch.Tensor, packed: PackedBatch) -> torch.Tensor:
        layout, method = self._plan.layout, self._plan.pooling.method
        first, last = layout.first, layout.last
        if method == "mean":
            ends = (0, 0) if layout.mean_of_all else (first, last)
            return mean_of_sequences(state, packed, first=ends[0], last=ends[1])
        if method == "cls":
            return state[packed.offsets[:-1].long()][packed.places].float()
        if method == "max":
            parts = [
                group.of(state)[:, first : group.length - last].amax(1) for group in packed.groups
            ]
            return torch.cat(parts)[packed.places].float()
        return state[token_positions(packed, first, last)].float()


def token_positions(packed: PackedBatch, first: int, last: int) -> torch.Tensor:
    """Return the positions of all tokens but the special ones, in the order before packing."""
    starts = packed.offsets[:-1].long()[packed.places] + first
    counts = packed.offsets.diff().long()[packed.places] - first - last
    ends = counts.cumsum(0)
    shift = torch.repeat_interleave(starts - (ends - counts), counts)
    return shift + torch.arange(len(shift), device=shift.device)
