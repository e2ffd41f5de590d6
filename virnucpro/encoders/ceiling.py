"""What this machine reaches at matrix products of an encoder's shapes: the encoder's ceiling."""

import time
from collections.abc import Callable, Sequence
from typing import Final

import torch

from virnucpro.encoders.sizes import Product

__all__ = ["GemmCeiling"]

_LEAST_TURNS: Final = 3


class GemmCeiling:
    """Measures ``torch.mm`` at a layer's shapes. Measure again and again: the best time counts.

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
        self._rows = rows
        self._pairs = {
            one: (
                torch.randn(rows, one.inputs, device=device).to(dtype),
                torch.randn(one.outputs, one.inputs, device=device).to(dtype).T,
            )
            for one in products
        }
        self._products = tuple(products)
        self._least = dict.fromkeys(self._pairs, float("inf"))

    def measure(self, seconds: float) -> None:
        """Take turns over the shapes for so long, and at least a few times."""
        until, turns = time.perf_counter() + seconds, 0
        while turns < _LEAST_TURNS or time.perf_counter() < until:
            for one, (rows, weights) in self._pairs.items():
                self._least[one] = min(self._least[one], self._timed(torch.mm, rows, weights))
            turns += 1

    @property
    def rate(self) -> float:
        """Operations a second, a multiplication and its addition being two; 0 before `measure`."""
        seconds = sum(self._least[one] for one in self._products)
        return sum(2 * self._rows * one.inputs * one.outputs for one in self._products) / seconds

    def _timed(
        self,
        multiply: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        rows: torch.Tensor,
        weights: torch.Tensor,
    ) -> float:
        self._wait()
        started = self._clock()
        multiply(rows, weights)
        self._wait()
        return self._clock() - started

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
