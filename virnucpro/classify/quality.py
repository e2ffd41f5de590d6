"""Composition of records (GC, known bases, complexity), from which flags are derived."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from virnucpro.classify.decision import RecordQuality
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

_CODES: Final = np.full(256, 4, np.uint8)
_CODES[list(b"ACGT")] = range(4)


def record_quality(index: SequenceIndex) -> RecordQuality:
    """Return the composition of all records of an index, from up to 100,000 bases of each.

    That of records with invalid letters is unknown.
    """
    gc, known = (np.full(index.n_records, np.nan) for _ in range(2))
    not_simple = np.ones(index.n_records, np.bool_)
    for record in np.flatnonzero(index.record_status != RecordStatus.INVALID_LETTERS).tolist():
        codes = _CODES[np.frombuffer(_sample(index, record), np.uint8)]
        counts = np.bincount(codes, minlength=5)
        if len(codes):
            known[record] = counts[:4].sum() / len(codes)
        if counts[:4].any():
            gc[record] = counts[1:3].sum() / counts[:4].sum()
            not_simple[record] = _is_complex(codes)
    return RecordQuality(gc, known, not_simple)


def is_complex(bases: bytes) -> bool:
    """Return False for a simple or tandem repeat; True if there are too few bases to judge."""
    return _is_complex(_CODES[np.frombuffer(bases, np.uint8)])


def _sample(index: SequenceIndex, record: int) -> bytes:
    """Return a record, or evenly spread blocks of a long record, joined."""
    length = int(index.record_lengths[record])
    if length <= _BLOCKS * _BLOCK_BASES:
        return index.record_sequence(record, 0, length)
    starts = np.linspace(0, length - _BLOCK_BASES, _BLOCKS).astype(np.int64).tolist()
    return b"".join(index.record_sequence(record, a, a + _BLOCK_BASES) for a in starts)


def _is_complex(codes: NDArray[np.uint8]) -> bool:
    if len(codes) < _SHORTEST:
        return True
    c = codes.astype(np.int32)
    triplets = c[:-2] * 16 + c[1:-1] * 4 + c[2:]
    known = (c[:-2] < 4) & (c[1:-1] < 4) & (c[2:] < 4)
    counts = np.bincount(triplets[known], minlength=64)
    if counts.sum() < _SHORTEST:
        return True
    shares = counts[counts > 0] / counts.sum()
    if -(shares * np.log2(shares)).sum() < _ENTROPY:
        return False
    hexamers = triplets[:-3] * 64 + triplets[3:]
    words = hexamers[:-6] * 4096 + hexamers[6:]
    words = np.sort(words[known[:-9] & known[3:-6] & known[6:-3] & known[9:]])
    n_distinct = 1 + np.count_nonzero(np.diff(words))
    return bool(len(words) < _SHORTEST or n_distinct >= _DISTINCT * len(words))
