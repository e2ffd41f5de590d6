"""What this machine reaches at matrix products of an encoder's shapes: the encoder's ceiling."""

import time
from collections.abc import Callable, Sequence
from typing import Final

import torch

from virnucpro.encoders.config import Product
from virnucpro.encoders.kernels import dense

__all__ = ["LAID_OUT", "TORCH_MM", "GemmCeiling"]

TORCH_MM: Final = "torch.mm"
"""The ceiling that torch's own call makes."""

LAID_OUT: Final = "weights laid out once"
"""The ceiling of `dense.Product`, by which encoders multiply where there are kernels for it."""

_LEAST_TURNS: Final = 3

Multiply = Callable[[], torch.Tensor]


class GemmCeiling:
    """Measures products of a layer's shapes. Measure again and again: the best time counts.

    Each product is done in every way in which encoders do it on this device: by ``torch.mm``, and
    where there are kernels (`dense.has_kernels`) with a weight that was laid out before.

    Parameters
    ----------
    products
        Matrix products of a layer.
    rows
        Tokens that go through a layer together.
    device, dtype
        Where, and in which type.
    clock
        Gives seconds; that of the thread where what is compared with is timed by it, too.
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
        if dense.has_kernels(device, dtype):
            self._ways[LAID_OUT] = []
        for one in products:
            x = torch.randn(rows, one.inputs, device=device).to(dtype)
            weight = torch.randn(one.outputs, one.inputs, device=device).to(dtype)
            self._ways[TORCH_MM].append(_by_torch(x, weight))
            if LAID_OUT in self._ways:
                self._ways[LAID_OUT].append(_laid_out(x, weight))
        self._least = {way: [float("inf")] * len(products) for way in self._ways}

    def measure(self, seconds: float) -> None:
        """Take turns over the shapes for so long, and at least a few times."""
        until, turns = time.perf_counter() + seconds, 0
        while turns < _LEAST_TURNS or time.perf_counter() < until:
            self.turn()
            turns += 1

    def turn(self) -> None:
        """Do each product once in each way."""
        for way, products in self._ways.items():
            for place, multiply in enumerate(products):
                now = self._timed(multiply)
                self._least[way][place] = min(self._least[way][place], now)

    @property
    def rates(self) -> dict[str, float]:
        """Operations a second of each way, a multiplication and its addition being two.

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


def _by_torch(x: torch.Tensor, weight: torch.Tensor) -> Multiply:
    return lambda: torch.mm(x, weight.T)


def _laid_out(x: torch.Tensor, weight: torch.Tensor) -> Multiply:
    product = dense.Product(weight, None)
    return lambda: product(x)
