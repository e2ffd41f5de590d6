"""The composition encoder: features of whole windows, computed by NumPy on the CPU."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from virnucpro.encoders.base import EncoderSpec, IntArray, Precision
from virnucpro.encoders.composition.config import CompositionConfig
from virnucpro.encoders.composition.features import features
from virnucpro.encoders.device import dtype_of, open_device
from virnucpro.encoders.encoder import Encoder, Packed
from virnucpro.sequences.translation import GeneticCode, genetic_code

__all__ = ["load", "recognise"]


class Composition:
    """Forward pass: computes the features of each sequence of a packed batch."""

    def __init__(self, code: GeneticCode) -> None:
        self._code = code

    def __call__(self, packed: Packed) -> torch.Tensor:
        """Return the features, (n, dim) float32, in the order before packing."""
        letters = packed.tokens.numpy().astype(np.uint8).tobytes()
        ends = packed.offsets.tolist()
        windows = [letters[low:high] for low, high in pairwise(ends)]
        return torch.from_numpy(features(windows, self._code))[packed.places]


def load(spec: EncoderSpec, device: str, precision: Precision) -> Encoder:
    """Return the composition encoder; it runs on the CPU in fp32 for any device and precision.

    Raises
    ------
    BundleError
        If a setting of `spec` is missing or invalid.
    DeviceError
        If there is no such device.
    UsageError
        If there is no such precision.
    """
    open_device(device)
    dtype_of(precision)
    config = CompositionConfig.read(spec.config, spec.folder)
    module = Composition(genetic_code(config.genetic_code))
    return Encoder(spec.name, config.dim, config.view, _tokenise, module, torch.device("cpu"))


def recognise(path: Path) -> EncoderSpec | None:  # noqa: ARG001
    """Return None: the composition encoder has no file of weights."""
    return None


def _tokenise(sequences: Sequence[bytes]) -> list[IntArray]:
    """Convert bases to token ids: the codes of the upper-case letters."""
    return [np.frombuffer(one.upper(), np.uint8).astype(np.int64) for one in sequences]
