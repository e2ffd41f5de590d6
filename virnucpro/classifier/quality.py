"""Composition of records (GC, known bases, complexity), from which flags are derived."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from virnucpro.classifier.decision import RecordQuality
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.spec import RecordStatus

__all__ = ["is_complex", "record_quality"]

_ENTROPY: Final = 3.2
"""Least entropy (bits) of the 3-mers of a complex record. 64 equally frequent 3-mers have 6 bits, a
repeat of five 3-mers has 2.3 bits.
"""

_DISTINCT: Final = 1 / 3
"""Least share of distinct 12-mers of a complex record. The windows of a tandem repeat are one piece
of evidence, which their mean logit counts many times (decision 0057).
"""

_SHORTEST: Final = 60
"""Least number of 3-mers, and of 12-mers, that is judged."""

_BLOCKS: Final = 10
_BLOCK_BASES: Final = 10_000
"""Longer records are examined in this many evenly spread blocks of this many bases."""

_BATCH_BASES: Final = 1 << 14
"""Bases examined at once: their arrays fit into the cache of a core."""
_WORD_BITS: Final = 24
"""Bits of a 12-mer."""

IntArray: TypeAlias = NDArray[np.int64]

_CODES: Final = np.full(256, 4, np.uint8)
_CODES[list(b"ACGT")] = range(4)


def record_quality(index: SequenceIndex) -> RecordQuality:
    """Return the composition of all records of an index, from up to 100,000 bases of each.

    That of records with invalid letters is unknown.
    """
    gc, known = (np.full(index.n_records, np.nan) for _ in range(2))
    not_simple = np.ones(index.n_records, np.bool_)
    for first, last in _batches(index.record_lengths):
        samples = [_sample(index, record) for record in range(first, last)]
        lengths = np.fromiter(map(len, samples), np.int64, len(samples))
        codes = _CODES[np.frombuffer(b"".join(samples), np.uint8)]
        counts = _count(np.repeat(np.arange(len(samples)), lengths), codes, len(samples), 5)
        n_known = counts[:, :4].sum(axis=1)
        np.divide(n_known, lengths, out=known[first:last], where=lengths > 0)
        gc_bases = counts[:, 1:3].sum(axis=1)
        np.divide(gc_bases, n_known, out=gc[first:last], where=n_known > 0)
        not_simple[first:last] = _are_complex(codes, lengths)
    invalid = index.record_status == RecordStatus.INVALID_LETTERS
    gc[invalid], known[invalid], not_simple[invalid] = np.nan, np.nan, True
    return RecordQuality(gc, known, not_simple)


def is_complex(bases: bytes) -> bool:
    """Return False for a simple or tandem repeat; True if there are too few bases to judge."""
    codes = _CODES[np.frombuffer(bases, np.uint8)]
    return bool(_are_complex(codes, np.array([len(bases)]))[0])


def _batches(lengths: IntArray) -> Iterator[tuple[int, int]]:
    """Yield first record, last record + 1 of consecutive records with about `_BATCH_BASES`."""
    if len(lengths):
        ends = np.cumsum(np.clip(lengths, _SHORTEST, _BLOCKS * _BLOCK_BASES))
        cuts = 1 + np.flatnonzero(np.diff(ends // _BATCH_BASES))
        yield from pairwise([0, *cuts.tolist(), len(lengths)])


def _sample(index: SequenceIndex, record: int) -> bytes:
    """Return a record, or evenly spread blocks of a long record, joined."""
    length = int(index.record_lengths[record])
    if length <= _BLOCKS * _BLOCK_BASES:
        return index.record_sequence(record, 0, length)
    starts = np.linspace(0, length - _BLOCK_BASES, _BLOCKS).astype(np.int64).tolist()
    return b"".join(index.record_sequence(record, a, a + _BLOCK_BASES) for a in starts)


def _are_complex(codes: NDArray[np.uint8], lengths: IntArray) -> NDArray[np.bool_]:
    """Return `is_complex` of joined sequences: uint8 codes of all bases, int64 lengths."""
    if len(codes) < _SHORTEST:
        return np.ones(len(lengths), np.bool_)
    owner = np.repeat(np.arange(len(lengths)), lengths)
    c = codes.astype(np.int32)
    triplets = c[:-2] * 16 + c[1:-1] * 4 + c[2:]
    known = (c[:-2] < 4) & (c[1:-1] < 4) & (c[2:] < 4) & (owner[:-2] == owner[2:])
    counts = _count(owner[:-2][known], triplets[known], len(lengths), 64)
    n_triplets = counts.sum(axis=1)
    shares = counts / np.maximum(n_triplets, 1)[:, None]
    entropy = -(shares * np.log2(np.where(shares > 0, shares, 1))).sum(axis=1)
    hexamers = triplets[:-3] * 64 + triplets[3:]
    words = hexamers[:-6] * 4096 + hexamers[6:]
    inside = known[:-9] & known[3:-6] & known[6:-3] & known[9:] & (owner[:-11] == owner[11:])
    keys = np.sort(owner[:-11][inside] << _WORD_BITS | words[inside])
    owners = keys >> _WORD_BITS
    n_words = np.bincount(owners, minlength=len(lengths))
    new = np.diff(keys, prepend=-1) != 0
    n_distinct = np.bincount(owners[new], minlength=len(lengths))
    varied = (n_words < _SHORTEST) | (n_distinct >= _DISTINCT * n_words)
    complex_ones: NDArray[np.bool_] = (n_triplets < _SHORTEST) | (entropy >= _ENTROPY) & varied
    return complex_ones


def _count(
    owner: IntArray, values: NDArray[np.integer], n_owners: int, n_values: int
) -> NDArray[np.int64]:
    """Return how often each owner has each value, int64 (n_owners, n_values)."""
    counts = np.bincount(owner * n_values + values, minlength=n_owners * n_values)
    return counts.reshape(n_owners, n_values)
