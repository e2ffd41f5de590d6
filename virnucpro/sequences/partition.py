"""Units of rows and their distribution to ranks: pure functions with equal results on all ranks."""

from collections.abc import Sequence

import numpy as np

from virnucpro.arrays import IntArray, IntegerArray


def unit_bounds(row_lengths: IntegerArray, max_rows: int, max_positions: int) -> IntArray:
    """Divide consecutive rows into units, each as large as both limits allow.

    Units do not depend on the number of ranks: segments on disk are identified by their unit.

    Parameters
    ----------
    row_lengths
        ``(n_rows,)`` integers: positions (residues or letters) of every row, in row order.
    max_rows
        Maximum number of rows in a unit.
    max_positions
        Maximum sum of the lengths in a unit. A row longer than this is the only row of its unit.

    Returns
    -------
    IntArray
        ``(n_units + 1,)`` int64; unit ``u`` holds rows ``bounds[u]:bounds[u + 1]``. Without rows
        there are no units: ``[0]``.
    """
    bounds = [0]
    while bounds[-1] < len(row_lengths):
        start = bounds[-1]
        reach = np.cumsum(row_lengths[start : start + max_rows], dtype=np.int64)
        bounds.append(start + max(1, int(np.searchsorted(reach, max_positions, side="right"))))
    return np.array(bounds, dtype=np.int64)


def deal(plan: Sequence[int], rank: int, world_size: int) -> Sequence[int]:
    """Return the units of one rank: every `world_size`-th unit of `plan`, from position `rank`.

    Each unit belongs to exactly one rank. The numbers of units per rank differ by at most 1.

    Parameters
    ----------
    plan
        Units in the order of their computation.
    rank
        From 0 to ``world_size - 1``.
    world_size
        Number of ranks that share the plan.

    Raises
    ------
    ValueError
        When `rank` is out of range.
    """
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is out of range for {world_size} ranks")
    return plan[rank::world_size]
