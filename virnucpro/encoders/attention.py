"""Softmax attention within each sequence of a packed batch."""

import math
from typing import Final

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from virnucpro.encoders.alignment import on_cache_lines
from virnucpro.encoders.packed import Packed

__all__ = ["attend"]

_HALVES: Final = (torch.float16, torch.bfloat16)

_SCORES_AT_ONCE: Final = 1 << 20
_MOST_SCORES: Final = 1 << 24
"""Scores, one a pair of tokens and head: 2 MiB stay in the caches; a sequence with more than 32 MiB
goes through torch's fused attention, which keeps no scores.
"""


def attend(heads: torch.Tensor, packed: Packed) -> torch.Tensor:
    """Attend from every token to every token of its sequence, scaled by 1 / sqrt(head_dim).

    On a GPU in half precision it is one kernel for the whole batch, else one for each run: nowhere
    is there a mask, nor a token that does not count. On a CPU, bfloat16 goes by plain products,
    which processors multiply faster than torch's fused attention does, and no less exactly.

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
    heads = on_cache_lines(heads.flatten(1)).view(heads.shape)
    by_products = heads.device.type == "cpu" and heads.dtype == torch.bfloat16
    for run in packed.runs:
        q, k, v = run.of(heads).permute(2, 0, 3, 1, 4)
        scores = q.shape[1] * run.length**2
        if by_products and scores <= _MOST_SCORES:
            _attend_by_products(q, k, v, run.of(mixed), max(1, _SCORES_AT_ONCE // scores))
        else:
            run.of(mixed).copy_(scaled_dot_product_attention(q, k, v).transpose(1, 2))
    return mixed


def _attend_by_products(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mixed: torch.Tensor, at_once: int
) -> None:
    """Attend in (n, n_heads, length, head_dim) and write into (n, length, n_heads, head_dim)."""
    scale = 1 / math.sqrt(q.shape[-1])
    nothing = q.new_empty(1, 1, 1)
    for parts in zip(*(torch.split(x, at_once) for x in (q, k, v, mixed)), strict=True):
        queries, keys, values = (part.flatten(0, 1) for part in parts[:3])
        scores = torch.baddbmm(nothing, queries, keys.mT, beta=0, alpha=scale)
        joined = torch.bmm(torch.softmax(scores, -1), values).view(parts[0].shape)
        parts[3].copy_(joined.transpose(1, 2))
