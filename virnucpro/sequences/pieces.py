"""Cut records into pieces of almost equal length, without overlap."""

import numpy as np

from virnucpro.arrays import IntArray


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


def piece_bounds(
    first: IntArray, lengths: IntArray, pieces: IntArray, mates: IntArray, joints: IntArray
) -> tuple[IntArray, IntArray]:
    """Return start and end of pieces within their records, each ``(n,)`` int64, in bases.

    The two pieces of a pair of reads are its mates.

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
    start, end = (step * lengths[record] // number for step in (place, place + 1))
    between = (joints[record] > 0) & (number == 2)
    start = np.where(between & (place == 1), mates[record] + joints[record], start)
    return start, np.where(between & (place == 0), mates[record], end)
