"""Load an encoder of torch onto a device."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import torch

from virnucpro.encoders.base import EncoderSpec, Precision, Tokeniser
from virnucpro.encoders.config import EncoderConfig
from virnucpro.encoders.device import device_bytes, dtype_of, open_device
from virnucpro.encoders.encoder import Pooled, TorchEncoder
from virnucpro.encoders.language_model import Logits, PseudoPerplexity
from virnucpro.encoders.memory import require_memory
from virnucpro.encoders.pooling import PoolingPlan

_MODULES: Final[Mapping[str, Callable[[Any, PoolingPlan], Any]]] = {
    "vectors": Pooled,
    "logits": Logits,
    "pseudo_perplexity": PseudoPerplexity,
}
"""Forward pass by `Pooling.outputs`."""

Build: TypeAlias = Callable[[EncoderSpec, Any, torch.device, torch.dtype], tuple[Tokeniser, Any]]
"""Returns the tokeniser and the `TokenModel` of an encoder with given settings."""


def load_pooled(
    spec: EncoderSpec, config: EncoderConfig, device: str, precision: Precision, build: Build
) -> TorchEncoder:
    """Load an encoder onto a device, if the device has enough memory; `build` reads its files."""
    torch_device, dtype = open_device(device), dtype_of(precision)
    shapes = config.tensor_shapes().values()
    require_memory(spec.name, shapes, precision, device, device_bytes(torch_device))
    tokeniser, model = build(spec, config, torch_device, dtype)
    plan = PoolingPlan(spec.pooling, config.layout)
    module = _MODULES[spec.pooling.outputs](model, plan)
    return TorchEncoder(
        spec.name, spec.dim, config.view, tokeniser, module, torch_device, plan=plan
    )
