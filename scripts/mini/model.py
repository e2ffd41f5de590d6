"""The trained model: two small encoders and a head, of the program's own modules."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from mini.items import Items
from mini.protein import ALPHABET, Protein
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import nn

from virnucpro.bundles.manifest import EncoderEntry
from virnucpro.classify.head import Head
from virnucpro.encoders.dnabert_s.config import DnabertSConfig
from virnucpro.encoders.dnabert_s.model import DnabertS
from virnucpro.encoders.encoder import pack
from virnucpro.encoders.esm2.config import Esm2Config

__all__ = ["Mini", "Sizes", "item_scores", "item_vectors", "save_files"]

_DEVIATION = 0.02
"""Standard deviation of initial weights: ``initializer_range`` of the published config."""

_MASK, _FIRST_BASE = 4, 5
"""Id of [MASK] in tokenizer.json; ordinary tokens have larger ids."""

_NUCLEOTIDE_FILE, _PROTEIN_FILE, _HEAD_FILE = (
    "nucleotide.safetensors",
    "protein.safetensors",
    "head.safetensors",
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of the model."""

    vocabulary: int = 512
    width: int = 128
    heads: int = 4
    layers: int = 1
    hidden: int = 256
    dropout: float = 0.3

    def nucleotide(self) -> DnabertSConfig:
        """Return the settings of the DNABERT-S encoder."""
        return DnabertSConfig(self.vocabulary, self.width, self.layers, self.heads, 2 * self.width)

    def protein(self) -> Esm2Config:
        """Return the settings of the ESM-2 encoder."""
        return Esm2Config(self.layers, self.width, self.heads)

    def head(self) -> tuple[int, int, int]:
        """Return the layer sizes of the head."""
        return 2 * self.width, self.hidden, 2


class Mini(nn.Module):
    """Both encoders and the head."""

    def __init__(self, sizes: Sizes, vocabulary: Mapping[str, int]) -> None:
        super().__init__()
        self.nucleotide = DnabertS(sizes.nucleotide()).apply(_draw_small_weights)
        self.protein = Protein(sizes.protein())
        self.width = 2 * sizes.width
        self.head = Head(sizes.head(), sizes.dropout)
        _start_from_composition(self.nucleotide.embeddings.word_embeddings, vocabulary)

    def forward(self, items: Items, chosen: Sequence[int], masked: float = 0.0) -> torch.Tensor:
        """Return the logits of the chosen items, (n, 2), with a share of their tokens masked."""
        logits: torch.Tensor = self.head(self.vectors(items, chosen, masked))
        return logits

    def vectors(self, items: Items, chosen: Sequence[int], masked: float = 0.0) -> torch.Tensor:
        """Return the joined vectors of the chosen items, (n, 2 * width)."""
        bases = pack([items.bases[i] for i in chosen])
        residues = [torch.from_numpy(items.residues[i]) for i in chosen]
        if masked:
            bases = replace(bases, tokens=_mask(bases.tokens, masked, _FIRST_BASE, _MASK))
            first, mask = ALPHABET.get_idx("L"), ALPHABET.mask_idx
            residues = [_mask(ids, masked, first, mask) for ids in residues]
        return torch.cat((self.nucleotide(bases), self.protein(residues)), dim=1)


@torch.no_grad()
def item_vectors(model: Mini, items: Items, batch: int = 64) -> torch.Tensor:
    """Return the joined vector of every item: (n_items, 2 * width) float32."""
    model.eval()
    order = np.argsort([len(ids) for ids in items.bases], kind="stable")
    vectors = torch.zeros(len(order), model.width)
    for start in range(0, len(order), batch):
        chosen = order[start : start + batch]
        vectors[torch.from_numpy(chosen)] = model.vectors(items, chosen)
    return vectors


def item_scores(model: Mini, items: Items) -> NDArray[np.float32]:
    """Return the scores of every item: (n_items, 2) float32, others and virus."""
    vectors = item_vectors(model, items)
    scores: NDArray[np.float32] = model.head.eval().scores(vectors).numpy()
    return scores


def save_files(model: Mini, sizes: Sizes, folder: Path) -> tuple[list[EncoderEntry], str]:
    """Write the tensors into `folder`; return the manifest's entries of encoders and head."""
    for part, name in (
        (model.nucleotide, _NUCLEOTIDE_FILE),
        (model.protein, _PROTEIN_FILE),
        (model.head, _HEAD_FILE),
    ):
        save_file({key: t.contiguous() for key, t in part.state_dict().items()}, folder / name)
        (folder / name).chmod(0o644)  # save_file writes mode 0600
    nucleotide = EncoderEntry(
        "mini-dnabert-s",
        "dnabert_s",
        "nucleotide",
        sizes.width,
        {"weights": _NUCLEOTIDE_FILE, "tokenizer": "tokenizer.json"},
        asdict(sizes.nucleotide()),
    )
    protein = EncoderEntry(
        "mini-esm2",
        "esm2",
        "protein",
        sizes.width,
        {"weights": _PROTEIN_FILE},
        asdict(sizes.protein()),
    )
    return [nucleotide, protein], _HEAD_FILE


def _draw_small_weights(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=_DEVIATION)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def _mask(ids: torch.Tensor, share: float, first: int, mask: int) -> torch.Tensor:
    """Replace a share of the ordinary tokens (ids from `first` on) by `mask`."""
    hit = (torch.rand(ids.shape) < share) & (ids >= first)
    return ids.masked_fill(hit, mask)


def _start_from_composition(embedding: nn.Embedding, vocabulary: Mapping[str, int]) -> None:
    """Initialise tokens of similar composition alike, by projected counts of their 1- to 3-mers.

    With independent initial values, each token is learned separately, which needs more families
    than the training data has.
    """
    counts = np.zeros((embedding.num_embeddings, 84), np.float32)
    for token, number in vocabulary.items():
        if token.strip("ACGT") == "":
            for k, offset in ((1, 0), (2, 4), (3, 20)):
                for start in range(len(token) - k + 1):
                    kmer = token[start : start + k].translate(str.maketrans("ACGT", "0123"))
                    counts[number, offset + int(kmer, 4)] += 1
    projected = torch.from_numpy(counts) @ torch.randn(84, embedding.embedding_dim)
    with torch.no_grad():
        embedding.weight.copy_(0.05 * (projected - projected.mean(0)) / projected.std(0))
