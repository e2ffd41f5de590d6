"""Who embeds what: fixed units of rows, dealt to ranks. Pure functions, the same on every rank."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from virnucpro.sequences.windows import IntArray

__all__ = ["deal", "unit_bounds"]


def unit_bounds(
    row_lengths: npt.NDArray[np.integer], max_rows: int, max_positions: int
) -> IntArray:
    """Divide consecutive rows into units, greedily, each as large as both limits allow.

    Units do not depend on the number of ranks: they are the identity of what is committed.

    Parameters
    ----------
    row_lengths
        ``(n_rows,)`` integers: positions (residues or letters) of every row, in row order.
    max_rows
        Rows of a unit, at most.
    max_positions
        Sum of the lengths in a unit, at most; a row that is longer by itself is a unit of its own.

    Returns
    -------
    IntArray
        ``(n_units + 1,)`` int64; unit ``u`` holds rows ``bounds[u]:bounds[u + 1]``. No rows give
        no units: ``[0]``.

    Raises
    ------
    ValueError
        When a limit is below 1.
    """
    if max_rows < 1 or max_positions < 1:
        raise ValueError(
            f"a unit of {max_rows} rows and {max_positions} positions at most holds nothing: "
            "give limits of 1 or more"
        )
    bounds = [0]
    while bounds[-1] < len(row_lengths):
        start = bounds[-1]
        reach = np.cumsum(row_lengths[start : start + max_rows], dtype=np.int64)
        bounds.append(start + max(1, int(np.searchsorted(reach, max_positions, side="right"))))
    return np.array(bounds, dtype=np.int64)


def deal(plan: Sequence[int], rank: int, world_size: int) -> Sequence[int]:
    """Give one rank its share of a plan: every `world_size`-th unit, from the `rank`-th.

    The shares of all ranks are disjoint, make up the plan, and differ by one unit at most.

    Parameters
    ----------
    plan
        Units to do, in the order in which they are to be done.
    rank
        From 0 to ``world_size - 1``.
    world_size
        Ranks that share the plan.

    Raises
    ------
    ValueError
        When `world_size` is below 1, or `rank` is not one of its ranks.
    """
    if world_size < 1:
        raise ValueError(f"a world of {world_size} ranks does no work: give 1 or more")
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} is none of the ranks 0 to {world_size - 1}")
    return plan[rank::world_size]
