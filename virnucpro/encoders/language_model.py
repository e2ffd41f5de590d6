"""What a masked language model says of a sequence: logits of residues, pseudo-perplexity."""

from typing import Protocol

import torch

from virnucpro.encoders.batching import BATCH_TOKENS
from virnucpro.encoders.encoder import CPU_STEP, PackedBatch, TokenModel, pack, token_positions
from virnucpro.encoders.pooling import PoolingPlan


class LanguageModel(TokenModel, Protocol):
    """A `TokenModel` with the head of its language model.

    Attributes
    ----------
    mask
        Id of the token that hides another one.
    """

    mask: int

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Return the logits of all tokens of the vocabulary, ``(n, n_tokens)``.

        Parameters
        ----------
        states
            ``(n, dim)``, vectors after the last layer.
        """


class Logits:
    """Logits of the tokens of sequences, none of them hidden."""

    def __init__(self, model: LanguageModel, plan: PoolingPlan) -> None:
        self._model, self._plan = model, plan

    def __call__(self, packed: PackedBatch) -> torch.Tensor:
        """Return ``(tokens without special tokens, n_tokens)`` float32, in the original order."""
        (states,) = self._model.states(packed, self._plan.layers)
        layout = self._plan.layout
        return self._model.logits(
            states[token_positions(packed, layout.first, layout.last)]
        ).float()


class PseudoPerplexity:
    """Pseudo-perplexity of sequences: how much a model wonders at them.

    Each token is hidden once, in a copy of the sequence of its own. The result is exp of the mean
    of -log p(token), with p over the whole vocabulary: 1 for a sequence that the model knows.

    Source: Salazar et al. 2020, Masked language model scoring.
    """

    def __init__(self, model: LanguageModel, plan: PoolingPlan) -> None:
        self._model, self._plan = model, plan

    def __call__(self, packed: PackedBatch) -> torch.Tensor:
        """Return ``(n, 1)`` float32, in the order before packing."""
        found = [self._of(ids) for group in packed.groups for ids in group.of(packed.tokens)]
        return torch.stack(found)[packed.places, None]

    def _of(self, ids: torch.Tensor) -> torch.Tensor:
        first = self._plan.layout.first
        inside = torch.arange(first, len(ids) - self._plan.layout.last)
        most = max(1, BATCH_TOKENS[ids.device.type] // len(ids))
        losses = torch.cat([self._losses(ids, hidden) for hidden in torch.split(inside, most)])
        return losses.mean().exp()

    def _losses(self, ids: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Return -log p of the tokens at the positions `hidden`, each hidden in its own copy."""
        copies = ids.cpu().repeat(len(hidden), 1)
        copies[torch.arange(len(hidden)), hidden] = self._model.mask
        packed = pack(list(copies.numpy()), CPU_STEP).to(ids.device)
        (states,) = self._model.states(packed, self._plan.layers)
        rows = packed.offsets[:-1].long() + hidden.to(ids.device)
        logits = self._model.logits(states[rows]).float()
        return torch.nn.functional.cross_entropy(logits, ids[hidden], reduction="none")
