"""Throughput of matrix products of an encoder's shapes: the upper bound of the encoder's."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import torch

from virnucpro.encoders import kernels
from virnucpro.encoders.config import Product

__all__ = ["LAID_OUT", "TORCH_MM", "GemmCeiling"]

TORCH_MM: Final = "torch.mm"
"""Name of the ceiling of torch's own call."""

LAID_OUT: Final = "weights laid out once"
"""Name of the ceiling of `kernels.Product`, which encoders use if its kernels exist."""

_LEAST_TURNS: Final = 3

Multiply = Callable[[], torch.Tensor]


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
                self._ways[LAID_OUT].append(partial(kernels.Product(weight, None), x))
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
