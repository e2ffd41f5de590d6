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


def piece_bounds(first: IntArray, lengths: IntArray, pieces: IntArray) -> tuple[IntArray, IntArray]:
    """Return start and end of pieces within their records, each ``(n,)`` int64, in bases.

    Parameters
    ----------
    first
        ``(n_records + 1,)``: number of pieces of all records before record ``i``.
    lengths
        ``(n_records,)``, bases of each record.
    pieces
        ``(n,)``, numbers of pieces.
    """
    record = np.searchsorted(first, pieces, side="right") - 1
    place, number = pieces - first[record], first[record + 1] - first[record]
    return place * lengths[record] // number, (place + 1) * lengths[record] // number
