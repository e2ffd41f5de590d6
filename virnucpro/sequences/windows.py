"""Division of records into windows of a fixed length, and into pieces of almost equal length.

A tiling is a rule for the positions of the windows of a record. The positions depend only on the
lengths of record and window. Both tilings divide a record of ``length`` bases into
``n = ceil(length / window)`` overlapping windows that cover it. A record shorter than one window is
a single, unpadded window.

``published``
    The exact rule of the published tool. Its classifiers were trained on such windows.
    With a total overlap of ``R = n * window - length`` bases, ``lo = R // n`` and
    ``need = R - lo * (n - 1)``, window ``k`` starts at ``k * window - k * lo - min(k, need)``. If
    ``need > n - 1``, the last window is shorter (501 bases at window 500 give 0-500 and 250-501).
``even``
    All windows have full length, the first at the start, the last at the end of the record, with
    equal overlaps: window ``k`` starts at ``k * (length - window) // (n - 1)``.
    `virnucpro.sequences.items` tiles the parts of a record between runs of unknown letters.

Pieces do not overlap. They are the items of a bundle's record head.
"""

from dataclasses import dataclass
from typing import Final, Literal, TypeGuard, get_args

import numpy as np

from virnucpro.arrays import BoolArray, IntArray

Tiling = Literal["published", "even"]
TILINGS: tuple[Tiling, ...] = get_args(Tiling)
"""Names of all tilings."""
WINDOWS: Final = range(3, 2**31)
"""Allowed lengths of a window in bases, from one codon to the limit of int32."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of several records, in the order of the records.

    Attributes
    ----------
    first
        ``(n_records + 1,)`` int64: record ``i`` has windows ``first[i]:first[i + 1]``.
    starts, ends
        ``(n_windows,)`` int64, bases, half open, in the record's own coordinates.
    """

    first: IntArray
    starts: IntArray
    ends: IntArray


def is_window(bases: object) -> TypeGuard[int]:
    """Return True if `bases` is an allowed window length; a float or bool is not allowed."""
    if isinstance(bases, bool) or not isinstance(bases, int):
        return False  # for other types, `in` would compare each number of the range
    return bases in WINDOWS


def tile(length: int, window: int, tiling: Tiling) -> tuple[IntArray, IntArray]:
    """Divide one record into windows.

    Parameters
    ----------
    length
        Bases of the record; an empty record has no windows.
    window
        Bases of a window.
    tiling
        ``published`` or ``even``, see the docstring of this module.

    Returns
    -------
    starts, ends
        ``(n_windows,)`` int64 each, bases, half open.
    """
    windows = tile_all(np.array([length], dtype=np.int64), window, tiling)
    return windows.starts, windows.ends


def tile_all(lengths: IntArray, window: int, tiling: Tiling) -> Windows:
    """Divide many records into windows, each as in `tile`.

    Parameters
    ----------
    lengths
        ``(n_records,)`` int64, bases.
    window, tiling
        As for `tile`.
    """
    counts = -(-lengths // window)
    first = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(counts, out=first[1:])
    record = np.repeat(np.arange(len(lengths), dtype=np.int64), counts)
    k = np.arange(first[-1], dtype=np.int64) - first[record]
    starts = _STARTS[tiling](k, counts[record], lengths[record], window)
    return Windows(first, starts, np.minimum(starts + window, lengths[record]))


def _published_starts(k: IntArray, n: IntArray, length: IntArray, window: int) -> IntArray:
    overlap = n * window - length
    low = overlap // n
    need = overlap - low * (n - 1)
    return k * window - k * low - np.minimum(k, need)


def _even_starts(k: IntArray, n: IntArray, length: IntArray, window: int) -> IntArray:
    # A record of one window has no gaps, and may be shorter than the window.
    starts: IntArray = np.maximum(k * (length - window) // np.maximum(n - 1, 1), 0)
    return starts


_STARTS = {"published": _published_starts, "even": _even_starts}


def count_pieces(lengths: IntArray, piece: int) -> IntArray:
    """Return the number of pieces of records, ``(n,)`` int64: the least that suffices.

    Parameters
    ----------
    lengths
        ``(n,)``, bases of each record.
    piece
        Maximum bases of a piece.
    """
    return -(-lengths // piece)


def have_two_mates(lengths: IntArray, mates: IntArray, joints: IntArray) -> BoolArray:
    """Return ``(n_records,)``: whether a record has two mates with letters; see `piece_bounds`."""
    pairs: BoolArray = (joints > 0) & (mates > 0) & (mates + joints < lengths)
    return pairs


def piece_bounds(
    first: IntArray, lengths: IntArray, pieces: IntArray, mates: IntArray, joints: IntArray
) -> tuple[IntArray, IntArray]:
    """Return start and end of pieces within their records, each ``(n,)`` int64, in bases.

    The two pieces of a pair of reads are its mates. If one mate is empty, the joint belongs to no
    piece.

    Parameters
    ----------
    first
        ``(n_records + 1,)``: number of pieces of all records before record ``i``.
    lengths
        ``(n_records,)``, bases of each record.
    pieces
        ``(n,)``, numbers of pieces.
    mates, joints
        ``(n_records,)``, bases of the first mates, and letters between the mates: 0 for a single
        sequence.
    """
    record = np.searchsorted(first, pieces, side="right") - 1
    place, number = pieces - first[record], first[record + 1] - first[record]
    length, mate, joint = lengths[record], mates[record], joints[record]
    low = np.where((joint > 0) & (mate == 0), joint, 0)
    high = np.where((joint > 0) & (mate + joint == length), mate, length)
    start, end = (low + step * (high - low) // number for step in (place, place + 1))
    between = have_two_mates(length, mate, joint) & (number == 2)
    start = np.where(between & (place == 1), mate + joint, start)
    return start, np.where(between & (place == 0), mate, end)
