"""ESM-2: residues to a vector, from fair-esm's checkpoints or from a bundle's safetensors."""

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Final

import torch
from esm.model.esm2 import ESM2
from torch import nn

from virnucpro.encoders.base import Encoder, EncoderSpec, Precision
from virnucpro.encoders.config import flag, positive_integer
from virnucpro.encoders.module_encoder import ModuleEncoder
from virnucpro.encoders.placement import dtype_of, open_device
from virnucpro.encoders.pooling import masked_mean, positions_below
from virnucpro.encoders.residues import ALPHABET, tokenise_residues
from virnucpro.encoders.rotary import RotaryAttention, inverse_frequencies
from virnucpro.encoders.weights import fill, read_safetensors, without
from virnucpro.errors import BundleError

__all__ = ["Esm2", "Esm2Config", "build_model", "load", "recognise"]

_UNUSED: Final = ("lm_head.", "contact_head.")
"""Parts of fair-esm's module that no embedding needs."""


@dataclass(frozen=True, slots=True)
class Esm2Config:
    """Size of an ESM-2 model, under the names of fair-esm's ``ESM2`` arguments."""

    num_layers: int
    embed_dim: int
    attention_heads: int
    token_dropout: bool = True

    @classmethod
    def read(cls, settings: Mapping[str, object], source: Path) -> "Esm2Config":
        """Check settings that came out of `source`.

        Raises
        ------
        BundleError
            When one is missing or wrong, or when a head has no even number of channels.
        """
        config = cls(
            positive_integer(settings, "num_layers", source),
            positive_integer(settings, "embed_dim", source),
            positive_integer(settings, "attention_heads", source),
            flag(settings, "token_dropout", source),
        )
        if config.embed_dim % (2 * config.attention_heads):
            raise BundleError(
                f"{source}: {config.embed_dim} channels do not divide into "
                f"{config.attention_heads} heads of an even number each, as rotary "
                "positions need. Get the encoder's files again."
            )
        return config


class Esm2(ESM2):  # type: ignore[misc]  # fair-esm ships no types
    """fair-esm's ESM-2 without its heads, with fused attention, pooled to a vector a sequence.

    State dict: the names of fair-esm's module but for ``lm_head`` and ``contact_head``.
    """

    def __init__(self, config: Esm2Config) -> None:
        super().__init__(**asdict(config), alphabet=ALPHABET)
        self.lm_head = nn.Identity()
        del self.contact_head
        for layer in self.layers:
            layer.self_attn = RotaryAttention(layer.self_attn)

    def hidden(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Give the last layer's representation, after the final layer norm.

        Parameters
        ----------
        tokens
            (n, width) int64. What stands beyond a row's length has no influence.
        lengths
            (n,) int64, tokens of each row, <cls> and <eos> included.

        Returns
        -------
        (n, width, dim) of the module's own type; beyond a row's length, numbers without a meaning
        """
        inside = positions_below(lengths, tokens.shape[1])
        clean = tokens.masked_fill(~inside, self.padding_idx)
        states: torch.Tensor = super().forward(clean, repr_layers=[self.num_layers])[
            "representations"
        ][self.num_layers]
        return states

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Give the mean over residues, <cls> and <eos> left out: (n, dim) float32.

        Parameters are those of `hidden`; every row has a residue.
        """
        residues = positions_below(lengths - 1, tokens.shape[1])
        residues[:, 0] = False
        return masked_mean(self.hidden(tokens, lengths), residues)


def build_model(config: Esm2Config) -> Esm2:
    """Build a model with fair-esm's random starting values, to be trained."""
    return Esm2(config)


def load(spec: EncoderSpec, device: str, precision: Precision) -> Encoder:
    """Open an ESM-2 encoder.

    Parameters
    ----------
    spec
        Its ``weights`` are fair-esm's ``.pt`` or a ``.safetensors`` with the names of `Esm2`; its
        config holds the fields of `Esm2Config`.
    device
        torch's name of it.
    precision
        Type of the weights and of the arithmetic.

    Raises
    ------
    BundleError
        When a file cannot be read, or its tensors are not those of this model.
    DeviceError, UsageError
        When device or precision is not to be had.
    """
    path = spec.file("weights")
    config = Esm2Config.read(spec.config, path)
    place, dtype = open_device(device), dtype_of(precision)
    with torch.device("meta"):
        model = Esm2(config)
    fill(model, _tensors(path, config), path, place, dtype)
    return ModuleEncoder(
        spec.name,
        config.embed_dim,
        "protein",
        tokenise_residues,
        model,
        ALPHABET.padding_idx,
        place,
    )


def recognise(path: Path) -> EncoderSpec | None:
    """Describe the fair-esm ESM-2 checkpoint at `path`; none where no ``.pt`` file is.

    Raises
    ------
    BundleError
        When a ``.pt`` file is there that is no ESM-2 checkpoint.
    """
    if path.suffix != ".pt" or not path.is_file():
        return None
    config, _ = _read_checkpoint(path)
    files = {"weights": path.name}
    return EncoderSpec(
        path.stem, "esm2", "protein", config.embed_dim, path.parent, files, asdict(config)
    )


def _tensors(path: Path, config: Esm2Config) -> dict[str, torch.Tensor]:
    """Read what `Esm2` needs; the rotary tables are constants that a file may leave out."""
    if path.suffix == ".safetensors":
        tensors = read_safetensors(path)
    else:
        own, tensors = _read_checkpoint(path)
        if own != config:
            raise BundleError(
                f"{path}: the checkpoint is of {own}, and the encoder's settings say {config}. "
                "Take settings and weights from the same model."
            )
    table = inverse_frequencies(config.embed_dim // config.attention_heads)
    names = [f"layers.{layer}.self_attn.rot_emb.inv_freq" for layer in range(config.num_layers)]
    return dict.fromkeys(names, table) | without(tensors, _UNUSED)


def _read_checkpoint(path: Path) -> tuple[Esm2Config, dict[str, torch.Tensor]]:
    """Read fair-esm's format: of a pickle's content, tensors, plain data and Namespace alone."""
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
