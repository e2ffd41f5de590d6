"""Find sequences that are equal or nearly equal on both sides of a split.

A sketch of a sequence contains the hashes of a fixed fraction of its k-mers (FracMinHash; Irber et
al. 2022, "Lightweight compositional analysis of metagenomes with FracMinHash"). The share of a
record's sketch that occurs on the other side estimates its containment. At 21-mers, a containment
of 0.5 is an identity of about 97 %.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from virnucpro.sequences.translation import reverse_complement

__all__ = ["Leak", "find_leaks", "sketch"]

HashArray = NDArray[np.uint64]

_K: Final = 21
_SCALE: Final = 25
"""One of this many k-mers is in a sketch."""

_CONTAINED: Final = 0.5
_LEAST_HASHES: Final = 5
"""Records with fewer hashes in their sketch (shorter than about 150 bases) are compared exactly."""

_CODES: Final = np.full(256, 4, np.uint8)
_CODES[list(b"ACGT")] = range(4)
_PIECE: Final = 1 << 22
_MIX: Final = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True, slots=True)
class Leak:
    """A record that is contained in the other side of the split; `share` of its sketch is."""

    name: str
    share: float


def sketch(sequence: bytes) -> HashArray:
    """Return the sketch of a sequence, ``(n,)`` uint64, ascending; equal for both strands.

    k-mers with other letters than A, C, G, T are left out.
    """
    step = _PIECE - _K + 1
    parts = [_hashes(sequence[i : i + _PIECE]) for i in range(0, max(1, len(sequence)), step)]
    return np.unique(np.concatenate(parts))


def _either_strand(sequence: bytes) -> bytes:
    return min(sequence, reverse_complement(sequence))


def _hashes(bases: bytes) -> HashArray:
    codes = _CODES[np.frombuffer(bases, np.uint8)]
    n = len(codes) - _K + 1
    if n < 1:
        return np.empty(0, np.uint64)
    forward, backward = np.zeros(n, np.uint64), np.zeros(n, np.uint64)
    unknown = np.concatenate(([0], np.cumsum(codes == 4)))
    digits = codes.astype(np.uint64) & np.uint64(3)
    for i in range(_K):
        forward = (forward << np.uint64(2)) | digits[i : i + n]
        backward |= (np.uint64(3) - digits[i : i + n]) << np.uint64(2 * i)
    words = np.minimum(forward, backward)[unknown[_K:] == unknown[:n]]
    mixed = (words ^ (words >> np.uint64(30))) * _MIX[0]  # splitmix64
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX[1]
    mixed ^= mixed >> np.uint64(31)
    chosen: HashArray = mixed[mixed < np.uint64((1 << 64) // _SCALE)]
    return chosen


def find_leaks(
    one: Iterable[tuple[str, bytes]], other: Iterable[tuple[str, bytes]]
) -> Iterator[Leak]:
    """Yield each record of `other` that is equal or nearly equal to a part of `one`.

    Parameters
    ----------
    one, other
        Name and upper-case sequence of each record on the two sides of the split. `one` is read
        first; its sketches need 8 bytes per 25 bases.
    """
    sketches: list[HashArray] = []
    exact: set[bytes] = set()
    for _, sequence in one:
        sketches.append(sketch(sequence))
        exact.add(_either_strand(sequence))
    known = np.unique(np.concatenate([np.empty(0, np.uint64), *sketches]))
    for name, sequence in other:
        own = sketch(sequence)
        if _either_strand(sequence) in exact:
            yield Leak(name, 1.0)
        elif len(own) >= _LEAST_HASHES:
            places = np.minimum(np.searchsorted(known, own), len(known) - 1)
            share = float((known[places] == own).mean()) if len(known) else 0.0
            if share >= _CONTAINED:
                yield Leak(name, share)
