"""Find sequences of different groups, or sides of a split, that are equal or nearly equal.

A sketch of a sequence contains the hashes of a fixed fraction of its k-mers (FracMinHash; Irber et
al. 2022, "Lightweight compositional analysis of metagenomes with FracMinHash"). The share of a
record's sketch that occurs in other parts estimates its containment. At 21-mers, a containment
of 0.5 is an identity of about 97 %.
"""

from collections.abc import Iterable, Iterator, Sequence
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
    """A record of which `share` is contained in other parts, most of it in the record `other`."""

    name: str
    other: str
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


def find_leaks(records: Iterable[tuple[str, str, bytes]]) -> Iterator[Leak]:
    """Yield each record that is equal or nearly equal to a part of records of another part.

    A record is found if it is contained in a longer one of another part, so a pair is found from
    the shorter record, whatever its part.

    Parameters
    ----------
    records
        Name, part and upper-case sequence of each record. Parts must not share sequences: the
        groups of a cross-validation, or the sides of a split. Sketches need about 20 bytes per 25
        bases.
    """
    names: list[str] = []
    parts: list[str] = []
    sketches: list[HashArray] = []
    exact: dict[bytes, int] = {}
    equal: dict[int, int] = {}
    for number, (name, part, sequence) in enumerate(records):
        names.append(name)
        parts.append(part)
        sketches.append(sketch(sequence))
        first = exact.setdefault(_either_strand(sequence), number)
        if parts[first] != part:
            equal[number] = first
    known = _Hashes(sketches, parts)
    for number in np.union1d(known.suspects(), list(equal)).astype(np.int64).tolist():
        if number in equal:
            yield Leak(names[number], names[equal[number]], 1.0)
        else:
            share = float(known.shares[number])
            yield Leak(names[number], names[known.partner(number)], share)


class _Hashes:
    """The hashes of all sketches, with their owners."""

    def __init__(self, sketches: Sequence[HashArray], parts: Sequence[str]) -> None:
        self._sketches = sketches
        _, self._parts = np.unique(parts, return_inverse=True)
        self._sizes = np.array([len(one) for one in sketches], np.int64)
        values = np.concatenate([np.empty(0, np.uint64), *sketches])
        order = np.argsort(values, kind="stable")
        self._values = values[order]
        self._owners = np.repeat(np.arange(len(sketches), dtype=np.int32), self._sizes)[order]
        self.shares = self._foreign() / np.maximum(self._sizes, 1)

    def _foreign(self) -> NDArray[np.int64]:
        """Return for each record how many of its hashes occur in another part."""
        if not len(self._values):
            return np.zeros(len(self._sizes), np.int64)
        first = np.flatnonzero(np.diff(self._values, prepend=~self._values[0]))
        part = self._parts[self._owners]
        low, high = np.minimum.reduceat(part, first), np.maximum.reduceat(part, first)
        foreign = np.repeat(low != high, np.diff(first, append=len(self._values)))
        return np.bincount(self._owners[foreign], minlength=len(self._sizes))

    def suspects(self) -> NDArray[np.int64]:
        """Return the records of which a large share occurs in other parts."""
        return np.flatnonzero((self.shares >= _CONTAINED) & (self._sizes >= _LEAST_HASHES))

    def partner(self, record: int) -> int:
        """Return the record of another part that shares most hashes with `record`."""
        own = self._sketches[record]
        low = np.searchsorted(self._values, own)
        high = np.searchsorted(self._values, own, side="right")
        spans = zip(low.tolist(), high.tolist(), strict=True)
        owners = np.concatenate([self._owners[a:b] for a, b in spans])
        others = owners[self._parts[owners] != self._parts[record]]
        return int(np.bincount(others).argmax())
