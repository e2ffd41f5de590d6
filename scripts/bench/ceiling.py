"""Work of an encoder, and the throughput of matrix products of its shapes: its upper bound."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from virnucpro.encoders import kernels
from virnucpro.encoders.config import EncoderConfig
from virnucpro.encoders.dnabert_s.config import DnabertSConfig
from virnucpro.encoders.esm2.config import Esm2Config

TORCH_MM: Final = "torch.mm"
"""Name of the ceiling of torch's own call."""

LAID_OUT: Final = "weights laid out once"
"""Name of the ceiling of `kernels.PrepackedLinear`, which encoders use if its kernels exist."""

_LEAST_TURNS: Final = 3

Multiply = Callable[[], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix product of a layer: `inputs` numbers per token become `outputs` numbers."""

    inputs: int
    outputs: int


@dataclass(frozen=True, slots=True)
class Work:
    """Arithmetic operations of an encoder; a multiplication with its addition counts as two.

    Attributes
    ----------
    n_layers
        Number of identical layers.
    width
        Numbers per token between layers; the sum over all attention heads.
    products
        Matrix products of a layer as they run: query, key and value in one; gate and value of a
        gated unit in two.
    """

    n_layers: int
    width: int
    products: tuple[Product, ...]

    @property
    def linear(self) -> int:
        """Operations of the matrix products for one token."""
        return 2 * self.n_layers * sum(one.inputs * one.outputs for one in self.products)

    def attention(self, lengths: npt.ArrayLike) -> int:
        """Count the operations of attention: queries by keys, and weights by values.

        Parameters
        ----------
        lengths
            (n,) tokens of each sequence.
        """
        squares = int((np.asarray(lengths, np.int64) ** 2).sum())
        return 4 * self.n_layers * self.width * squares

    def operations(self, lengths: npt.ArrayLike) -> int:
        """Count all operations for sequences of these lengths in tokens."""
        return self.linear * int(np.asarray(lengths, np.int64).sum()) + self.attention(lengths)


def work_of(config: EncoderConfig) -> Work:
    """Return the amount of work of an encoder by its settings."""
    if isinstance(config, DnabertSConfig):
        width, inner = config.hidden_size, config.intermediate_size
        sizes = [(width, 3 * width), (width, width), (width, inner), (width, inner), (inner, width)]
        layers = config.num_hidden_layers
    else:
        assert isinstance(config, Esm2Config)
        width, layers = config.embed_dim, config.num_layers
        sizes = [(width, 3 * width), (width, width), (width, 4 * width), (4 * width, width)]
    return Work(layers, width, tuple(Product(*size) for size in sizes))


class GemmCeiling:
    """Measures matrix products of a layer's shapes; the best time of repeated calls counts.

    Each product runs by ``torch.mm`` and, if `kernels.has_kernels`, with a packed weight.

    Parameters
    ----------
    products
        Matrix products of a layer.
    rows
        Tokens in one product.
    device, dtype
        Device and type of the products.
    clock
        Returns seconds; use the clock of the value to compare with.
    """

    def __init__(
        self,
        products: Sequence[Product],
        rows: int,
        device: torch.device,
        dtype: torch.dtype,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._clock = clock
        self._device = device
        self._operations = sum(2 * rows * one.inputs * one.outputs for one in products)
        self._ways: dict[str, list[Multiply]] = {TORCH_MM: []}
        if kernels.has_kernels(device, dtype):
            self._ways[LAID_OUT] = []
        for one in products:
            x = torch.randn(rows, one.inputs, device=device).to(dtype)
            weight = torch.randn(one.outputs, one.inputs, device=device).to(dtype)
            self._ways[TORCH_MM].append(partial(torch.mm, x, weight.T))
            if LAID_OUT in self._ways:
                self._ways[LAID_OUT].append(partial(kernels.PrepackedLinear(weight, None), x))
        self._least = {way: [float("inf")] * len(products) for way in self._ways}

    def measure(self, seconds: float) -> None:
        """Repeat all products for this time, at least three times."""
        until, turns = time.perf_counter() + seconds, 0
        while turns < _LEAST_TURNS or time.perf_counter() < until:
            self.turn()
            turns += 1

    def turn(self) -> None:
        """Run each product once in each way."""
        for way, products in self._ways.items():
            least = self._least[way]
            for number, multiply in enumerate(products):
                least[number] = min(least[number], self._timed(multiply))

    @property
    def rates(self) -> dict[str, float]:
        """Operations per second of each way; a multiplication with its addition counts as two.

        Zero before `measure`.
        """
        return {way: self._operations / sum(least) for way, least in self._least.items()}

    def _timed(self, multiply: Multiply) -> float:
        self._wait()
        started = self._clock()
        multiply()
        self._wait()
        return self._clock() - started

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
