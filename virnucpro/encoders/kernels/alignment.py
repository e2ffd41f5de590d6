"""Where rows begin in memory: which kernels of a CPU's attention round differently by."""

from typing import Final

import torch

__all__ = ["on_cache_lines"]

_LINE: Final = 64
"""Bytes of a cache line, and of a vector register of AVX-512; torch's own buffers begin on one."""


def on_cache_lines(rows: torch.Tensor) -> torch.Tensor:
    """Have every row begin on a cache line, by a copy where the rows' width does not see to it.

    The kernels take the numbers before the first aligned address one by one, in another order: a
    sequence would give other bits where others stand before it. On GPUs rows stay as they are.

    Parameters
    ----------
    rows
        (n, columns), contiguous.

    Returns
    -------
    (n, columns)
        The same numbers, the rows perhaps further apart.
    """
    width = rows.shape[1]
    beyond = -width % (_LINE // rows.itemsize)
    if not beyond or rows.device.type != "cpu":
        return rows
    return rows.new_empty(len(rows), width + beyond)[:, :width].copy_(rows)
