"""The head (classifier): computes the scores of two classes from the joined vector of an item."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import batch_norm, pad

from virnucpro.classifier.head_tensors import layer_sizes, standardised_shape
from virnucpro.classifier.standardised_head import StandardisedHead, load_standardised
from virnucpro.encoders.device import open_device
from virnucpro.encoders.weights.fill import fill, init_empty_weights, read_safetensors

__all__ = ["Head", "load_head", "scores_of"]

_BLOCK_ROWS = 128
"""Rows that a head scores together; always the same number, because rounding depends on it."""


class _BatchNorm(nn.Module):
    """``nn.BatchNorm1d`` without the buffer ``num_batches_tracked``."""

    running_mean: torch.Tensor
    running_var: torch.Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, training=self.training
        )


class _Hidden(nn.Module):
    """One hidden layer: linear, batch norm, ReLU, dropout."""

    def __init__(self, wide: int, narrow: int, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(wide, narrow)
        self.norm = _BatchNorm(narrow)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dropped: torch.Tensor = self.dropout(torch.relu(self.norm(self.linear(x))))
        return dropped


class Head(nn.Module):
    """Multilayer perceptron as in the published tool.

    Layers: (Linear, BatchNorm1d, ReLU, Dropout) for each hidden layer, then Linear.
    `head_shapes` returns the names and shapes of the tensors. The published heads are
    ``Head((3328, 512, 2))``: 768 nucleotide dimensions, then 2560 protein dimensions.

    Parameters
    ----------
    sizes
        Lengths of the input vector, of each hidden layer, and of the output: 2 classes, others and
        virus.
    dropout
        Fraction of hidden activations that are set to 0 in training mode.
    """

    def __init__(self, sizes: Sequence[int], dropout: float = 0.0) -> None:
        super().__init__()
        pairs = pairwise(sizes[:-1])
        self.hidden = nn.ModuleList(_Hidden(wide, narrow, dropout) for wide, narrow in pairs)
        self.output = nn.Linear(sizes[-2], sizes[-1])

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the logits, ``(n, 2)``, of joined vectors, ``(n, dim)``."""
        for layer in self.hidden:
            vectors = layer(vectors)
        logits: torch.Tensor = self.output(vectors)
        return logits

    @torch.inference_mode()
    def scores(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the scores of items, computed from their joined vectors.

        The scores of an item do not depend on the other items, except for rounding.

        Parameters
        ----------
        vectors
            ``(n, dim)`` of any floating-point type, one row per item, on the head's device.

        Returns
        -------
        ``(n, 2)`` float32, softmax over the classes others and virus.

        Raises
        ------
        RuntimeError
            If the head is in training mode: batch norm would make scores depend on other items.
        """
        if self.training:
            raise RuntimeError("the head is in training mode: call eval() before scores()")
        return torch.softmax(self(vectors.float()), dim=1)


def scores_of(head: "Head | StandardisedHead", vectors: torch.Tensor) -> torch.Tensor:
    """Return the scores of vectors; the scores of a row do not depend on the other rows.

    Matrix products of different heights round differently. So rows are scored in blocks of equal
    height, and units of different sizes give the same tables.

    Parameters
    ----------
    vectors
        ``(n, dim)`` on the head's device.

    Returns
    -------
    ``(n, 2)`` float32, or as `StandardisedHead.scores`
    """
    blocks = torch.split(vectors, _BLOCK_ROWS)
    padding = (0, 0, 0, _BLOCK_ROWS - len(blocks[-1]))
    padded = (*blocks[:-1], pad(blocks[-1], padding))
    return torch.cat([head.scores(block) for block in padded])[: len(vectors)]


def load_head(path: Path, device: str = "cpu") -> Head | StandardisedHead:
    """Load a head from a file; the shapes of the tensors determine the layer sizes.

    Parameters
    ----------
    path
        Safetensors file with the tensor names of `Head` or of `StandardisedHead`.
    device
        Name of the torch device.

    Raises
    ------
    BundleError
        If the file cannot be read or does not contain a head.
    DeviceError
        If the device does not exist.
    """
    tensors = read_safetensors(path)
    shapes = {name: tuple(one.shape) for name, one in tensors.items()}
    standardised = standardised_shape(shapes, path)
    if standardised is not None:
        return load_standardised(tensors, standardised, path, device)
    sizes = layer_sizes(shapes, path)
    with init_empty_weights():
        head = Head(sizes)
    fill(head, tensors, path, open_device(device), torch.float32)
    return head
