"""Linear layers with weights in oneDNN's packed layout, and attention within each sequence."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

import torch
from torch.nn.functional import layer_norm, linear, pad, scaled_dot_product_attention

from virnucpro.encoders.encoder import PackedBatch

_KERNELS: Final = torch.ops.mkldnn

Step: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""One step of a layer: (rows, inputs) -> (rows, outputs)."""

_USED: Final = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")
"""Private operators of torch's compiler; without them, layers use torch's public functions."""


class PrepackedLinear:
    """Linear layer, rows @ weight.T + bias, with a weight that is packed once for oneDNN.

    This layer is faster than torch's linear function, which packs the weight at each call. In
    float32, the bits of an output row do not depend on the number of rows, if there is more than
    one row. This requires oneDNN 3.12 (torch 2.13). In older versions (torch 2.11) and in bfloat16,
    rounding depends on the number of rows.

    Parameters
    ----------
    weight
        (columns, width), on a device and with a dtype for which `has_kernels` returns True.
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
        """Return the output of the layer, (rows, columns), for an input of (rows, width)."""
        result: torch.Tensor = _KERNELS._linear_pointwise(  # noqa: SLF001 - see _USED
            rows, self._weight, self._bias, self._then, [], "none"
        )
        return result


def has_kernels(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether `PrepackedLinear` works for this device and dtype with the installed torch."""
    onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if device.type != "cpu" or not onednn or not all(hasattr(_KERNELS, name) for name in _USED):
        return False
    if dtype == torch.bfloat16:
        return bool(_KERNELS._is_mkldnn_bf16_supported())  # noqa: SLF001 - see _USED
    return dtype == torch.float32


class Layers(NamedTuple):
    """Steps of a model, made from the tensors of a state dict.

    Attributes
    ----------
    tensors
        Tensors by name; each layer has ``NAME.weight`` and ``NAME.bias``.
    device, dtype
        Device, and type of the matrix products.
    """

    tensors: Mapping[str, torch.Tensor]
    device: torch.device
    dtype: torch.dtype

    def norm(self, name: str, epsilon: float) -> Step:
        """Return a layer norm in float32; `epsilon` is added to the variance."""
        weight, bias = self.pair(name, torch.float32)
        return lambda rows: layer_norm(rows, weight.shape, weight, bias, epsilon)

    def product(self, name: str, *, activate: bool = False) -> Step:
        """Return a linear layer, with GELU if `activate`."""
        return product(*self.pair(name, self.dtype), activate=activate)

    def pair(self, name: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Return weight and bias of a layer."""
        return self.placed(f"{name}.weight", dtype), self.placed(f"{name}.bias", dtype)

    def placed(self, name: str, dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor on the device, converted there.

        The call ``tensor.to(device, dtype)`` converts on the CPU instead. That is slower than on a
        GPU and needs another copy in host memory.
        """
        return self.tensors[name].to(self.device).to(dtype)


def product(weight: torch.Tensor, bias: torch.Tensor | None, *, activate: bool = False) -> Step:
    """Return a function that computes rows @ weight.T + bias, then GELU if `activate` is true."""
    if has_kernels(weight.device, weight.dtype):
        return PrepackedLinear(weight, bias, gelu=activate)
    if activate:
        return lambda rows: torch.ops.aten.gelu_(linear(rows, weight, bias))  # without a copy
    return lambda rows: linear(rows, weight, bias)


_LINE: Final = 64
"""Bytes of a cache line and of an AVX-512 register; torch's own buffers are aligned to it."""

_HALVES: Final = (torch.float16, torch.bfloat16)
_AMPERE: Final = (8, 0)
_WIDEST_HEAD: Final = 256
"""Maximum head width of flash attention. Source: torch's
``aten/src/ATen/native/transformers/cuda/sdp_utils``.
"""

Attention: TypeAlias = Callable[[torch.Tensor, PackedBatch], torch.Tensor]
"""Attention between all tokens of a sequence, scaled by 1 / sqrt(head_dim), without a mask.

Arguments: (rows, 3, n_heads, head_dim) queries, keys and values; the batch. Result: (rows, n_heads
* head_dim), zeros in filler rows.
"""


def attention_on(device: torch.device, dtype: torch.dtype, head_dim: int) -> Attention:
    """Return a device's attention function: `all_at_once` if `has_varlen`, else `by_groups`."""
    cuda = device.type == "cuda"
    capability = torch.cuda.get_device_capability(device) if cuda else None
    return all_at_once if has_varlen(capability, dtype, head_dim) else by_groups


def has_varlen(capability: tuple[int, int] | None, dtype: torch.dtype, head_dim: int) -> bool:
    """Return whether flash attention over a packed batch works.

    Flash attention requires a GPU of the Ampere generation or newer, fp16 or bf16, and a `head_dim`
    of 8, 16, ... 256.

    Parameters
    ----------
    capability
        CUDA's compute capability of the GPU; None for a CPU.
    dtype, head_dim
        Type of queries, keys and values, and width of an attention head.
    """
    flash = dtype in _HALVES and head_dim % 8 == 0 and head_dim <= _WIDEST_HEAD
    return flash and capability is not None and capability >= _AMPERE


def all_at_once(heads: torch.Tensor, packed: PackedBatch) -> torch.Tensor:
    """Compute attention for the whole batch with one GPU kernel; requires `has_varlen`.

    Arguments and result are described in `Attention`.
    """
    # It imports torch's compiler, which takes as long as torch itself: a CPU does not need it.
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415

    q, k, v = heads[: packed.total].unbind(1)
    longest = packed.longest
    mixed = varlen_attn(q, k, v, packed.offsets, packed.offsets, longest, longest)
    assert isinstance(mixed, torch.Tensor)  # a pair if auxiliary results are requested
    joined, filler = mixed.flatten(1), len(heads) - len(mixed)
    return pad(joined, (0, 0, 0, filler)) if filler else joined


def by_groups(heads: torch.Tensor, packed: PackedBatch) -> torch.Tensor:
    """Compute attention separately for each group of sequences of equal length (`EqualLengths`).

    Arguments and result are described in `Attention`.
    """
    mixed = heads.new_empty(len(heads), *heads.shape[2:])
    mixed[packed.total :].zero_()
    heads = on_cache_lines(heads.flatten(1)).view(heads.shape)
    for group in packed.groups:
        q, k, v = group.of(heads).permute(2, 0, 3, 1, 4)
        group.of(mixed).copy_(scaled_dot_product_attention(q, k, v).transpose(1, 2))
    return mixed.flatten(1)


def on_cache_lines(rows: torch.Tensor) -> torch.Tensor:
    """Align each row of a matrix to a cache line on a CPU; copy the matrix only if necessary.

    CPU kernels add the numbers before the first aligned address in another order. Without
    alignment, the result of a sequence would depend on its place in the batch. On a GPU, the matrix
    is returned unchanged.

    Parameters
    ----------
    rows
        (n, columns), contiguous.

    Returns
    -------
    (n, columns)
        The same numbers, with gaps between rows if needed.
    """
    width = rows.shape[1]
    beyond = -width % (_LINE // rows.itemsize)
    if not beyond or rows.device.type != "cpu":
        return rows
    return rows.new_empty(len(rows), width + beyond)[:, :width].copy_(rows)
