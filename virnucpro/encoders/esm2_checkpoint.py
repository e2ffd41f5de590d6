"""Checkpoints of ESM-2 as fair-esm publishes them, read without running anything of them."""

import zlib
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from zipfile import BadZipFile, ZipFile

import torch

from virnucpro.encoders.esm2_config import Esm2Config
from virnucpro.errors import BundleError

__all__ = ["read_checkpoint", "require_intact"]


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
            config, bare = _config_of(settings, path), _by_bare_name(tensors, path)
            if config.num_layers > len(bare):
                raise BundleError(
                    f"{path}: is said to have {config.num_layers:,} layers and has {len(bare)} "
                    "tensors in all. Get the file again."
                )
            return config, bare
    raise BundleError(
        f"{path}: is no ESM-2 checkpoint of fair-esm, which holds 'cfg' and 'model'. "
        "Give an esm2_*.pt file (ESM-1 and ESM-1b have another format)."
    )


def require_intact(path: Path) -> None:
    """Hold every part of a checkpoint against its checksum, which torch's own reader does not.

    It reads all of the file: to be done once, where a job is made.

    Raises
    ------
    BundleError
        When the file was changed after it was written, or is no zip archive.
    """
    try:
        with ZipFile(path) as archive:
            damaged = archive.testzip()
    except (OSError, RuntimeError, ValueError, EOFError, BadZipFile, zlib.error) as error:
        raise BundleError(
            f"{path}: cannot be read as a fair-esm checkpoint ({error}). Get the file again."
        ) from error
    if damaged is not None:
        raise BundleError(
            f"{path}: is damaged: {damaged} in it is not what its checksum says. Get the file "
            "again."
        )


def _by_bare_name(content: Mapping[object, object], path: Path) -> dict[str, torch.Tensor]:
    """Name tensors as the model does; refuse what is no tensor, and what has a name twice."""
    tensors: dict[str, torch.Tensor] = {}
    for name, value in content.items():
        if not isinstance(name, str):
            raise BundleError(
                f"{path}: among the names of its tensors is {name!r}, no text. Get the file again."
            )
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            kind = value.layout if isinstance(value, torch.Tensor) else type(value).__name__
            raise BundleError(
                f"{path}: {name!r} is no plain tensor ({kind}). Get the file again, in the format "
                "that fair-esm publishes."
            )
        if _bare(name) in tensors:
            raise BundleError(
                f"{path}: holds two tensors for {_bare(name)!r}, one of them as {name!r}. "
                "Get the file again."
            )
        tensors[_bare(name)] = value
    return tensors


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
