"""ESM-2: load an encoder, and recognise checkpoints of fair-esm and folders of Hugging Face."""

import re
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import torch

from virnucpro.encoders.base import EncoderSpec, Tokeniser
from virnucpro.encoders.config import read_json
from virnucpro.encoders.esm2.config import (
    HEAD_BIAS,
    TOKENS,
    UNUSED,
    Esm2Config,
    tokenise_residues,
)
from virnucpro.encoders.esm2.model import Esm2, inverse_frequencies
from virnucpro.encoders.huggingface.config import SETTINGS, WEIGHTS, rotary_bases
from virnucpro.encoders.weights.check import check_layout, check_tensors
from virnucpro.encoders.weights.pickles import named_tensors, read_pickle, require_intact
from virnucpro.encoders.weights.shapes import (
    Shapes,
    read_shapes,
    require_layers,
    stored_tensors,
    without,
)
from virnucpro.errors import BundleError

_LINEAR: Final = ("_proj.", ".fc1.", ".fc2.")
"""Name fragments of the tensors that `Esm2` converts to the precision of the arithmetic."""

_PUBLISHED_NAMES: Final = {
    "num_layers": "encoder_layers",
    "embed_dim": "encoder_embed_dim",
    "attention_heads": "encoder_attention_heads",
    "token_dropout": "token_dropout",
}
"""Field of `Esm2Config` -> name of the setting in a checkpoint."""


def build(
    spec: EncoderSpec, config: Esm2Config, device: torch.device, dtype: torch.dtype
) -> tuple[Tokeniser, Esm2]:
    """Return tokeniser and model of an ESM-2 encoder.

    The spec's ``weights`` are fair-esm's ``.pt``, or a ``.safetensors`` file with the names of
    `Esm2Config.tensor_shapes` or of transformers.

    Raises
    ------
    BundleError
        If a file cannot be read, or its tensors are not those of this model.
    """
    path = spec.file("weights")
    if path.suffix == ".safetensors":
        named = stored_tensors(path, "pt")
        stored = fair_names(named, path)
    else:
        own, named = read_checkpoint(path)
        stored = named
        if own != config:
            raise BundleError(
                f"{path}: the checkpoint has {own}, but the encoder's settings are {config}. "
                "Use settings and weights of the same model."
            )
    shapes, tensors = _all_shapes(config), _with_frequencies(stored, config)
    if spec.pooling.outputs != "vectors":
        shapes |= config.head_shapes()
        tensors |= {name: tensor for name, tensor in named.items() if name in config.head_shapes()}
    check_tensors(shapes, tensors, path, _LINEAR, dtype)
    _check_frequencies(config, tensors, path)
    return tokenise_residues, Esm2(config, tensors, device, dtype)


def vocabulary(spec: EncoderSpec) -> int:
    """Return the number of tokens of the language model in the weights; 0 if they have none."""
    path = spec.file("weights")
    names = read_shapes(path) if path.suffix == ".safetensors" else read_checkpoint(path)[1]
    return len(TOKENS) if HEAD_BIAS in names else 0


def recognise(path: Path) -> EncoderSpec | None:
    """Return the `EncoderSpec` of a fair-esm ``.pt`` file, or of ESM-2 in a Hugging Face folder.

    Return None for other files and folders.

    The file is read completely, to detect damage before a run starts.

    Raises
    ------
    BundleError
        If a ``.pt`` file is not an ESM-2 checkpoint, is damaged, or does not fit its settings.
    """
    if path.is_dir():
        return _recognise_folder(path)
    if path.suffix != ".pt" or not path.is_file():
        return None
    require_intact(path)
    config, stored = read_checkpoint(path)
    tensors = _with_frequencies(stored, config)
    check_layout(_all_shapes(config), tensors, path)
    _check_frequencies(config, tensors, path)
    return config.spec(path.stem, path.parent, {"weights": path.name})


def _recognise_folder(folder: Path) -> EncoderSpec | None:
    config = read_settings(folder)
    if config is None:
        return None
    path = folder / WEIGHTS
    config.require_weights(fair_names(read_shapes(path), path), path)
    return config.spec(folder.resolve().name, folder, {"weights": WEIGHTS})


def needed_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors in a fair-esm checkpoint that the model uses, by name.

    Raises
    ------
    BundleError
        If the file is not an ESM-2 checkpoint. Code in the file is not executed.
    """
    _, tensors = read_checkpoint(path)
    return without(tensors, UNUSED)


def read_checkpoint(path: Path) -> tuple[Esm2Config, dict[str, torch.Tensor]]:
    """Return the settings and the memory-mapped tensors of a fair-esm checkpoint.

    Raises
    ------
    BundleError
        If the file is not an ESM-2 checkpoint. Code in the file is not executed.
    """
    match read_pickle(path):
        case {"cfg": {"model": Namespace() as settings}, "model": dict() as content}:
            published = vars(settings)
        case _:
            raise BundleError(
                f"{path}: is not an ESM-2 checkpoint of fair-esm, which contains 'cfg' and "
                "'model'. Give an esm2_*.pt file (ESM-1 and ESM-1b have another format)."
            )
    own = {own: published[name] for own, name in _PUBLISHED_NAMES.items() if name in published}
    config, stored = Esm2Config.read(own, path), named_tensors(content, path)
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in stored.items():
        # fair-esm's loader removes fairseq's prefixes in this order
        bare = name.removeprefix("encoder.").removeprefix("sentence_encoder.")
        if bare in tensors:
            raise BundleError(
                f"{path}: contains two tensors with the name {bare!r}. Get the file again."
            )
        tensors[bare] = tensor
    require_layers(config.num_layers, len(tensors), path)
    return config, tensors


def _with_frequencies(
    tensors: Mapping[str, torch.Tensor], config: Esm2Config
) -> dict[str, torch.Tensor]:
    """Return the tensors that `Esm2` uses; compute rotary frequencies missing from the file."""
    computed = inverse_frequencies(config.embed_dim // config.attention_heads)
    return dict.fromkeys(config.frequency_shapes(), computed) | without(tensors, UNUSED)


def _all_shapes(config: Esm2Config) -> Shapes:
    """Return the shape of each tensor that `Esm2` requires, by tensor name."""
    return config.tensor_shapes() | config.frequency_shapes()


def _check_frequencies(config: Esm2Config, tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    for name in config.frequency_shapes():
        exact = tensors[name].float()
        if not (exact.isfinite() & (exact >= 0)).all():
            raise BundleError(
                f"{path}: the rotary frequencies in tensor {name!r} contain negative numbers, "
                "infinity or NaN. Get the file again."
            )


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
    if not rotary_bases(found, folder) <= {_ROTARY_BASE} or not _has_own_tokens(folder):
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
    tokens = listed.read_bytes().decode(errors="replace").split() if listed.is_file() else TOKENS
    if [*tokens] != [*TOKENS]:
        return False
    if not whole.is_file():
        return True
    content = read_json(whole)
    model, added = content.get("model"), content.get("added_tokens")
    ids = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(ids, dict) or not isinstance(added, list):
        return False
    ids = ids | {item.get("content"): item.get("id") for item in added if isinstance(item, dict)}
    return ids == {token: number for number, token in enumerate(TOKENS)}


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
