"""Read published classifiers without executing code in the file.

A published classifier is a torch module pickled by ``torch.save``; its class is in ``__main__``.
torch's weights-only reader creates a `_Layer` instead of the module and of each layer, and refuses
all other classes.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch

from virnucpro.classifier.head import CLASSES, EPSILON, OUTPUT, head_shapes, linear_of, norm_of
from virnucpro.encoders.weights.pickles import read_pickle, require_intact
from virnucpro.errors import BundleError


class _Layer:
    """Replacement for a torch module class in a pickle; it stores the module's state only."""

    state: Mapping[str, object] = {}

    def __setstate__(self, state: object) -> None:
        self.state = state if isinstance(state, dict) else {}


class _UnfitError(Exception):
    """Error: a pickled module does not have the layers of a published classifier."""


_NAMES: Final = (
    "__main__.MLPClassifier",
    "torch.nn.modules.linear.Linear",
    "torch.nn.modules.batchnorm.BatchNorm1d",
    "torch.nn.modules.dropout.Dropout",
)
"""Class names in the pickle that the reader replaces by `_Layer`."""


def read_pickled_head(path: Path) -> dict[str, torch.Tensor]:
    """Read a published classifier; return its tensors by their names in `head_shapes`.

    Parameters
    ----------
    path
        File that ``torch.save`` wrote: an ``MLPClassifier`` with the layers hidden_layer, bn1 and
        output_layer.

    Raises
    ------
    BundleError
        If the file is damaged, refers to other classes, or lacks a layer. Code in the file is not
        executed.
    """
    require_intact(path)
    with torch.serialization.safe_globals([(_Layer, name) for name in _NAMES]):
        module = read_pickle(path)
    try:
        return _tensors_of(module)
    except _UnfitError as error:
        raise BundleError(
            f"{path} is not a published classifier ({error}). Give an MLPClassifier that "
            "torch.save wrote."
        ) from None


def _tensors_of(module: object) -> dict[str, torch.Tensor]:
    hidden, norm, output = (
        _layer(module, name) for name in ("hidden_layer", "bn1", "output_layer")
    )
    if norm.state.get("eps") != EPSILON:
        raise _UnfitError(f"eps of the batch norm is not {EPSILON}")
    layers = {linear_of(0): hidden, norm_of(0): norm, OUTPUT: output}
    tensors = {}
    for name in head_shapes((1, 1, CLASSES)):  # the names do not depend on the sizes
        layer, _, attribute = name.rpartition(".")
        tensors[name] = _tensor(layers[layer], attribute)
    return tensors


def _layer(module: object, name: str) -> _Layer:
    layer = _entry(module, "_modules", name)
    if not isinstance(layer, _Layer):
        raise _UnfitError(f"the layer {name!r} is missing")
    return layer


def _tensor(layer: _Layer, name: str) -> torch.Tensor:
    group = "_buffers" if name.startswith("running_") else "_parameters"
    tensor = _entry(layer, group, name)
    if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.float32:
        raise _UnfitError(f"a layer has no float32 tensor {name!r}")
    if tensor.layout != torch.strided or tensor.is_meta or not tensor.is_contiguous():
        raise _UnfitError(f"the tensor {name!r} of a layer is not contiguous")
    return tensor.detach()


def _entry(layer: object, group: str, name: str) -> object:
    entries = layer.state.get(group) if isinstance(layer, _Layer) else None
    return entries.get(name) if isinstance(entries, dict) else None
