"""Composition of records (GC, known bases, complexity), from which flags are derived."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from virnucpro.classify.decision import RecordQuality
from virnucpro.sequences.index import SequenceIndex

__all__ = ["record_quality"]

_ENTROPY: Final = 3.2
"""Least entropy (bits) of the 3-mers of a complex record. 64 equally frequent 3-mers have 6 bits, a
repeat of five 3-mers has 2.3 bits.
"""

_BLOCKS: Final = 10
_BLOCK_BASES: Final = 10_000
"""Longer records are examined in this many evenly spread blocks of this many bases."""

_CODES: Final = np.full(256, 4, np.uint8)
_CODES[list(b"ACGT")] = range(4)


def record_quality(index: SequenceIndex) -> RecordQuality:
    """Return the composition of all records of an index, from up to 100,000 bases of each."""
    gc, known, entropy = (np.full(index.n_records, np.nan) for _ in range(3))
    for record in range(index.n_records):
        codes = _CODES[np.frombuffer(_sample(index, record), np.uint8)]
        counts = np.bincount(codes, minlength=5)
        if len(codes):
            known[record] = counts[:4].sum() / len(codes)
        if counts[:4].any():
            gc[record] = counts[1:3].sum() / counts[:4].sum()
            entropy[record] = _entropy(codes)
    return RecordQuality(gc, known, ~(entropy < _ENTROPY))


def _sample(index: SequenceIndex, record: int) -> bytes:
    """Return a record, or evenly spread blocks of a long record, joined."""
    length = int(index.record_lengths[record])
    if length <= _BLOCKS * _BLOCK_BASES:
        return index.record_sequence(record, 0, length)
    starts = np.linspace(0, length - _BLOCK_BASES, _BLOCKS).astype(np.int64).tolist()
    return b"".join(index.record_sequence(record, a, a + _BLOCK_BASES) for a in starts)


def _entropy(codes: NDArray[np.uint8]) -> float:
    """Return the entropy (bits) of the 3-mers; NaN for fewer than 60 known 3-mers."""
    words = codes[:-2].astype(np.int64) * 16 + codes[1:-1].astype(np.int64) * 4 + codes[2:]
    known = (codes[:-2] < 4) & (codes[1:-1] < 4) & (codes[2:] < 4)
    counts = np.bincount(words[known], minlength=64)
    total = counts.sum()
    if total < 60:
        return float("nan")
    shares = counts[counts > 0] / total
    return float(-(shares * np.log2(shares)).sum())
