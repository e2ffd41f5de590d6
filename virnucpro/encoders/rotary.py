"""Self-attention with rotary positions, under the parameter names of fair-esm."""

import torch
from esm.multihead_attention import MultiheadAttention
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

__all__ = ["RotaryAttention", "inverse_frequencies"]


def inverse_frequencies(head_dim: int) -> torch.Tensor:
    """Give the rotation of each pair of channels, in radians a position: (head_dim / 2,) float32.

    Source: Su et al. 2021, RoFormer, base 10,000; written as in fair-esm's ``RotaryEmbedding``.
    """
    return 1.0 / (10000 ** (torch.arange(0, head_dim, 2).float() / head_dim))


class _Rotary(nn.Module):
    """Rotates queries and keys by their position, always in float32.

    fair-esm's own module takes the type of its table from the model, and loses the angles of long
    sequences in half precision.
    """

    inv_freq: torch.Tensor

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.register_buffer("inv_freq", inverse_frequencies(head_dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(x.shape[-2], dtype=torch.float32, device=x.device)
        angles = torch.outer(positions, self.inv_freq).repeat(1, 2)
        first, second = x.float().chunk(2, dim=-1)
        turned = torch.cat((-second, first), dim=-1)
        return (x.float() * angles.cos() + turned * angles.sin()).to(x.dtype)


class RotaryAttention(nn.Module):
    """Does what fair-esm's ``MultiheadAttention`` does in an ESM-2 layer, by fused attention.

    It takes over the projections of such a module: names, shapes, starting values are fair-esm's.

    Parameters
    ----------
    attention
        A ``MultiheadAttention`` of fair-esm with rotary embeddings.
    """

    def __init__(self, attention: MultiheadAttention) -> None:
        super().__init__()
        self.k_proj = attention.k_proj
        self.v_proj = attention.v_proj
        self.q_proj = attention.q_proj
        self.out_proj = attention.out_proj
        self.num_heads: int = attention.num_heads
        self.rot_emb = _Rotary(attention.head_dim)

    def forward(
        self, query: torch.Tensor, key_padding_mask: torch.Tensor | None, **_unused: object
    ) -> tuple[torch.Tensor, None]:
        """Attend from every position to every unpadded one.

        Parameters
        ----------
        query
            (width, n, dim): keys and values are the same in ESM-2.
        key_padding_mask
            (n, width) bool, true at padding; none where nothing is padded.

        Returns
        -------
        (width, n, dim), and no attention weights
        """
        q, k, v = (
            self._heads(project(query)) for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        keep = None if key_padding_mask is None else ~key_padding_mask[:, None, None, :]
        mixed = scaled_dot_product_attention(self.rot_emb(q), self.rot_emb(k), v, attn_mask=keep)
        joined: torch.Tensor = self.out_proj(mixed.permute(2, 0, 1, 3).flatten(2))
        return joined, None

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        """(width, n, dim) -> (n, heads, width, head_dim)."""
        width, n, dim = x.shape
        return x.view(width, n, self.num_heads, dim // self.num_heads).permute(1, 2, 0, 3)
