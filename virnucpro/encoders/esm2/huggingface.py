"""ESM-2 in a Hugging Face folder: settings and tensors under the names of fair-esm."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from virnucpro.encoders.esm2.config import TOKENS, Esm2Config
from virnucpro.encoders.huggingface.config import SETTINGS, WEIGHTS, read_json, rotary_bases
from virnucpro.errors import BundleError

__all__ = ["fair_names", "read_settings"]

T = TypeVar("T")

_EPSILON: Final = 1e-5
_ROTARY_BASE: Final = 10_000

_NAMES: Final = {
    "attention.self.query": "self_attn.q_proj",
    "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj",
    "attention.self.rotary_embeddings": "self_attn.rot_emb",
    "attention.output.dense": "self_attn.out_proj",
    "attention.LayerNorm": "self_attn_layer_norm",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
    "LayerNorm": "final_layer_norm",
}
"""Names in transformers' ``EsmModel`` -> names in fair-esm's ``ESM2``, of a layer."""

_LAYER: Final = re.compile(r"layer\.(\d+)\.(.*)")

_ENDS: Final = {"gamma": "weight", "beta": "bias"}
"""Older names of the tensors of a layer norm."""

_UNUSED: Final = re.compile(
    r"(esm\.)?(contact_head|pooler|lm_head|embeddings\.(position_|layer_norm))|.*\.layer\.\*\."
)
"""Tensors that vectors do not need; an asterisk stands for values that all layers share."""


def fair_names(tensors: Mapping[str, T], source: Path) -> dict[str, T]:
    """Return tensors by their names in fair-esm; tensors that vectors do not need are left out.

    A file with fair-esm's names is returned unchanged.

    Raises
    ------
    BundleError
        If two tensors have the same name in fair-esm.
    """
    if "embed_tokens.weight" in tensors:
        return dict(tensors)
    renamed: dict[str, T] = {}
    for name, tensor in tensors.items():
        if _UNUSED.match(name):
            continue
        if (own := _renamed(name)) in renamed:
            raise BundleError(f"{source}: contains two tensors {own!r}. Get the file again.")
        renamed[own] = tensor
    return renamed


def _renamed(name: str) -> str:
    name = name.removeprefix("esm.")
    if name == "embeddings.word_embeddings.weight":
        return "embed_tokens.weight"
    stem, _, end = name.removeprefix("encoder.").rpartition(".")
    end = _ENDS.get(end, end)
    if (match := _LAYER.fullmatch(stem)) and match[2] in _NAMES:
        return f"layers.{match[1]}.{_NAMES[match[2]]}.{end}"
    return f"{stem}.{end}"


def read_settings(folder: Path) -> Esm2Config | None:
    """Return the settings of ESM-2 in a Hugging Face folder; None if it has another model.

    Other models of the type ``esm``, such as Nucleotide Transformer, differ in the positions, the
    vocabulary or the layer norms. These, other rotary bases and weights in several files are left
    to transformers.

    Raises
    ------
    BundleError
        If config.json cannot be read, or a setting is missing or invalid.
    """
    if not (folder / SETTINGS).is_file() or not (folder / WEIGHTS).is_file():
        return None
    found = read_json(folder / SETTINGS)
    wanted: dict[str, Any] = {
        "model_type": "esm",
        "position_embedding_type": "rotary",
        "vocab_size": len(TOKENS),
        "layer_norm_eps": _EPSILON,
        "emb_layer_norm_before": False,
        "intermediate_size": 4 * _whole(found.get("hidden_size")),
    }
    found.setdefault("emb_layer_norm_before", False)
    if any((found.get(name) or False) != (value or False) for name, value in wanted.items()):
        return None
    if not rotary_bases(found) <= {_ROTARY_BASE} or not _has_own_tokens(folder):
        return None
    own = {
        "num_layers": found.get("num_hidden_layers"),
        "embed_dim": found.get("hidden_size"),
        "attention_heads": found.get("num_attention_heads"),
        "token_dropout": found.get("token_dropout", False),
    }
    return Esm2Config.read(own, folder / SETTINGS)


def _has_own_tokens(folder: Path) -> bool:
    """Return whether the vocabulary files of a folder, if any, have fair-esm's ids."""
    listed, whole = folder / "vocab.txt", folder / "tokenizer.json"
    if listed.is_file() and listed.read_text(encoding="utf-8").split() != list(TOKENS):
        return False
    if not whole.is_file():
        return True
    content = read_json(whole)
    model, added = content.get("model"), content.get("added_tokens")
    ids = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(ids, dict) or not isinstance(added, list):
        return False
    ids = ids | {one.get("content"): one.get("id") for one in added if isinstance(one, dict)}
    return ids == {token: number for number, token in enumerate(TOKENS)}


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
