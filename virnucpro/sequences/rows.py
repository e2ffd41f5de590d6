"""From items to rows: identical items share one, and long ones come first."""

import numpy as np
import numpy.typing as npt

from virnucpro.sequences.windows import IntArray

__all__ = ["distinct_rows"]


def distinct_rows(
    digests: npt.NDArray[np.uint64], lengths: npt.NDArray[np.int32]
) -> tuple[IntArray, IntArray]:
    """Give distinct items their numbers: by length, longest first, then by first appearance.

    Parameters
    ----------
    digests
        ``(n_items, 2)`` uint64; items of equal digests are identical.
    lengths
        ``(n_items,)`` int32, equal where digests are.

    Returns
    -------
    item_row
        ``(n_items,)`` int64: the row of every item.
    first_item
        ``(n_rows,)`` int64: the first item of every row.
    """
    if not len(digests):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    # lexsort is stable: among identical items the first comes first.
    order = np.lexsort((digests[:, 1], digests[:, 0]))
    ordered = digests[order]
    new = np.concatenate(([True], (ordered[1:] != ordered[:-1]).any(axis=1)))
    group_first = order[new]
    by_rank = np.lexsort((group_first, -lengths[group_first].astype(np.int64)))
    row_of_group = np.empty(len(by_rank), np.int64)
    row_of_group[by_rank] = np.arange(len(by_rank))
    item_row = np.empty(len(order), np.int64)
    item_row[order] = row_of_group[np.cumsum(new) - 1]
    return item_row, group_first[by_rank]
