"""Training in two phases: the whole model for few steps, then the head alone.

The encoders overfit to the training families within a few hundred steps. So their training stops
early, and the head is trained for longer on their vectors, which are computed once.
"""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from mini.genomes import Pool
from mini.items import Items
from mini.model import Mini, Sizes
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

from virnucpro.classify.head import Head

__all__ = ["Recipe", "train", "train_head"]

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Recipe:
    """Parameters of the training.

    Attributes
    ----------
    steps, windows_a_step, items_a_window
        First phase: number of steps, windows of one step (all of one length), and maximum random
        items of one window.
    rate, warm_up, decay
        AdamW's highest rate, steps to reach it (then a cosine to 0), weight decay.
    masked
        Share of masked tokens.
    average
        Decay of the moving average of the weights.
    head_epochs, head_batch, head_rate, head_decay
        Second phase: epochs, items of a step, rate and weight decay.
    smoothing
        Label smoothing in both phases.
    """

    steps: int = 160
    windows_a_step: int = 64
    items_a_window: int = 2
    rate: float = 3e-4
    warm_up: int = 50
    decay: float = 0.3
    masked: float = 0.2
    average: float = 0.995
    head_epochs: int = 12
    head_batch: int = 128
    head_rate: float = 1e-3
    head_decay: float = 0.1
    smoothing: float = 0.1


def train(
    model: Mini,
    pools: list[tuple[Pool, Items]],
    recipe: Recipe,
    seed: int,
    report: Callable[[int, float, float], None],
) -> Mini:
    """Train `model` on the windows of `pools`; return the moving average of its weights.

    Parameters
    ----------
    pools
        Windows with their items, a pool for each window length; steps use the pools in turn.
    report
        Called after every step with its number from 1, the loss, and the seconds of training.
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


def train_head(
    vectors: torch.Tensor, viral: NDArray[np.bool_], sizes: Sizes, recipe: Recipe, seed: int
) -> Head:
    """Train a head on fixed vectors; return the moving average of its weights.

    Parameters
    ----------
    vectors
        (n_items, dim) float32.
    viral
        (n_items,) bool.
    sizes
        Layer sizes and dropout of the head.
    """
    torch.manual_seed(seed)
    centre, scale = vectors.mean(dim=0), vectors.std(dim=0)
    inputs, labels = (vectors - centre) / scale, torch.from_numpy(viral.astype(np.int64))
    # viral windows have more open frames: the weights balance the classes
    balance = 0.5 / torch.bincount(labels, minlength=2) * len(labels)
    head = Head(sizes.head(), sizes.dropout)
    averaged = copy.deepcopy(head).requires_grad_(requires_grad=False)
    optimiser = torch.optim.AdamW(
        head.parameters(), lr=recipe.head_rate, weight_decay=recipe.head_decay, fused=True
    )
    batches = (
        batch
        for _ in range(recipe.head_epochs)
        for batch in torch.randperm(len(inputs)).split(recipe.head_batch)[:-1]
    )
    for step, batch in enumerate(batches):
        loss = cross_entropy(
            head(inputs[batch]), labels[batch], balance, label_smoothing=recipe.smoothing
        )
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        _average(averaged, head, 1 - max(1 - recipe.average, (step + 1) ** -0.7))
    _take_in(averaged, centre, scale)
    return averaged.eval()


@torch.no_grad()
def _take_in(head: Head, centre: torch.Tensor, scale: torch.Tensor) -> None:
    """Fold the standardisation into a layer: W (x - c) / s + b = (W / s) x + (b - (W / s) c)."""
    first = next(module for module in head.modules() if isinstance(module, nn.Linear))
    first.weight.div_(scale)
    first.bias.sub_(first.weight @ centre)


class _Stream:
    """The scorable windows of a pool, in a new random order in each epoch."""

    def __init__(self, pool: Pool, items: Items, recipe: Recipe, rng: np.random.Generator) -> None:
        self._viral = torch.from_numpy(pool.viral.astype(np.int64))
        self._items = items
        self._windows = np.flatnonzero(np.diff(items.first))
        self._rng = rng
        self._waiting = np.empty(0, np.int64)
        self._count = recipe.windows_a_step

    def loss(self, model: Mini, recipe: Recipe) -> torch.Tensor:
        """Return the loss of one step; every window has the same weight."""
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

    def _some_items(self, window: int, limit: int) -> IntArray:
        first, end = self._items.first[window : window + 2]
        return self._rng.permutation(np.arange(first, end))[:limit]


def _groups(model: Mini, decay: float) -> list[dict[str, object]]:
    """Return parameter groups; vectors (biases, norms) have no weight decay."""
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
