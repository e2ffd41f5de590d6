"""Rotary positions: queries and keys turned by an angle that grows with the position."""

from collections.abc import Iterable
from typing import Final

import torch

from virnucpro.encoders.packed import Packed

__all__ = ["Rotation", "inverse_frequencies", "rotations", "side_by_side", "turn"]

_KEPT: Final = 4096
"""Positions whose angles are kept from batch to batch: 2 MiB for heads of 128 channels."""


def inverse_frequencies(head_dim: int) -> torch.Tensor:
    """Give the rotation of each pair of channels, in radians a position: (head_dim / 2,) float32.

    They are what a file says that has none of its own.

    Source: Su et al. 2021, RoFormer, base 10,000; written as in fair-esm's ``RotaryEmbedding``.
    """
    return 1.0 / (10000 ** (torch.arange(0, head_dim, 2).float() / head_dim))


def side_by_side(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Put the two channels of each pair next to each other, as `Rotation` takes them.

    A pair is channel j and channel j + head_dim / 2 of a head. Done to the rows of the projections
    of queries and of keys alike, their products stay what they are.

    Parameters
    ----------
    rows
        (dim, ...), a row an output channel.
    heads
        Attention heads, of dim / heads channels each, an even number.
    """
    pairs = len(rows) // heads // 2
    return rows.reshape(heads, 2, pairs, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


class Rotation:
    """Turns queries and keys, always in float32.

    A pair of channels is taken for a complex number and multiplied by one of modulus 1: a fifth of
    the time that sines and cosines take apart. fair-esm takes the type of its tables from the
    model, and loses the angles of long sequences in half precision (cosine .982 where attention is
    peaky).

    Parameters
    ----------
    frequencies
        (head_dim / 2,) radians a position, of any floating-point type. As fair-esm does, they are
        taken as a file has them: a file in half precision has them rounded (.75 for .749894), and
        whatever was trained on its vectors was trained with those.
    device
        Where the tables are.
    """

    def __init__(self, frequencies: torch.Tensor, device: torch.device) -> None:
        self._frequencies = frequencies.to(device, torch.float32)
        self._kept = self._angles(0)

    def table(self, longest: int) -> torch.Tensor:
        """Give the factors of the first `longest` positions: (longest, head_dim / 2) complex64."""
        if longest <= len(self._kept):
            return self._kept[:longest]
        table = self._angles(longest)
        if longest <= _KEPT:
            self._kept = table
        return table

    def factors(self, packed: Packed) -> torch.Tensor:
        """Give the factors of each token, by its position: (rows, head_dim / 2) complex64.

        They are the same in all layers of one rotation, and one kernel turns a whole batch.
        """
        return self.table(max(1, packed.longest))[packed.positions]

    def _angles(self, positions: int) -> torch.Tensor:
        place = torch.arange(positions, dtype=torch.float32, device=self._frequencies.device)
        angles = torch.outer(place, self._frequencies)
        return torch.complex(angles.cos(), angles.sin())


def rotations(frequencies: Iterable[torch.Tensor], device: torch.device) -> list[Rotation]:
    """Give each layer its rotation, the same one to all layers whose frequencies are equal.

    Parameters
    ----------
    frequencies
        (head_dim / 2,) of each layer, as `Rotation` takes them.
    device
        Where the tables are.
    """
    made: dict[tuple[float, ...], Rotation] = {}
    keys = []
    for of_layer in frequencies:
        keys.append(key := tuple(of_layer.float().tolist()))
        if key not in made:
            made[key] = Rotation(of_layer, device)
    return [made[key] for key in keys]


def turn(heads: torch.Tensor, factors: torch.Tensor) -> None:
    """Turn the heads of queries and keys in place, each token's by its position.

    Parameters
    ----------
    heads
        (rows, n_heads, head_dim) of any floating-point type, pairs side by side; a view of the
        joined projections will do.
    factors
        (rows, head_dim / 2), from `Rotation.factors`.
    """
    exact = heads.float()  # float32 is turned where it stands
    torch.view_as_complex(exact.view(*exact.shape[:2], -1, 2)).mul_(factors[:, None])
    if exact is not heads:
        heads.copy_(exact)
