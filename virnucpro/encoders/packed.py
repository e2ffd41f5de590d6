"""The layout in which sequences go through an encoder: end to end, the longest first, no padding.

Sequences of one length stand together, as a run. Whatever looks at each token by itself takes all
tokens at once, as a matrix with a row a token; attention takes a run at a time, with nothing to
mask, or on a GPU all at once by their offsets.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import torch

from virnucpro.encoders.base import IntArray

__all__ = [
    "CPU_STEP",
    "LEAST_ROWS",
    "Packed",
    "Run",
    "mean_of_runs",
    "means_by_runs",
    "means_by_segments",
    "pack",
]

LEAST_ROWS: Final = 32
"""Rows of the smallest matrix. Of fewer rows matrix products come from other kernels, with other
roundings (MKL on AMD: below 4), and a short sequence alone would not give the bits that it gives in
company.
"""

CPU_STEP: Final = 32
"""Rows of a matrix on a CPU are a multiple of it. oneDNN makes, and keeps, kernels for each number
of rows that it meets: with every number among them a rank of 2 MB of weights grew by 600 MB, and
products took 7 % longer.
"""


class Run(NamedTuple):
    """Sequences of one length that stand one behind the other.

    Attributes
    ----------
    start
        Row of the first one's first token.
    n
        How many sequences.
    length
        Tokens of each.
    """

    start: int
    n: int
    length: int

    @property
    def stop(self) -> int:
        """Row behind the last one's last token."""
        return self.start + self.n * self.length

    def of(self, rows: torch.Tensor) -> torch.Tensor:
        """View this run's part of a matrix with a row a token: (n, length, ...)."""
        return rows[self.start : self.stop].view(self.n, self.length, *rows.shape[1:])


@dataclass(frozen=True, slots=True)
class Packed:
    """A batch as encoders compute it: n sequences of `total` tokens together.

    Attributes
    ----------
    tokens
        (rows,) int64, ids of all sequences, the longest sequence first. Rows from `total` on belong
        to no sequence: they fill the matrix up to a number of rows that suits the device.
    runs
        The sequences by length, descending; together the first `total` rows, without a gap.
    offsets
        (n + 1,) int32: sequence i has the rows ``offsets[i]`` to ``offsets[i + 1] - 1``.
    positions
        (rows,) int64: each token's place in its sequence, from 0; 0 where there is no sequence.
    places
        (n,) int64: where each sequence of the batch stands here, in the order of the batch.
    """

    tokens: torch.Tensor
    runs: tuple[Run, ...]
    offsets: torch.Tensor
    positions: torch.Tensor
    places: torch.Tensor

    def __len__(self) -> int:
        """Count the sequences."""
        return len(self.places)

    @property
    def total(self) -> int:
        """Count the sequences' tokens."""
        return self.runs[-1].stop if self.runs else 0

    @property
    def longest(self) -> int:
        """Count the tokens of the longest sequence; 0 where there is none."""
        return self.runs[0].length if self.runs else 0

    def to(self, device: torch.device) -> "Packed":
        """Give the same on `device`. Into a GPU's memory it is copied while the caller goes on.

        The copy is queued on the caller's current stream: what is queued there later sees it whole.
        """
        if device.type != "cuda":
            return self._moved(lambda tensor: tensor.to(device))
        return self._moved(lambda tensor: tensor.pin_memory().to(device, non_blocking=True))

    def _moved(self, move: Callable[[torch.Tensor], torch.Tensor]) -> "Packed":
        return replace(
            self,
            tokens=move(self.tokens),
            offsets=move(self.offsets),
            positions=move(self.positions),
            places=move(self.places),
        )


def pack(batch: Sequence[IntArray], step: int = 1) -> Packed:
    """Lay ragged token ids end to end, the longest sequence first; equal lengths as they come.

    Parameters
    ----------
    batch
        Arrays of token ids, none of them empty.
    step
        The number of rows is made a multiple of it.

    Returns
    -------
    Packed
        On the CPU.
    """
    lengths = np.array([len(ids) for ids in batch], dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    offsets = np.concatenate([[0], np.cumsum(lengths[order])])
    total = int(offsets[-1])
    filler = np.zeros(max(LEAST_ROWS, total + -total % step) - total, dtype=np.int64)
    tokens = np.concatenate([*(batch[i] for i in order), filler])
    positions = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths[order])
    return Packed(
        torch.from_numpy(tokens),
        _runs(lengths[order]),
        torch.from_numpy(offsets.astype(np.int32)),
        torch.from_numpy(np.concatenate([positions, filler])),
        torch.from_numpy(places),
    )


def mean_of_runs(
    hidden: torch.Tensor, packed: Packed, *, first: int = 0, last: int = 0
) -> torch.Tensor:
    """Take each sequence's mean over its tokens, summed in fp32 whatever the type of `hidden`.

    Parameters
    ----------
    hidden
        (rows, dim) floating point, a row a token.
    packed
        The batch that they are of.
    first, last
        How many tokens to leave out at each end: 1 and 1 are ESM-2's <cls> and <eos>. Every
        sequence has more tokens than that.

    Returns
    -------
    (n, dim) float32
        In the order of the batch that was packed.
    """
    reduce = means_by_segments if hidden.is_cuda else means_by_runs
    return reduce(hidden, packed, first, last)[packed.places]


def means_by_runs(hidden: torch.Tensor, packed: Packed, first: int, last: int) -> torch.Tensor:
    """Take means run by run: (n, dim) float32 in the order of the rows; see `mean_of_runs`.

    It is several times as fast as by segments on a CPU, and sums more exactly.
    """
    return torch.cat(
        [
            run.of(hidden)[:, first : run.length - last].mean(1, dtype=torch.float32)
            for run in packed.runs
        ]
    )


def means_by_segments(hidden: torch.Tensor, packed: Packed, first: int, last: int) -> torch.Tensor:
    """Take the same means by one kernel for all runs, each summed in the order of its rows.

    A sequence is three segments, of which the middle one counts.
    """
    starts, stops = packed.offsets[:-1], packed.offsets[1:]
    middles = torch.stack([starts, starts + first, stops - last], 1).flatten()
    segments = torch.cat([middles, stops[-1:]])
    means: torch.Tensor = torch.segment_reduce(
        hidden.float(), "mean", offsets=segments, axis=0, unsafe=True
    )
    return means[1::3]


def _runs(lengths: IntArray) -> tuple[Run, ...]:
    """Cut lengths that stand in descending order where they change."""
    sizes, counts = np.unique(lengths, return_counts=True)
    runs, start = [], 0
    for length, n in zip(sizes[::-1].tolist(), counts[::-1].tolist(), strict=True):
        runs.append(Run(start, n, length))
        start += n * length
    return tuple(runs)
