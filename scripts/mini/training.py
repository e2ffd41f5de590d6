"""The training loop."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from mini.genomes import Pool
from mini.items import Items
from mini.model import Mini
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

__all__ = ["Recipe", "train"]

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the model is trained.

    Attributes
    ----------
    steps, windows_a_step, items_a_window
        A step takes windows of one length, and of each at most so many items, at random.
    rate, warm_up, decay
        AdamW's rate at its highest, steps to get there (then a cosine to 0), weight decay.
    masked
        Share of tokens hidden from the encoders.
    smoothing
        Of the labels.
    """

    steps: int = 240
    windows_a_step: int = 64
    items_a_window: int = 2
    rate: float = 1e-3
    warm_up: int = 50
    decay: float = 0.3
    masked: float = 0.2
    smoothing: float = 0.05
    average: float = 0.995


def train(
    model: Mini,
    pools: list[tuple[Pool, Items]],
    recipe: Recipe,
    seed: int,
    report: Callable[[int, float, float], None],
) -> Mini:
    """Train `model` on the windows of `pools`; give the moving average of its weights.

    Parameters
    ----------
    pools
        Windows with their items, a pool for each window length; steps take turns among them.
    report
        Called after every step with its number from 1, the loss, and seconds since the start.
    """
    rng = np.random.default_rng([seed, 1])
    optimiser = torch.optim.AdamW(_groups(model, recipe.decay), betas=(0.9, 0.98), fused=True)
    streams = [_Stream(pool, items, recipe, rng) for pool, items in pools]
    averaged = copy.deepcopy(model).requires_grad_(requires_grad=False)
    started = time.monotonic()
    model.train()
    for step in range(recipe.steps):
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate * _schedule(step, recipe)
        loss = streams[step % len(streams)].loss(model, recipe)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        _average(averaged, model, min(recipe.average, (step + 1) / (step + 20)))
        report(step + 1, loss.item(), time.monotonic() - started)
    return averaged.eval()


class _Stream:
    """Deals the scorable windows of a pool, in an order that is drawn anew each time round."""

    def __init__(self, pool: Pool, items: Items, recipe: Recipe, rng: np.random.Generator) -> None:
        self._viral = torch.from_numpy(pool.viral.astype(np.int64))
        self._items = items
        self._windows = np.flatnonzero(np.diff(items.first))
        self._rng = rng
        self._waiting = np.empty(0, np.int64)
        self._count = recipe.windows_a_step

    def loss(self, model: Mini, recipe: Recipe) -> torch.Tensor:
        """Give the loss of one step; every window weighs the same, however many items it has."""
        windows = self._next()
        chosen = [self._some_items(w, recipe.items_a_window) for w in windows]
        sizes = torch.tensor([len(items) for items in chosen])
        logits = model(self._items, np.concatenate(chosen), recipe.masked)
        labels = self._viral[torch.from_numpy(windows)].repeat_interleave(sizes)
        losses = cross_entropy(logits, labels, label_smoothing=recipe.smoothing, reduction="none")
        weights = 1.0 / sizes.repeat_interleave(sizes)
        return (losses * weights).sum() / len(windows)

    def _next(self) -> IntArray:
        if len(self._waiting) < self._count:
            self._waiting = self._rng.permutation(self._windows)
        windows, self._waiting = np.split(self._waiting, [self._count])
        return windows

    def _some_items(self, window: int, most: int) -> IntArray:
        first, end = self._items.first[window : window + 2]
        return self._rng.permutation(np.arange(first, end))[:most]


def _groups(model: Mini, decay: float) -> list[dict[str, object]]:
    """Spare vectors (biases, norms) the weight decay."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    return [
        {"params": matrices, "weight_decay": decay},
        {"params": vectors, "weight_decay": 0.0},
    ]


def _schedule(step: int, recipe: Recipe) -> float:
    return min(1.0, step / recipe.warm_up) * (1 + float(np.cos(np.pi * step / recipe.steps))) / 2


@torch.no_grad()
def _average(averaged: nn.Module, model: nn.Module, kept: float) -> None:
    pairs = zip(averaged.state_dict().values(), model.state_dict().values(), strict=True)
    for mean, new in pairs:
        mean.lerp_(new, 1 - kept)
