"""Checkpoints of ESM-2 as fair-esm publishes them, read without running anything of them."""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

import torch

from virnucpro.encoders.esm2.config import Esm2Config
from virnucpro.encoders.shapes import require_layers
from virnucpro.encoders.weights.pickles import is_plain_tensor, read_pickle
from virnucpro.errors import BundleError

__all__ = ["read_checkpoint"]


def read_checkpoint(path: Path) -> tuple[Esm2Config, dict[str, torch.Tensor]]:
    """Read size and tensors of a fair-esm checkpoint; the tensors are mapped, not read.

    Of a pickle's content it takes tensors, plain data and Namespace alone.

    Raises
    ------
    BundleError
        When it is no ESM-2 checkpoint; nothing of it has run.
    """
    content = read_pickle(path)
    match content:
        case {"cfg": {"model": Namespace() as settings}, "model": dict() as tensors}:
            config, bare = _config_of(settings, path), _by_bare_name(tensors, path)
            require_layers(config.n_layers, len(bare), path)
            return config, bare
    raise BundleError(
        f"{path}: is no ESM-2 checkpoint of fair-esm, which holds 'cfg' and 'model'. "
        "Give an esm2_*.pt file (ESM-1 and ESM-1b have another format)."
    )


def _by_bare_name(content: Mapping[object, object], path: Path) -> dict[str, torch.Tensor]:
    """Name tensors as the model does; refuse what is no tensor, and what has a name twice."""
    tensors: dict[str, torch.Tensor] = {}
    for name, value in content.items():
        if not isinstance(name, str):
            raise BundleError(
                f"{path}: among the names of its tensors is {name!r}, no text. Get the file again."
            )
        if not is_plain_tensor(value):
            raise BundleError(
                f"{path}: {name!r} is no plain tensor ({_kind(value)}). Get the file again, in the "
                "format that fair-esm publishes."
            )
        if _bare(name) in tensors:
            raise BundleError(
                f"{path}: holds two tensors for {_bare(name)!r}, one of them as {name!r}. "
                "Get the file again."
            )
        tensors[_bare(name)] = value
    return tensors


def _kind(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.layout} on {value.device}"
    return type(value).__name__


def _config_of(settings: Namespace, path: Path) -> Esm2Config:
    published = vars(settings)
    names = {
        "num_layers": "encoder_layers",
        "embed_dim": "encoder_embed_dim",
        "attention_heads": "encoder_attention_heads",
        "token_dropout": "token_dropout",
    }
    return Esm2Config.read(
        {own: published[name] for own, name in names.items() if name in published}, path
    )


def _bare(name: str) -> str:
    """Cut fairseq's prefixes as fair-esm's loader does."""
    return name.removeprefix("encoder.").removeprefix("sentence_encoder.")
