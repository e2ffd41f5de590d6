"""Softmax attention within each sequence of a packed batch."""

from typing import Final

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from virnucpro.encoders.packed import Packed

__all__ = ["attend"]

_HALVES: Final = (torch.float16, torch.bfloat16)


def attend(heads: torch.Tensor, packed: Packed) -> torch.Tensor:
    """Attend from every token to every token of its sequence, scaled by 1 / sqrt(head_dim).

    On a GPU in half precision it is one kernel for the whole batch, else one for each run: in
    neither is there a mask, nor a token that does not count.

    Parameters
    ----------
    heads
        (rows, 3, n_heads, head_dim): queries, keys and values of each token.
    packed
        The batch that they are of.

    Returns
    -------
    (rows, n_heads * head_dim)
        Zeros where no sequence is.
    """
    if heads.is_cuda and heads.dtype in _HALVES and heads.shape[-1] % 8 == 0:
        mixed = _all_at_once(heads[: packed.total], packed)
    else:
        mixed = _by_runs(heads, packed)
    filler = len(heads) - packed.total
    joined = mixed.flatten(1)
    return pad(joined, (0, 0, 0, filler)) if filler else joined


def _all_at_once(heads: torch.Tensor, packed: Packed) -> torch.Tensor:
    """Use torch's flash attention over offsets, which wants heads of a multiple of 8 channels."""
    # It brings torch's compiler along, as long to import as torch itself: a CPU does without.
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415

    q, k, v = heads.unbind(1)
    longest = packed.longest
    mixed = varlen_attn(q, k, v, packed.offsets, packed.offsets, longest, longest)
    assert isinstance(mixed, torch.Tensor)  # a pair where auxiliary results are asked for
    return mixed


def _by_runs(heads: torch.Tensor, packed: Packed) -> torch.Tensor:
    mixed = heads.new_empty(packed.total, *heads.shape[2:])
    for run in packed.runs:
        q, k, v = run.of(heads).permute(2, 0, 3, 1, 4)
        run.of(mixed).copy_(scaled_dot_product_attention(q, k, v).transpose(1, 2))
    return mixed
