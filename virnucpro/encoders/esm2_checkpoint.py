"""Checkpoints of ESM-2 as fair-esm publishes them, read without running anything of them."""

from argparse import Namespace
from pathlib import Path
from pickle import UnpicklingError

import torch

from virnucpro.encoders.esm2_config import Esm2Config
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
    try:
        with torch.serialization.safe_globals([Namespace]):
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, UnpicklingError) as error:
        reason = str(error).partition("\n")[0]
        raise BundleError(
            f"{path}: cannot be read as a fair-esm checkpoint ({reason}). Get the file again."
        ) from error
    match content:
        case {"cfg": {"model": Namespace() as settings}, "model": dict() as tensors}:
            return _config_of(settings, path), {_bare(name): t for name, t in tensors.items()}
    raise BundleError(
        f"{path}: is no ESM-2 checkpoint of fair-esm, which holds 'cfg' and 'model'. "
        "Give an esm2_*.pt file (ESM-1 and ESM-1b have another format)."
    )


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
