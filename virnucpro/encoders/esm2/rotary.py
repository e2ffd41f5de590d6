"""Rotary positions: queries and keys are rotated by an angle proportional to the position."""

from collections.abc import Iterable
from typing import Final

import torch

from virnucpro.encoders.packed import Packed

__all__ = ["Rotation", "inverse_frequencies", "rotations", "side_by_side", "turn"]

_KEPT: Final = 4096
"""Positions with cached angles: 2 MiB for heads of 128 channels."""


def inverse_frequencies(head_dim: int) -> torch.Tensor:
    """Return the default rotation of each channel pair in radians per position.

    The result is (head_dim / 2,) float32, for files without frequencies.

    Source: Su et al. 2021, RoFormer, base 10,000; written as in fair-esm's ``RotaryEmbedding``.
    """
    return 1.0 / (10000 ** (torch.arange(0, head_dim, 2).float() / head_dim))


def side_by_side(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Reorder channels so that the two of each pair are adjacent, as `turn` expects.

    A pair is channel j and channel j + head_dim / 2 of a head. If the projections of queries and
    keys are both reordered, their products do not change.

    Parameters
    ----------
    rows
        (dim, ...), one row per output channel.
    heads
        Number of attention heads; dim / heads is even.
    """
    pairs = len(rows) // heads // 2
    return rows.reshape(heads, 2, pairs, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


class Rotation:
    """Rotation factors by position, always in float32.

    A channel pair is a complex number that is multiplied by a factor of modulus 1, in a fifth of
    the time of separate sines and cosines. fair-esm's tables have the type of the model, and lose
    the angles of long sequences in half precision (cosine .982 with peaked attention).

    Parameters
    ----------
    frequencies
        (head_dim / 2,) radians per position, of any floating-point type. A file in half precision
        has rounded values (.75 for .749894), which are used as they are, as in fair-esm.
    device
        Device of the factors.
    """

    def __init__(self, frequencies: torch.Tensor, device: torch.device) -> None:
        self._frequencies = frequencies.to(device, torch.float32)
        self._kept = self._angles(0)

    def table(self, longest: int) -> torch.Tensor:
        """Return the factors of the first positions: (longest, head_dim / 2) complex64."""
        if longest <= len(self._kept):
            return self._kept[:longest]
        table = self._angles(longest)
        if longest <= _KEPT:
            self._kept = table
        return table

    def factors(self, packed: Packed) -> torch.Tensor:
        """Return the factors of each token of a batch: (rows, head_dim / 2) complex64."""
        return self.table(max(1, packed.longest))[packed.positions]

    def _angles(self, positions: int) -> torch.Tensor:
        place = torch.arange(positions, dtype=torch.float32, device=self._frequencies.device)
        angles = torch.outer(place, self._frequencies)
        return torch.complex(angles.cos(), angles.sin())


def rotations(frequencies: Iterable[torch.Tensor], device: torch.device) -> list[Rotation]:
    """Return the rotation of each layer; layers with equal frequencies share one.

    Parameters
    ----------
    frequencies
        Frequencies of each layer; see `Rotation`.
    device
        Device of the factors.
    """
    made: dict[tuple[float, ...], Rotation] = {}
    keys = []
    for of_layer in frequencies:
        keys.append(key := tuple(of_layer.float().tolist()))
        if key not in made:
            made[key] = Rotation(of_layer, device)
    return [made[key] for key in keys]


def turn(heads: torch.Tensor, factors: torch.Tensor) -> None:
    """Rotate the heads of queries and keys in place, by the position of their token.

    Parameters
    ----------
    heads
        (rows, n_heads, head_dim) of any floating-point type, in the order of `side_by_side`; may be
        a view.
    factors
        (rows, head_dim / 2), from `Rotation.factors`.
    """
    exact = heads.float()  # no copy in float32
    torch.view_as_complex(exact.view(*exact.shape[:2], -1, 2)).mul_(factors[:, None])
    if exact is not heads:
        heads.copy_(exact)
