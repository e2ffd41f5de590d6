"""An encoder made of a tokeniser and of a module that pools."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from virnucpro.encoders.base import IntArray, View
from virnucpro.encoders.packed import CPU_STEP, Packed, pack
from virnucpro.errors import InputError

__all__ = ["ModuleEncoder"]


@dataclass(frozen=True, slots=True)
class ModuleEncoder:
    """Runs ``module(packed) -> (n, dim)`` without gradients.

    Attributes
    ----------
    name, dim, view
        As `Encoder` says.
    tokeniser
        Sequences to token ids, special tokens included.
    module
        Takes a `Packed` of at least one sequence, gives (n, dim) float32 in the batch's order.
    device
        Where the module is.
    """

    name: str
    dim: int
    view: View
    tokeniser: Callable[[Sequence[bytes]], list[IntArray]]
    module: Callable[[Packed], torch.Tensor]
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

    def collate(self, batch: Sequence[IntArray]) -> Packed:
        """Lay a batch out on the device; see `Encoder.collate`."""
        step = CPU_STEP if self.device.type == "cpu" else 1
        return pack(batch, step).to(self.device)

    def encode(self, batch: Packed) -> torch.Tensor:
        """Turn sequences into vectors; see `Encoder.encode`."""
        if not len(batch):
            return torch.empty((0, self.dim), dtype=torch.float32, device=self.device)
        with torch.inference_mode():
            vectors: torch.Tensor = self.module(batch)
        return vectors
