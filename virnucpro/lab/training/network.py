"""The network: fully connected layers with several classes, an ensemble of several seeds.

A window's logit is the log of the odds that its class is one of the viral classes. Half of the
loss is the cross-entropy of the classes, half that of the logit.

Families differ more than windows do, and the program also meets families outside the training
data. Half of the training windows are therefore moved towards another group of the same side: the
difference of both groups' means, times a random share, is added to the features.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from virnucpro.arrays import BoolArray, Float32Array, FloatArray, IntArray, slices
from virnucpro.classifier.head import CLIP
from virnucpro.lab.training.draw import Drawn
from virnucpro.lab.training.settings import NetworkSettings
from virnucpro.lab.training.weights import draw_weights

_BATCH: Final = 512
_WARM_UP: Final = 50
"""Training windows of a step, and maximum steps until the learning rate is reached."""

_WEIGHT_DECAY: Final = 0.05
_WEIGHT_AVERAGE: Final = 0.996
"""Of AdamW; and decay of the moving average of the weights."""

_MOVED: Final = 0.5
"""Share of the training windows that are moved towards another group of their side."""

BLOCK_ROWS: Final = 1 << 13
"""Rows that are read at once; bounds the memory of their float64 numbers."""


class Rows(Protocol):
    """Features in memory or in a file, ``(n, dim)`` float32, read in blocks of rows."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of rows and of features."""

    def __getitem__(self, rows: slice, /) -> Float32Array:
        """Return a block of rows."""


@dataclass(frozen=True, slots=True)
class Examples:
    """Training windows.

    Attributes
    ----------
    features
        (n, dim).
    classes
        (n,) int64, the number of each window's class.
    viral
        (n_classes,) bool: which classes are viral.
    groups
        (n,) int64, the number of each window's group.
    weights
        (n,) float64: probability to be drawn. Windows of weight 0 have no influence.
    """

    features: Rows
    classes: IntArray
    viral: BoolArray
    groups: IntArray
    weights: FloatArray


def examples_of(drawn: Drawn, features: Rows) -> tuple[tuple[str, ...], Examples]:
    """Return the names of the classes, and the examples of drawn windows with their features."""
    names = tuple(sorted(set(drawn.sources)))
    sources = np.array([names.index(source) for source in drawn.sources])
    viral = np.zeros(len(names), np.bool_)
    viral[sources[drawn.viral]] = True
    groups = drawn.groups
    numbers = {group: number for number, group in enumerate(sorted(set(groups)))}
    return names, Examples(
        features=features,
        classes=sources,
        viral=viral,
        groups=np.array([numbers[group] for group in groups]),
        weights=draw_weights(groups, drawn.sources),
    )


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Standardisation and networks; the class logits of members are averaged."""

    mean: torch.Tensor
    scale: torch.Tensor
    viral: torch.Tensor
    members: Sequence[nn.Sequential]

    @torch.no_grad()
    def logits(self, features: Float32Array) -> FloatArray:
        """Return one logit for each window."""
        x = self.standardise(torch.from_numpy(features))
        classes = torch.stack([member(x) for member in self.members]).mean(dim=0)
        return _odds(classes, self.viral).double().numpy()

    def standardise(self, features: torch.Tensor) -> torch.Tensor:
        """Return the networks' inputs."""
        return features.sub(self.mean).div_(self.scale).clamp_(-CLIP, CLIP)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return all members as one network: hidden layers side by side, outputs averaged.

        Matrices are in float16: their rounding changes logits less than that of `IntegerNetwork`.
        """
        linear = [[m for m in member if isinstance(m, nn.Linear)] for member in self.members]
        found = {"input.mean": self.mean, "input.scale": self.scale}
        for i, layers in enumerate(list(zip(*linear, strict=True))[:-1]):
            weights = [layer.weight.detach() for layer in layers]
            joined = torch.cat(weights) if i == 0 else torch.block_diag(*weights)  # type: ignore[no-untyped-call]
            found[f"hidden.{i}.weight"] = joined
            found[f"hidden.{i}.bias"] = torch.cat([layer.bias.detach() for layer in layers])
        last = [layers[-1] for layers in linear]
        joined = torch.cat([layer.weight.detach() for layer in last], dim=1)
        found["output.weight"] = joined / len(last)
        found["output.bias"] = torch.stack([layer.bias.detach() for layer in last]).mean(dim=0)
        halved = ((name, one.half() if one.ndim > 1 else one) for name, one in found.items())
        return {name: tensor.contiguous() for name, tensor in halved}


def train(
    examples: Examples, settings: NetworkSettings, seed: int, finished: Callable[[float], object]
) -> Ensemble:
    """Train all members; `finished` is called with the finished part of all steps."""
    mean, spread = _moments(examples.features, examples.weights)
    ensemble = Ensemble(
        torch.from_numpy(mean.astype(np.float32)),
        torch.from_numpy((spread + 1e-6).astype(np.float32)),
        torch.from_numpy(examples.viral),
        [],
    )
    # In float16, half of the memory; in one array of NumPy: it has huge pages, unlike torch's.
    inputs = torch.from_numpy(np.empty(examples.features.shape, np.float16))
    sums = torch.zeros(int(examples.groups.max()) + 1, inputs.shape[1])
    known = torch.from_numpy(examples.weights > 0).float()
    groups = torch.from_numpy(examples.groups)
    for rows in slices(len(inputs), BLOCK_ROWS):
        block = ensemble.standardise(torch.from_numpy(examples.features[rows]))
        inputs[rows] = block.half()
        sums.index_add_(0, groups[rows], block.mul_(known[rows, None]))
    means = sums / torch.zeros(len(sums)).index_add_(0, groups, known).clamp_(min=1)[:, None]

    def member(i: int) -> nn.Sequential:
        def own(part: float) -> object:
            return finished((i + part) / settings.members)

        return _train(inputs, means, examples, settings, seed + i, own)

    members = [member(i) for i in range(settings.members)]
    return Ensemble(ensemble.mean, ensemble.scale, ensemble.viral, members)


def _moments(features: Rows, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the weighted mean and standard deviation of each feature, in blocks of rows."""
    shares = weights / weights.sum()
    mean, squares = np.zeros((2, features.shape[1]))
    for rows in slices(len(weights), BLOCK_ROWS):
        block = features[rows].astype(np.float64)
        mean += shares[rows] @ block
        squares += shares[rows] @ block**2
    return mean, np.maximum(squares - mean**2, 0) ** 0.5


