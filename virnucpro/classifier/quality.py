"""Composition of records (GC, known bases, complexity), from which flags are derived."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from virnucpro.arrays import BoolArray, ByteArray, IntArray, large_array, slices
from virnucpro.classifier.decision import RecordQuality
from virnucpro.compiled import library
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.spec import RecordStatus

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

_WITHOUT_LETTERS: Final = (RecordStatus.INVALID_LETTERS, RecordStatus.TOO_LONG)
_WORD: Final = 12
"""Bases of a word."""
_WORD_BITS: Final = 24
_RECORDS: Final = 1 << 8
"""Most records in a batch: the number of a record and a 12-mer have 32 bits."""
_CODES: Final = bytes(b"ACGT".find(letter) % 5 for letter in range(256))
"""Codes 0 to 3 of the letters ACGT, and 4 of every other letter."""


def record_quality(
    index: SequenceIndex, stopped: Callable[[], bool] = lambda: False
) -> RecordQuality:
    """Return the composition of all records of an index, from up to 100,000 bases of each.

    That of records with invalid letters, or too many, is unknown. `stopped` is called after each
    batch.

    Raises
    ------
    concurrent.futures.CancelledError
        If `stopped` returns True.
    """
    gc, known = (large_array((index.n_records,), np.float64) for _ in range(2))
    for part in slices(index.n_records):
        gc[part] = known[part] = np.nan
    not_simple = np.ones(index.n_records, np.bool_)
    for first, last in _batches(index.record_lengths):
        samples = _samples(index, first, last)
        lengths, bases, not_simple[first:last] = _examine(samples)
        n_known = bases.sum(axis=1)
        between = index.record_lengths[first:last] - index.record_letters[first:last]
        letters = lengths - between
        np.divide(n_known, letters, out=known[first:last], where=letters > 0)
        gc_bases = bases[:, 1:3].sum(axis=1)
        np.divide(gc_bases, n_known, out=gc[first:last], where=n_known > 0)
        if stopped():
            raise CancelledError
    for part in slices(index.n_records):
        unknown = np.isin(index.record_status[part], _WITHOUT_LETTERS)
        gc[part][unknown], known[part][unknown], not_simple[part][unknown] = np.nan, np.nan, True
    return RecordQuality(gc, known, not_simple)


def is_complex(bases: bytes) -> bool:
    """Return False for a simple or tandem repeat; True if there are too few bases to judge."""
    return bool(_examine([bases])[2][0])


def _batches(lengths: IntArray) -> Iterator[tuple[int, int]]:
    """Yield first record, last record + 1 of consecutive records with about `_BATCH_BASES`."""
    shortest = _BATCH_BASES // _RECORDS
    for part in slices(len(lengths)):
        ends = np.cumsum(np.clip(lengths[part], shortest, _BLOCKS * _BLOCK_BASES))
        cuts = part.start + 1 + np.flatnonzero(np.diff(ends // _BATCH_BASES))
        yield from pairwise([part.start, *cuts.tolist(), part.stop])


def _samples(index: SequenceIndex, first: int, last: int) -> list[bytes]:
    """Return consecutive records; of a long one, evenly spread blocks, joined."""
    lengths = index.record_lengths[first:last]
    if lengths.max(initial=0) <= _BLOCKS * _BLOCK_BASES:
        return index.record_sequences(first, last)
    return [_sample(index, record) for record in range(first, last)]


def _sample(index: SequenceIndex, record: int) -> bytes:
    length = int(index.record_lengths[record])
    if length <= _BLOCKS * _BLOCK_BASES:
        return index.record_sequence(record, 0, length)
    starts = np.linspace(0, length - _BLOCK_BASES, _BLOCKS).astype(np.int64).tolist()
    return b"".join(index.record_sequence(record, a, a + _BLOCK_BASES) for a in starts)


def _examine(samples: Sequence[bytes]) -> tuple[IntArray, IntArray, BoolArray]:
    """Return lengths, numbers of A, C, G, T, and `is_complex` of at most `_RECORDS` samples."""
    lengths = np.fromiter(map(len, samples), np.int64, len(samples))
    bases, known, varied = _counted(samples, lengths)
    n_triplets = known.sum(axis=1)
    shares = known / np.maximum(n_triplets, 1)[:, None]
    entropy = -(shares * np.log2(np.where(shares > 0, shares, 1))).sum(axis=1)
    return lengths, bases, (n_triplets < _SHORTEST) | (entropy >= _ENTROPY) & varied


def _counted(samples: Sequence[bytes], lengths: IntArray) -> tuple[IntArray, IntArray, BoolArray]:
    """Return the numbers of bases ``(n, 4)`` and triplets ``(n, 64)``, and `_is_varied`."""
    n = len(samples)
    if (compiled := library()) is not None:
        found, varied = np.empty((n, 68), np.int64), np.empty(n, np.bool_)
        text, limits = b"".join(samples), (_DISTINCT, _SHORTEST)
        if compiled.virnucpro_quality(text, lengths, n, _CODES, *limits, found, varied):
            raise MemoryError
        return found[:, :4], found[:, 4:], varied
    numbers = np.arange(n, dtype=np.uint32)
    owner = np.repeat(numbers, lengths + 1)
    codes = _joined(samples)
    counts = _count_triplets(codes, owner, n)
    # Half of the 12-mers nearly always suffice to show that a third of all are distinct.
    n_words = lengths - (_WORD - 1)
    words = _distinct(_words(codes, owner, 2))
    n_distinct = np.diff(np.searchsorted(words, numbers << _WORD_BITS), append=len(words))
    varied = (n_words < _SHORTEST) | (n_distinct >= _DISTINCT * n_words)
    for number in np.flatnonzero(~varied).tolist():
        varied[number] = _is_varied(samples[number])
    bases = counts.sum(axis=(2, 3))[:, :4]
    return bases, counts[:, :4, :4, :4].reshape(n, 64), varied


def _joined(samples: Sequence[bytes]) -> ByteArray:
    """Return the codes of all samples; an unknown base follows each of them, and 12 the last."""
    return np.frombuffer(b"N".join([*samples, b"N" * _WORD]).translate(_CODES), np.uint8)


def _count_triplets(codes: ByteArray, owner: NDArray[np.uint32], n: int) -> IntArray:
    """Return the number of bases of each sample by the codes of the base and of the next two.

    The counts are int64 (n, 8, 8, 8). `owner` has the sample of each base.
    """
    size = len(owner)
    c = codes[: size + 2].astype(np.uint16)
    triplets = c[:-2] << 6 | c[1:-1] << 3 | c[2:]
    return np.bincount(owner << 9 | triplets, minlength=n << 9).reshape(n, 8, 8, 8)


def _words(codes: ByteArray, owner: NDArray[np.uint32], step: int) -> NDArray[np.uint32]:
    """Return every `step`-th 12-mer without unknown bases, behind the number of its sample."""
    c, unknown = codes & 3, codes >> 2
    c = c[:-2] << 4 | c[1:-1] << 2 | c[2:]
    unknown = unknown[:-2] | unknown[1:-1] | unknown[2:]
    words = owner[::step].copy()
    any_unknown = np.zeros(len(words), np.uint8)
    for first in range(0, _WORD, 3):
        part = slice(first, first + len(owner), step)
        words <<= 6
        words |= c[part]
        any_unknown |= unknown[part]
    known: NDArray[np.uint32] = words[any_unknown == 0]
    return known


def _distinct(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return `numpy.unique` of the words; this is faster."""
    words.sort()
    distinct: NDArray[np.uint32] = words[np.diff(words, prepend=~words[:1]) != 0]
    return distinct


def _is_varied(sample: bytes) -> bool:
    """Return whether a third of all 12-mers are distinct, or there are too few to judge."""
    words = _words(_joined([sample]), np.zeros(len(sample), np.uint32), 1)
    return len(words) < _SHORTEST or len(_distinct(words)) >= _DISTINCT * len(words)
