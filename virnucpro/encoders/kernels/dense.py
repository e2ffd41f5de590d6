"""Linear layers with weights in the packed layout of oneDNN's kernels."""

from typing import Final

import torch
from torch import nn
from torch.nn.functional import gelu, linear

__all__ = ["Dense", "GatedDense", "Product", "has_kernels", "prepack"]

_KERNELS: Final = torch.ops.mkldnn

_USED: Final = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")
"""Private operators of torch's compiler; without them, layers use torch's public functions."""


class Product:
    """Computes rows @ weight.T + bias with a weight that is packed once for oneDNN's kernels.

    It is faster than torch's own call, which packs the weight each time. In float32, a row has the
    same bits in a product of any number of rows above 1. This needs oneDNN 3.12 (torch 2.13);
    older versions (torch 2.11) and bfloat16 round by the number of rows.

    Parameters
    ----------
    weight
        (columns, width), of a type and on a device with kernels (`has_kernels`).
    bias
        (columns,), or None.
    gelu
        Apply GELU (with the error function) before rounding.
    """

    def __init__(
        self, weight: torch.Tensor, bias: torch.Tensor | None, *, gelu: bool = False
    ) -> None:
        self._weight = _KERNELS._reorder_linear_weight(weight.detach())  # noqa: SLF001 - see _USED
        self._bias = bias
        self._then = "gelu" if gelu else "none"

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """Transform (rows, width) to (rows, columns)."""
        result: torch.Tensor = _KERNELS._linear_pointwise(  # noqa: SLF001 - see _USED
            rows, self._weight, self._bias, self._then, [], "none"
        )
        return result


def has_kernels(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether `Product` works on this device, in this type, with the installed torch."""
    onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if device.type != "cpu" or not onednn or not all(hasattr(_KERNELS, name) for name in _USED):
        return False
    if dtype == torch.bfloat16:
        return bool(_KERNELS._is_mkldnn_bf16_supported())  # noqa: SLF001 - see _USED
    return dtype == torch.float32


class Dense(nn.Linear):
    """A linear layer; `prepack` makes it a `Product` for inference."""

    def __init__(self, width: int, columns: int) -> None:
        super().__init__(width, columns)
        self._product: Product | None = None

    def prepack(self) -> None:
        """Pack the weight, which removes it from the state dict and ends gradients."""
        self._product = Product(self.weight, self.bias)
        self.register_parameter("weight", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Transform (rows, width) to (rows, columns)."""
        return super().forward(x) if self._product is None else self._product(x)


class GatedDense(nn.Linear):
    """A linear layer without bias; GELU of its first half is multiplied with its second half.

    Each half is a separate product: one product of twice the width takes longer.

    Parameters
    ----------
    width, columns
        Channels of each row before and after.
    """

    def __init__(self, width: int, columns: int) -> None:
        super().__init__(width, 2 * columns, bias=False)
        self._products: tuple[Product, Product] | None = None

    def prepack(self) -> None:
        """Pack the weight, which removes it from the state dict and ends gradients."""
        gate, value = self.weight.chunk(2)
        self._products = Product(gate, None, gelu=True), Product(value, None)
        self.register_parameter("weight", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Transform (rows, width) to (rows, columns)."""
        if self._products is not None:
            gate, value = self._products
            return gate(x).mul_(value(x))
        gate_weight, value_weight = self.weight.chunk(2)
        return gelu(linear(x, gate_weight)).mul_(linear(x, value_weight))


def prepack(module: nn.Module) -> None:
    """Pack all dense layers of a module that have kernels."""
    for layer in module.modules():
        if isinstance(layer, Dense | GatedDense) and has_kernels(
            layer.weight.device, layer.weight.dtype
        ):
            layer.prepack()
