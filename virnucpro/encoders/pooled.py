"""Pool the token vectors of a packed batch: mean, first token, maximum, or one vector per token."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from virnucpro.encoders.encoder import Packed, mean_of_runs
from virnucpro.encoders.pooling import PoolingPlan

__all__ = ["Pooled", "TokenModel", "pooled"]


class TokenModel(Protocol):
    """Interface of a model: vectors of all tokens after some layers."""

    def states(self, packed: Packed, layers: Sequence[int]) -> list[torch.Tensor]:
        """Return the vectors of all tokens after each layer: (rows, dim) each, without filler."""


def pooled(model: TokenModel, plan: PoolingPlan) -> Callable[[Packed], torch.Tensor]:
    """Return a function that converts a packed batch to vectors as `plan` describes.

    A model that is itself such a function, for means of its last layer, is returned unchanged.
    """
    if callable(model) and (plan.pooling.method, plan.pooling.layers) == ("mean", ()):
        return model
    return Pooled(model, plan)


class Pooled:
    """Forward pass of a model, then the pooling of each layer."""

    def __init__(self, model: TokenModel, plan: PoolingPlan) -> None:
        self.model, self._plan = model, plan

    def __call__(self, packed: Packed) -> torch.Tensor:
        """Return vectors, float32, in the order before packing; layers are joined.

        Returns
        -------
        (n, layers * dim), or (tokens without special tokens, layers * dim) for one vector per token
        """
        states = self.model.states(packed, self._plan.layers)
        return torch.cat([self._pool(state, packed) for state in states], 1)

    def _pool(self, state: torch.Tensor, packed: Packed) -> torch.Tensor:
        layout, method = self._plan.layout, self._plan.pooling.method
        first, last = layout.first, layout.last
        if method == "mean":
            ends = (0, 0) if layout.mean_of_all else (first, last)
            return mean_of_runs(state, packed, first=ends[0], last=ends[1])
        if method == "cls":
            return state[packed.offsets[:-1].long()][packed.places].float()
        if method == "max":
            parts = [run.of(state)[:, first : run.length - last].amax(1) for run in packed.runs]
            return torch.cat(parts)[packed.places].float()
        return state[_positions(packed, first, last)].float()


def _positions(packed: Packed, first: int, last: int) -> torch.Tensor:
    """Return the positions of all tokens but the special ones, in the order before packing."""
    starts = packed.offsets[:-1].long()[packed.places] + first
    counts = packed.offsets.diff().long()[packed.places] - first - last
    ends = counts.cumsum(0)
    shift = torch.repeat_interleave(starts - (ends - counts), counts)
    return shift + torch.arange(len(shift), device=shift.device)
