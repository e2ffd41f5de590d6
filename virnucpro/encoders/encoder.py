"""The interface of a loaded encoder: tokenise, collate, encode."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from virnucpro.encoders.base import IntArray, View
from virnucpro.encoders.packed import CPU_STEP, Packed, pack
from virnucpro.errors import InputError

__all__ = ["Encoder"]


@dataclass(frozen=True, slots=True)
class Encoder:
    """Turns sequences of one view into vectors.

    Attributes
    ----------
    name
        Name in the bundle, or of the file of weights.
    dim
        Length of a vector.
    view
        Kind of sequence.
    tokeniser
        Converts sequences to token ids, special tokens included.
    module
        Converts a `Packed` batch of at least one sequence to (n, dim) float32, in batch order.
    device
        Device of the module.
    """

    name: str
    dim: int
    view: View
    tokeniser: Callable[[Sequence[bytes]], list[IntArray]]
    module: Callable[[Packed], torch.Tensor]
    device: torch.device

    def tokenise(self, sequences: Sequence[bytes]) -> list[IntArray]:
        """Convert sequences to token ids, special tokens included.

        Parameters
        ----------
        sequences
            Letters in either case. An unknown letter becomes the encoder's unknown token.

        Returns
        -------
        list of (n_tokens,) int64
            In the order of `sequences`.

        Raises
        ------
        InputError
            If a sequence is empty: the mean over its tokens is undefined.
        """
        for position, sequence in enumerate(sequences):
            if not sequence:
                raise InputError(
                    f"sequence {position} of {len(sequences)} is empty, and {self.name} cannot "
                    "encode it. Remove empty sequences."
                )
        return self.tokeniser(sequences)

    def collate(self, batch: Sequence[IntArray]) -> Packed:
        """Pack tokenised sequences of any lengths on the encoder's device, ready for `encode`.

        Another thread may call it while `encode` runs. The copy to a GPU is asynchronous.
        """
        step = CPU_STEP if self.device.type == "cpu" else 1
        return pack(batch, step).to(self.device)

    def encode(self, batch: Packed) -> torch.Tensor:
        """Convert a packed batch to vectors in one pass.

        Other sequences of the batch change a vector by floating-point rounding only.

        Returns
        -------
        (n, dim) float32
            On the encoder's device, in the order of the batch.
        """
        if not len(batch):
            return torch.empty((0, self.dim), dtype=torch.float32, device=self.device)
        with torch.inference_mode():
            return self.module(batch)