def _train(
    inputs: torch.Tensor,
    means: torch.Tensor,
    examples: Examples,
    settings: NetworkSettings,
    seed: int,
    finished: Callable[[float], object],
) -> nn.Sequential:
    torch.manual_seed(seed)
    draws = _Draws(inputs, means, examples, np.random.default_rng(seed))
    network = _network(inputs.shape[1], settings, len(examples.viral))
    averaged = copy.deepcopy(network).requires_grad_(requires_grad=False)
    optimiser = torch.optim.AdamW(_parameters(network), lr=settings.learning_rate, fused=True)
    steps = max(1, settings.draws // _BATCH)
    network.train()
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * _schedule(step, steps)
        x, classes = draws.batch()
        loss = _loss(network(x), classes, draws.viral, settings)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        _average(averaged, network, min(_WEIGHT_AVERAGE, (step + 1) / (step + 10)))
        finished((step + 1) / steps)
    return averaged.eval()


class _Draws:
    """Batches of windows, some of them moved towards another group of the same side."""

    def __init__(
        self,
        inputs: torch.Tensor,
        means: torch.Tensor,
        examples: Examples,
        rng: np.random.Generator,
    ) -> None:
        self.viral = torch.from_numpy(examples.viral)
        self._inputs = inputs
        self._classes = torch.from_numpy(examples.classes)
        self._groups = examples.groups
        self._sides = examples.viral[examples.classes]
        self._rng = rng
        self._sums = np.cumsum(examples.weights) / examples.weights.sum()
        self._means = means
        self._partners = [self._weighted(examples, side=side) for side in (False, True)]

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the inputs and classes of one step."""
        rows = _choose(self._sums, self._rng.random(_BATCH))
        partners = np.empty(_BATCH, dtype=np.int64)
        for side, (groups, sums) in enumerate(self._partners):
            here = self._sides[rows] == bool(side)
            partners[here] = groups[_choose(sums, self._rng.random(int(here.sum())))]
        way = self._rng.uniform(0, 1, _BATCH)
        way *= self._rng.random(_BATCH) < _MOVED
        moves = self._means[partners] - self._means[self._groups[rows]]
        inputs = (
            self._inputs[rows].float() + torch.from_numpy(way.astype(np.float32))[:, None] * moves
        )
        return inputs, self._classes[rows]

    def _weighted(self, examples: Examples, *, side: bool) -> tuple[IntArray, FloatArray]:
        here = self._sides == side
        weights = np.bincount(examples.groups[here], examples.weights[here])
        groups = np.flatnonzero(weights)
        return groups, np.cumsum(weights[groups]) / weights.sum()


def _choose(sums: FloatArray, places: FloatArray) -> IntArray:
    return np.minimum(np.searchsorted(sums, places), len(sums) - 1)


def _network(dim: int, settings: NetworkSettings, n_classes: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for size in settings.hidden:
        layers += [nn.Linear(dim, size), nn.GELU(), nn.Dropout(settings.dropout)]
        dim = size
    return nn.Sequential(*layers, nn.Linear(dim, n_classes))


def _odds(classes: torch.Tensor, viral: torch.Tensor) -> torch.Tensor:
    return classes[:, viral].logsumexp(dim=1) - classes[:, ~viral].logsumexp(dim=1)


def _loss(
    logits: torch.Tensor, classes: torch.Tensor, viral: torch.Tensor, settings: NetworkSettings
) -> torch.Tensor:
    by_class = cross_entropy(logits, classes, label_smoothing=settings.label_smoothing)
    sides = viral[classes].float() * (1 - settings.label_smoothing) + settings.label_smoothing / 2
    by_side = binary_cross_entropy_with_logits(_odds(logits, viral), sides)
    return 0.5 * by_class + 0.5 * by_side


def _parameters(network: nn.Module) -> list[dict[str, object]]:
    """Return parameter groups; biases have no weight decay."""
    matrices = [tensor for tensor in network.parameters() if tensor.ndim > 1]
    biases = [tensor for tensor in network.parameters() if tensor.ndim < 2]
    return [
        {"params": matrices, "weight_decay": _WEIGHT_DECAY},
        {"params": biases, "weight_decay": 0.0},
    ]


def _schedule(step: int, steps: int) -> float:
    warm_up = max(1, min(_WARM_UP, steps // 10))
    return min(1.0, (step + 1) / warm_up) * (1 + float(np.cos(np.pi * step / steps))) / 2


@torch.no_grad()
def _average(averaged: nn.Module, network: nn.Module, kept: float) -> None:
    for mean, new in zip(averaged.parameters(), network.parameters(), strict=True):
        mean.lerp_(new, 1 - kept)
