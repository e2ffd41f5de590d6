"""How large encoders are: those that are published, and what a spec's settings say of its tensors.

Sources: the names of fair-esm's checkpoints say layers and parameters, its ``ESM2`` the rest;
DNABERT-S's config.json.
"""

import math
from collections.abc import Mapping
from typing import Final

from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.config import EncoderConfig
from virnucpro.encoders.dnabert_s.config import DnabertSConfig
from virnucpro.encoders.esm2.config import Esm2Config
from virnucpro.encoders.registry import config_of
from virnucpro.encoders.work import Work
from virnucpro.errors import UsageError

__all__ = ["PUBLISHED", "n_parameters", "shapes_of", "size_named", "work_of"]

PUBLISHED: Final[Mapping[str, EncoderConfig]] = {
    "esm2_t6_8M_UR50D": Esm2Config(6, 320, 20),
    "esm2_t12_35M_UR50D": Esm2Config(12, 480, 20),
    "esm2_t30_150M_UR50D": Esm2Config(30, 640, 20),
    "esm2_t33_650M_UR50D": Esm2Config(33, 1280, 20),
    "esm2_t36_3B_UR50D": Esm2Config(36, 2560, 40),
    "esm2_t48_15B_UR50D": Esm2Config(48, 5120, 40),
    "dnabert_s": DnabertSConfig(4096, 768, 12, 12, 3072),
}
"""The settings of published encoders, by name."""


def size_named(name: str) -> EncoderConfig:
    """Find a published size.

    Raises
    ------
    UsageError
        When nothing of that name has been published.
    """
    if name not in PUBLISHED:
        raise UsageError(f"no model {name!r} is known; choose one of {', '.join(PUBLISHED)}.")
    return PUBLISHED[name]


def n_parameters(size: EncoderConfig) -> int:
    """Count the weights that an encoder has in use."""
    return sum(math.prod(shape) for shape in size.tensor_shapes().values())


def work_of(spec: EncoderSpec) -> Work:
    """Say what an encoder multiplies.

    Raises
    ------
    BundleError
        As `config_of`.
    """
    return config_of(spec).work()


def shapes_of(*specs: EncoderSpec) -> list[tuple[int, ...]]:
    """List the shapes of all weights of encoders.

    Raises
    ------
    BundleError
        As `config_of`.
    """
    return [shape for spec in specs for shape in config_of(spec).tensor_shapes().values()]
