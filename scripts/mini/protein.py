"""The trained ESM-2: fair-esm's own module; the program's forward pass reads its weights."""

from dataclasses import asdict

import torch
from esm.data import Alphabet
from esm.model.esm2 import ESM2
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from virnucpro.encoders.esm2.config import Esm2Config

__all__ = ["ALPHABET", "Protein"]

ALPHABET = Alphabet.from_architecture("ESM-1b")
"""The alphabet of every ESM-2 model."""


class Protein(ESM2):  # type: ignore[misc]  # fair-esm ships no types
    """fair-esm's ESM-2 without its heads, pooled to one vector for each sequence."""

    def __init__(self, config: Esm2Config) -> None:
        super().__init__(**asdict(config), alphabet=ALPHABET)
        self.lm_head = nn.Identity()
        del self.contact_head

    def forward(self, sequences: list[torch.Tensor]) -> torch.Tensor:
        """Return the mean over residues without <cls> and <eos>: (n, dim) float32.

        Parameters
        ----------
        sequences
            Token ids of each, <cls> and <eos> included.
        """
        tokens = pad_sequence(sequences, batch_first=True, padding_value=ALPHABET.padding_idx)
        states = super().forward(tokens, repr_layers=[self.num_layers])
        lengths = torch.tensor([len(ids) for ids in sequences])
        position = torch.arange(tokens.shape[1])
        residue = (position > 0) & (position < lengths[:, None] - 1)
        hidden = states["representations"][self.num_layers].masked_fill(~residue[..., None], 0.0)
        mean: torch.Tensor = hidden.sum(1) / (lengths[:, None] - 2)
        return mean
