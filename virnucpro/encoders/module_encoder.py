"""An encoder made of a tokeniser and of a module that pools."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from virnucpro.encoders.base import IntArray, View
from virnucpro.errors import InputError

__all__ = ["ModuleEncoder", "pad"]


def pad(batch: Sequence[IntArray], padding: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Lay ragged token ids side by side.

    Parameters
    ----------
    batch
        At least one array of token ids.
    padding
        The id that fills the rest of a row.

    Returns
    -------
    tokens : (n, longest) int64
    lengths : (n,) int64
        Both on the CPU.
    """
    lengths = np.array([len(ids) for ids in batch], dtype=np.int64)
    tokens = np.full((len(batch), int(lengths.max())), padding, dtype=np.int64)
    for row, ids in zip(tokens, batch, strict=True):
        row[: len(ids)] = ids
    return torch.from_numpy(tokens), torch.from_numpy(lengths)


@dataclass(frozen=True, slots=True)
class ModuleEncoder:
    """Runs ``module(tokens, lengths) -> (n, dim)`` without gradients.

    Attributes
    ----------
    name, dim, view
        As `Encoder` says.
    tokeniser
        Sequences to token ids, special tokens included.
    module
        Takes (n, longest) int64 padded ids and (n,) int64 lengths, gives (n, dim) float32.
    padding
        The id that fills up a batch.
    device
        Where the module is.
    """

    name: str
    dim: int
    view: View
    tokeniser: Callable[[Sequence[bytes]], list[IntArray]]
    module: nn.Module
    padding: int
    device: torch.device

    def tokenise(self, sequences: Sequence[bytes]) -> list[IntArray]:
        """Turn letters into token ids; see `Encoder.tokenise`."""
        for position, sequence in enumerate(sequences):
            if not sequence:
                raise InputError(
                    f"sequence {position} of {len(sequences)} has no letter, and {self.name} "
                    "cannot embed nothing; leave empty sequences out before encoding"
                )
        return self.tokeniser(sequences)

    def encode(self, batch: Sequence[IntArray]) -> torch.Tensor:
        """Turn tokenised sequences into vectors; see `Encoder.encode`."""
        if not batch:
            return torch.empty((0, self.dim), dtype=torch.float32, device=self.device)
        tokens, lengths = pad(batch, self.padding)
        with torch.inference_mode():
            vectors: torch.Tensor = self.module(tokens.to(self.device), lengths.to(self.device))
        return vectors
