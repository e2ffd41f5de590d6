"""Share of each amino acid in a protein, and its mean hydropathy: 21 numbers, no weights."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from virnucpro.encoders.plugin import EncoderPlugin

RESIDUES = b"ACDEFGHIKLMNPQRSTVWY"
HYDROPATHY = [  # Kyte and Doolittle 1982
    *(1.8, 2.5, -3.5, -3.5, 2.8, -0.4, -3.2, 4.5, -3.9, 3.8),
    *(1.9, -3.5, -1.6, -3.5, -4.5, -0.8, -0.7, 4.2, -0.9, -1.3),
]
OTHER = len(RESIDUES)  # token of X, B, Z and all other letters
TOKENS = np.full(256, OTHER)
TOKENS[list(RESIDUES)] = np.arange(OTHER)


class ResidueProperties(EncoderPlugin):
    """A vector depends on its own sequence alone."""

    alphabet = "protein"
    dim = OTHER + 1
    max_tokens = 50_000
    settings: Mapping[str, str] = {"hydropathy": "Kyte-Doolittle"}

    def tokenise(self, sequences: Sequence[bytes]) -> list[NDArray[np.int64]]:
        """Return a number from 0 to 20 for each residue."""
        return [TOKENS[np.frombuffer(one.upper(), np.uint8)] for one in sequences]

    def vectors(self, batch: Sequence[NDArray[np.int64]]) -> NDArray[np.float32]:
        """Return (n, 21) float32: shares in the order of RESIDUES, then the mean hydropathy."""
        counts = [np.bincount(tokens, minlength=OTHER + 1)[:OTHER] for tokens in batch]
        shares = np.array(counts) / np.array([[len(tokens)] for tokens in batch])
        return np.column_stack([shares, shares @ np.array(HYDROPATHY)]).astype(np.float32)
