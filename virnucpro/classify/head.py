"""The head: scores of the two classes from the joined vector of an item."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import batch_norm

from virnucpro.classify.head_tensors import layer_sizes
from virnucpro.encoders.device import open_device
from virnucpro.encoders.weights.fill import fill, init_empty_weights, read_safetensors

__all__ = ["Head", "load_head"]


class _BatchNorm(nn.Module):
    """nn.BatchNorm1d without its integer counter of batches."""

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
    """Linear, batch norm, ReLU, dropout."""

    def __init__(self, wide: int, narrow: int, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(wide, narrow)
        self.norm = _BatchNorm(narrow)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        dropped: torch.Tensor = self.dropout(torch.relu(self.norm(self.linear(x))))
        return dropped


class Head(nn.Module):
    """A small MLP of the published shape: (Linear, BatchNorm1d, ReLU, Dropout)..., Linear.

    Its state dict is that of `head_shapes`. The published heads are
    ``Head((3328, 512, 2))``: nucleotide vector of 768, then protein vector of 2560.

    Parameters
    ----------
    sizes
        Lengths of the input vector and of each hidden layer, and 2 classes: others, virus.
    dropout
        Share of hidden activations that training sets to 0; no effect in evaluation.
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
        """Score items; a row's scores do not depend on the other rows beyond rounding.

        Parameters
        ----------
        vectors
            ``(n, dim)`` of any floating-point type, on the head's device.

        Returns
        -------
        ``(n, 2)`` float32, softmax over others, virus.

        Raises
        ------
        RuntimeError
            In training mode, in which batch norm mixes the rows.
        """
        if self.training:
            raise RuntimeError("the head is in training mode: call eval() before scores()")
        return torch.softmax(self(vectors.float()), dim=1)


def load_head(path: Path, device: str = "cpu") -> Head:
    """Read a head; its layer sizes are those of its tensors.

    Parameters
    ----------
    path
        Safetensors file with the names of `Head`.
    device
        torch's name of the device.

    Raises
    ------
    BundleError
        If the file cannot be read or does not contain such a head.
    DeviceError
        If there is no such device.
    """
    tensors = read_safetensors(path)
    sizes = layer_sizes({name: tuple(one.shape) for name, one in tensors.items()}, path)
    with init_empty_weights():
        head = Head(sizes)
    fill(head, tensors, path, open_device(device), torch.float32)
    return head
