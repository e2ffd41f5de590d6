"""A head for features of different scales: standardise, clip, MLP with GELU, several classes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
from torch.nn.functional import gelu, linear

from virnucpro.classifier.head_tensors import MEAN, SCALE, VIRAL, StandardisedShape
from virnucpro.encoders.device import open_device
from virnucpro.errors import BundleError

__all__ = ["CLIP", "StandardisedHead", "load_standardised"]

CLIP: Final = 6.0
"""Largest absolute value of a standardised feature; the same in training."""


class StandardisedHead:
    """Scores vectors of features: ``clip((x - mean) / scale)``, layers with GELU, logits.

    Parameters
    ----------
    tensors
        Float32 tensors with the names of `StandardisedShape`.
    shape
        Their shape.
    device
        Device of the tensors and of the vectors.
    """

    def __init__(
        self, tensors: Mapping[str, torch.Tensor], shape: StandardisedShape, device: torch.device
    ) -> None:
        moved = {name: one.to(device, torch.float32) for name, one in tensors.items()}
        self._mean, self._scale = moved[MEAN], moved[SCALE]
        self._layers = [(moved[f"{name}.weight"], moved[f"{name}.bias"]) for name in shape.layers]
        self._viral = moved[VIRAL] > 0

    @torch.inference_mode()
    def logits(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the logits of all classes, ``(n, n_classes)``, of vectors ``(n, dim)``."""
        hidden = ((vectors.float() - self._mean) / self._scale).clamp(-CLIP, CLIP)
        for weight, bias in self._layers[:-1]:
            hidden = gelu(linear(hidden, weight, bias))
        weight, bias = self._layers[-1]
        return linear(hidden, weight, bias)

    @torch.inference_mode()
    def scores(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the scores of items: probabilities of others and virus, and of each class.

        The probability of virus is the sum over all viral classes. The scores of an item do not
        depend on the other items, except for rounding.

        Returns
        -------
        ``(n, 2)`` float32, or ``(n, 2 + n_classes)`` for more than two classes
        """
        logits = self.logits(vectors)
        pair = torch.stack(
            [logits[:, kind].logsumexp(1) for kind in (~self._viral, self._viral)], dim=1
        )
        scores = torch.softmax(pair, dim=1)
        if logits.shape[1] == scores.shape[1]:
            return scores
        return torch.cat([scores, torch.softmax(logits, dim=1)], dim=1)


def load_standardised(
    tensors: Mapping[str, torch.Tensor], shape: StandardisedShape, path: Path, device: str
) -> StandardisedHead:
    """Return the head with the tensors of the file `path`.

    Raises
    ------
    BundleError
        If a number is NaN or infinite, a scale is not positive, or all classes are viral or none.
    DeviceError
        If the device does not exist.
    """
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise BundleError(
                f"{path}: tensor {name!r} contains NaN or infinite numbers. Get the bundle again."
            )
    if not (tensors[SCALE] > 0).all():
        raise BundleError(f"{path}: a scale is not positive. Get the bundle again.")
    viral = tensors[VIRAL] > 0
    if viral.all() or not viral.any():
        raise BundleError(f"{path}: all classes are viral, or none is. Get the bundle again.")
    return StandardisedHead(tensors, shape, open_device(device))
