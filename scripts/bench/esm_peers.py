"""Other implementations of ESM-2 with the same weights: fair-esm's and transformers'."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import torch

from virnucpro.arrays import IntArray
from virnucpro.encoders.esm2.config import Esm2Config

Tensors = Mapping[str, torch.Tensor]
"""Weights under fair-esm's names."""

Hidden = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(n, longest) token ids and mask -> (n, longest, dim)"""

_PADDING: Final = 1

_THEIR_NAMES: Final = {
    "embed_tokens.": "embeddings.word_embeddings.",
    "layers.": "encoder.layer.",
    "self_attn_layer_norm.": "attention.LayerNorm.",
    "final_layer_norm.": "LayerNorm.",
    "self_attn.q_proj.": "attention.self.query.",
    "self_attn.k_proj.": "attention.self.key.",
    "self_attn.v_proj.": "attention.self.value.",
    "self_attn.out_proj.": "attention.output.dense.",
    "fc1.": "intermediate.dense.",
    "fc2.": "output.dense.",
    "emb_layer_norm_after.": "encoder.emb_layer_norm_after.",
}
"""Parts of fair-esm's tensor names -> of transformers'."""

_UNUSED: Final = ("rotary_embeddings.inv_freq", "rot_emb.inv_freq", "contact_head.", "lm_head.")
"""Parts of the names of tensors that the peers compute, or do not use for embeddings."""


class Peer:
    """Encodes padded batches; takes means over residues, without <cls> and <eos>.

    Parameters
    ----------
    hidden
        Model, see `fair_esm` and `transformers`.
    device
        Device of the model.
    """

    def __init__(self, hidden: Hidden, device: str) -> None:
        self._hidden, self._device = hidden, device

    def __call__(self, batch: Sequence[IntArray]) -> torch.Tensor:
        """Return vectors (n, dim) float32 on the device."""
        lengths = torch.tensor([len(ids) for ids in batch])
        tokens = torch.full((len(batch), int(lengths.max())), _PADDING)
        for row, ids in zip(tokens, batch, strict=True):
            row[: len(ids)] = torch.from_numpy(ids)
        place = torch.arange(tokens.shape[1])
        counted = ((place > 0) & (place < lengths[:, None] - 1)).to(self._device)
        there = tokens.to(self._device)
        states = self._hidden(there, (there != _PADDING).long())
        sums = (states.float() * counted[:, :, None]).sum(1)
        return sums / counted.sum(1, keepdim=True)


def fair_esm(config: Esm2Config, tensors: Tensors, device: str, dtype: torch.dtype) -> Hidden:
    """Return fair-esm's model."""
    from esm.model.esm2 import ESM2  # noqa: PLC0415 - may be missing

    with torch.device(device):
        model = ESM2(config.num_layers, config.embed_dim, config.attention_heads).to(dtype).eval()
    _fill(model, tensors)
    last = config.num_layers
    return lambda tokens, _: model(tokens, repr_layers=[last])["representations"][last]


def transformers(config: Esm2Config, tensors: Tensors, device: str, dtype: torch.dtype) -> Hidden:
    """Return the model of Hugging Face's transformers."""
    from transformers import EsmConfig, EsmModel  # noqa: PLC0415 - may be missing

    settings = EsmConfig(
        vocab_size=33,
        pad_token_id=_PADDING,
        mask_token_id=32,
        hidden_size=config.embed_dim,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.attention_heads,
        intermediate_size=4 * config.embed_dim,
        position_embedding_type="rotary",
        token_dropout=config.token_dropout,
        layer_norm_eps=1e-5,
        attn_implementation="sdpa",
    )
    with torch.device(device):
        model = EsmModel(settings, add_pooling_layer=False).to(dtype).eval()
    _fill(model, {_their_name(name): tensor for name, tensor in tensors.items()})
    return lambda tokens, mask: model(tokens, attention_mask=mask).last_hidden_state


def _fill(model: torch.nn.Module, tensors: Tensors) -> None:
    missing, _ = model.load_state_dict(tensors, strict=False)
    missing = [name for name in missing if not any(part in name for part in _UNUSED)]
    assert not missing, missing


def _their_name(name: str) -> str:
    for own, theirs in _THEIR_NAMES.items():
        name = name.replace(own, theirs)
    return name
