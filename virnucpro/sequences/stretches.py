"""The longest stop-free stretch of each window, in six frames.

A stretch is a run of consecutive codons of one frame, none of which is a stop or has a letter other
than A, C, G, T. Of stretches of equal length, the first frame (F1, F2, F3, R1, R2, R3) and in it
the leftmost stretch of the given strand is chosen. Frames are those of open frames, see
`virnucpro.sequences.translation`; a stretch starts at any codon of its frame.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from virnucpro.arrays import BoolArray, ByteArray, Int32Array, IntArray
from virnucpro.sequences.translation import (
    FRAMES,
    STOP,
    STOP_REVERSED,
    UNKNOWN,
    GeneticCode,
    codon_classes,
    over_runs,
)

LEAST_CODONS: Final = 30
"""A shorter stretch is not an item: it occurs by chance in nearly every frame."""

_PLACE_BITS = 32
_PLACES = (1 << _PLACE_BITS) - 1


@dataclass(frozen=True, slots=True)
class Stretches:
    """The longest stretches of several windows, in the order of the windows.

    Attributes
    ----------
    window
        ``(n_items,)`` int64: position of the stretch's window in the given windows.
    frame
        ``(n_items,)`` uint8, 0 to 5, see `virnucpro.sequences.translation.FRAMES`.
    start
        ``(n_items,)`` int64: leftmost base of the stretch in the sequence.
    codons
        ``(n_items,)`` int32: length in codons, at least `LEAST_CODONS`.
    translatable
        ``(n_windows,)`` bool: whether any frame of the window has a codon of only A, C, G, T.
    """

    window: IntArray
    frame: ByteArray
    start: IntArray
    codons: Int32Array
    translatable: BoolArray


def longest_stretches(
    sequence: bytes, starts: IntArray, ends: IntArray, code: GeneticCode
) -> Stretches:
    """Return the longest stop-free stretch of each window that has one of `LEAST_CODONS`.

    Parameters
    ----------
    sequence, starts, ends, code
        As for `virnucpro.sequences.translation.open_frames`.
    """
    classes = codon_classes(sequence, code)
    offsets = np.arange(3)
    keys = np.zeros((len(starts), len(FRAMES)), np.int64)
    by_remainder = (starts[:, None] + offsets) % 3, (ends[:, None] - offsets) % 3
    for strand, (stop, remainders) in enumerate(
        zip((STOP, STOP_REVERSED), by_remainder, strict=True)
    ):
        found = np.stack([_longest(classes, r, starts, ends, stop) for r in range(3)], axis=1)
        columns = slice(3 * strand, 3 * strand + 3)
        keys[:, columns] = np.take_along_axis(found, remainders, axis=1)
    codons = keys >> _PLACE_BITS
    best = codons.argmax(axis=1)  # the first of equal frames
    rows = np.arange(len(starts))
    window = np.flatnonzero(codons[rows, best] >= LEAST_CODONS)
    frame = best[window]
    return Stretches(
        window=window,
        frame=frame.astype(np.uint8),
        start=_PLACES - (keys[window, frame] & _PLACES),
        codons=codons[window, frame].astype(np.int32),
        translatable=_translatable(classes, starts, ends),
    )


def _longest(
    classes: ByteArray, remainder: int, starts: IntArray, ends: IntArray, stop: np.uint8
) -> IntArray:
    """Return a key per window for one frame: codons of its longest stretch, then its place.

    The lower bits of a key are larger for a stretch further to the left.
    """
    low, high = (starts - remainder + 2) // 3, (ends - remainder) // 3
    high = np.maximum(high, low)
    breaks = np.flatnonzero(classes[remainder::3] & (stop | UNKNOWN))
    first, last = np.searchsorted(breaks, low), np.searchsorted(breaks, high)
    # Gap i is the run of codons between the breaks i and i + 1.
    inner = over_runs(np.maximum, _key(breaks[:-1] + 1, breaks[1:], remainder), first, last - 1)
    edges = np.append(breaks, 0)
    broken = last > first
    leading = _key(low, np.where(broken, edges[first], high), remainder)
    trailing = _key(np.where(broken, edges[last - 1] + 1, high), high, remainder)
    longest: IntArray = np.maximum(np.maximum(leading, trailing), inner)
    return longest


def _key(low: IntArray, high: IntArray, remainder: int) -> IntArray:
    """Return the key of runs of codons ``low`` to ``high - 1`` of a frame."""
    return (high - low) << _PLACE_BITS | _PLACES - (3 * low + remainder)


def _translatable(classes: ByteArray, starts: IntArray, ends: IntArray) -> BoolArray:
    known = (classes < UNKNOWN).astype(np.int32)
    return np.asarray(over_runs(np.add, known, starts, ends - 2), np.bool_)
