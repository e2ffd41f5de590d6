"""Other implementations of ESM-2 with the same weights: fair-esm's and transformers'."""

from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec

import torch
from gpu_check.library import Batch, EncoderSpec, dtype_of
from safetensors.torch import load_file

__all__ = ["Encode", "peers_of"]

Encode = Callable[[Batch], torch.Tensor]
"""Token ids of a batch -> (n, dim) float32 on the device."""

Hidden = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(n, longest) token ids and mask -> (n, longest, dim)"""

_PADDING = 1

_THEIR_NAMES = {
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


def peers_of(spec: EncoderSpec, device: str, precision: str) -> Iterator[tuple[str, Encode | str]]:
    """Yield each peer's name with its encode function, or with the reason why it is missing."""
    builders = {"fair-esm": ("esm", _fair_esm), "transformers": ("transformers", _transformers)}
    for name, (module, build) in builders.items():
        if spec.architecture != "esm2":
            continue
        if find_spec(module) is None:
            yield name, "missing"
            continue
        try:
            yield name, _padded(build(spec, device, dtype_of(precision)), device)
        except Exception as error:  # noqa: BLE001 - a missing peer is not a failure
            yield name, f"cannot be built: {type(error).__name__}: {error}"


def _padded(hidden: Hidden, device: str) -> Encode:
    """Make padded batches and take means over residues, without <cls> and <eos>."""

    def encode(batch: Batch) -> torch.Tensor:
        lengths = torch.tensor([len(ids) for ids in batch])
        tokens = torch.full((len(batch), int(lengths.max())), _PADDING)
        for row, ids in zip(tokens, batch, strict=True):
            row[: len(ids)] = torch.from_numpy(ids)
        place = torch.arange(tokens.shape[1])
        counted = ((place > 0) & (place < lengths[:, None] - 1)).to(device)
        there = tokens.to(device)
        states = hidden(there, (there != _PADDING).long())
        sums = (states.float() * counted[:, :, None]).sum(1)
        return sums / counted.sum(1, keepdim=True)

    return encode


def _fair_esm(spec: EncoderSpec, device: str, dtype: torch.dtype) -> Hidden:
    from esm.model.esm2 import ESM2  # noqa: PLC0415 - may be missing

    layers, width, heads = _shape(spec)
    with torch.device(device):
        model = ESM2(layers, width, heads).to(dtype).eval()
    model.load_state_dict(_tensors(spec, device), strict=False)
    return lambda tokens, _: model(tokens, repr_layers=[layers])["representations"][layers]


def _transformers(spec: EncoderSpec, device: str, dtype: torch.dtype) -> Hidden:
    from transformers import EsmConfig, EsmModel  # noqa: PLC0415 - may be missing

    layers, width, heads = _shape(spec)
    settings = EsmConfig(
        vocab_size=33,
        pad_token_id=_PADDING,
        mask_token_id=32,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        position_embedding_type="rotary",
        token_dropout=True,
        layer_norm_eps=1e-5,
    )
    with torch.device(device):
        model = EsmModel(settings, add_pooling_layer=False).to(dtype).eval()
    renamed = {_their_name(name): tensor for name, tensor in _tensors(spec, device).items()}
    model.load_state_dict(renamed, strict=False)
    return lambda tokens, mask: model(tokens, attention_mask=mask).last_hidden_state


def _shape(spec: EncoderSpec) -> tuple[int, int, int]:
    names = ("num_layers", "embed_dim", "attention_heads")
    layers, width, heads = (int(str(spec.config[name])) for name in names)
    return layers, width, heads


def _tensors(spec: EncoderSpec, device: str) -> Mapping[str, torch.Tensor]:
    return load_file(spec.file("weights"), device)


def _their_name(name: str) -> str:
    for own, theirs in _THEIR_NAMES.items():
        name = name.replace(own, theirs)
    return name
