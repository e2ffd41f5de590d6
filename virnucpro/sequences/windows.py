"""Windows: the pieces of one fixed length that records are cut into.

A tiling is a pure function of a record's length and the window length. Both tilings cut a record
of ``length`` bases into ``n = ceil(length / window)`` overlapping windows that cover it, and leave
a record shorter than one window whole and unpadded.

``published``
    The rule of the published tool, bit for bit, since its heads were trained on such windows. With
    ``R = n * window - length`` bases of overlap to spend, ``lo = R // n`` and
    ``need = R - lo * (n - 1)``, window ``k`` is moved back by ``k * lo + min(k, need)``. Where
    ``need`` exceeds the ``n - 1`` gaps, the last window stays short (501 bases at window 500 give
    0-500 and 250-501).
``even``
    All windows of full length, the first at the start, the last at the end, the overlap spread
    evenly: window ``k`` starts at ``k * (length - window) // (n - 1)``.
"""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypeGuard, get_args

import numpy as np
import numpy.typing as npt

from virnucpro.errors import UsageError

__all__ = ["TILINGS", "WINDOWS", "IntArray", "Tiling", "Windows", "is_window", "tile", "tile_all"]

IntArray: TypeAlias = npt.NDArray[np.int64]

Tiling = Literal["published", "even"]
TILINGS: tuple[Tiling, ...] = get_args(Tiling)
"""The names of all tilings."""
WINDOWS: Final = range(3, 2**31)
"""How many bases a window may have: a codon is the least, and positions are int32."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of many records, record by record.

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
    """Tell a window's length from anything else, floats such as 500.0 and True among it.

    What is no ``int``, a `range` would compare with all of its numbers one by one.
    """
    if isinstance(bases, bool) or not isinstance(bases, int):
        return False
    return WINDOWS[0] <= bases <= WINDOWS[-1]


def tile(length: int, window: int, tiling: Tiling) -> tuple[IntArray, IntArray]:
    """Cut one record into windows.

    Parameters
    ----------
    length
        Bases of the record; a record of length 0 has no windows.
    window
        Bases of a window.
    tiling
        ``published`` or ``even``, see the module's text.

    Returns
    -------
    starts, ends
        ``(n_windows,)`` int64 each, bases, half open.

    Raises
    ------
    UsageError
        When `length` is negative, `window` is below 1 or `tiling` is unknown.
    """
    windows = tile_all(np.array([length], dtype=np.int64), window, tiling)
    return windows.starts, windows.ends


def tile_all(lengths: IntArray, window: int, tiling: Tiling) -> Windows:
    """Cut many records into windows at once, by the rule of `tile`.

    Parameters
    ----------
    lengths
        ``(n_records,)`` int64, bases.
    window, tiling
        As for `tile`.

    Raises
    ------
    UsageError
        As `tile`.
    """
    if window < 1:
        raise UsageError(f"a window of {window} bases is no window: ask for at least 1")
    if tiling not in TILINGS:
        raise UsageError(f"unknown tiling {tiling!r}: choose one of {', '.join(TILINGS)}")
    if lengths.size and int(lengths.min()) < 0:
        raise UsageError(f"a record cannot have {int(lengths.min())} bases: give a length from 0")
    counts = -(-lengths // window)
    first = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(counts, out=first[1:])
    record = np.repeat(np.arange(len(lengths), dtype=np.int64), counts)
    k = np.arange(first[-1], dtype=np.int64) - first[record]
    starts_of = _published_starts if tiling == "published" else _even_starts
    starts = starts_of(k, counts[record], lengths[record], window)
    return Windows(first, starts, np.minimum(starts + window, lengths[record]))


def _published_starts(k: IntArray, n: IntArray, length: IntArray, window: int) -> IntArray:
    overlap = n * window - length
    low = overlap // n
    need = overlap - low * (n - 1)
    return k * window - k * low - np.minimum(k, need)


def _even_starts(k: IntArray, n: IntArray, length: IntArray, window: int) -> IntArray:
    # A record of one window has no gap to divide, and may be shorter than the window.
    starts: IntArray = np.maximum(k * (length - window) // np.maximum(n - 1, 1), 0)
    return starts
