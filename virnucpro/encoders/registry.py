"""Registry of encoder architectures, and settings of published encoders.

See `virnucpro.encoders` for the steps to add an encoder.

This module imports ``config.py`` of each architecture, which does not import torch. ``encoder.py``
of an architecture is imported on first use.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from virnucpro.encoders.base import Encoder, EncoderSpec, Precision
from virnucpro.encoders.composition.config import CompositionConfig
from virnucpro.encoders.config import EncoderConfig
from virnucpro.encoders.dnabert_s.config import FILES, DnabertSConfig
from virnucpro.encoders.esm2.config import Esm2Config
from virnucpro.encoders.genes.config import GenesConfig
from virnucpro.encoders.huggingface.config import HuggingFaceConfig
from virnucpro.encoders.plugin.config import PluginConfig
from virnucpro.encoders.pooling import Pooling
from virnucpro.errors import BundleError, UsageError
from virnucpro.extras import require_extra

_CONFIGS: Final[Mapping[str, type[EncoderConfig]]] = {
    config.architecture: config
    for config in (
        *(CompositionConfig, DnabertSConfig, Esm2Config, GenesConfig, HuggingFaceConfig),
        PluginConfig,
    )
}

PUBLISHED: Final[Mapping[str, EncoderConfig]] = {
    "esm2_t6_8M_UR50D": Esm2Config(6, 320, 20),
    "esm2_t12_35M_UR50D": Esm2Config(12, 480, 20),
    "esm2_t30_150M_UR50D": Esm2Config(30, 640, 20),
    "esm2_t33_650M_UR50D": Esm2Config(33, 1280, 20),
    "esm2_t36_3B_UR50D": Esm2Config(36, 2560, 40),
    "esm2_t48_15B_UR50D": Esm2Config(48, 5120, 40),
    "dnabert_s": DnabertSConfig(4096, 768, 12, 12, 3072),
}
"""Settings of published encoders by name. Sources: the names of fair-esm's checkpoints, its class
``ESM2``, and the config.json of DNABERT-S."""


def architectures() -> tuple[str, ...]:
    """Return the names of all architectures."""
    return tuple(sorted(_CONFIGS))


def config_of(spec: EncoderSpec) -> EncoderConfig:
    """Return an encoder's settings as a dataclass, without opening the encoder's files.

    Raises
    ------
    BundleError
        If the architecture is unknown, or a setting is missing or invalid.
    """
    if spec.architecture not in _CONFIGS:
        raise BundleError(
            f"{spec.folder}: encoder {spec.name!r} has the unknown architecture "
            f"{spec.architecture!r}; known are {', '.join(architectures())}. "
            "Use a newer version of virnucpro."
        )
    return _CONFIGS[spec.architecture].read(spec.config, spec.folder)


def shapes_of(*specs: EncoderSpec) -> list[tuple[int, ...]]:
    """Return one list with the shapes of all weights of all given encoders.

    Raises
    ------
    BundleError
        If an architecture is unknown, or a setting is missing or invalid.
    """
    return [shape for spec in specs for shape in config_of(spec).tensor_shapes().values()]


def need_torch(specs: Iterable[EncoderSpec]) -> bool:
    """Return whether any of the encoders is a language model, which needs torch."""
    return any(config_of(spec).with_torch for spec in specs)


def require_installed(specs: Sequence[EncoderSpec], purpose: str) -> None:
    """Raise UsageError if encoders have weights, but the extra ``models`` is not installed."""
    if shapes_of(*specs):
        require_extra("models", purpose)


def load_encoder(spec: EncoderSpec, device: str = "cpu", precision: Precision = "fp32") -> Encoder:
    """Load an encoder onto a device.

    Parameters
    ----------
    spec
        From a bundle or from `open_spec`.
    device
        torch's name of the device, such as ``cpu`` or ``cuda:0``.
    precision
        Type of the weights and of the arithmetic; vectors are always float32.

    Raises
    ------
    BundleError
        If the architecture is unknown, a file is missing or damaged, or the files do not fit the
        spec.
    DeviceError
        If there is no such device, or it has not enough memory.
    UsageError
        If there is no such precision.
    """
    config = config_of(spec)
    dim = _length(spec, config)
    if (dim, config.view) != (spec.dim, spec.view):
        raise BundleError(
            f"{spec.folder}: encoder {spec.name!r} is listed as a {spec.view} encoder with "
            f"vectors of length {spec.dim}, but its settings are of a {config.view} encoder with "
            f"vectors of length {dim}. "
            "Get the bundle again."
        )
    module = _module(spec.architecture)
    if not config.with_torch:
        encoder: Encoder = module.load(spec, config, device, precision)
        return encoder
    from virnucpro.encoders.loading import load_pooled  # noqa: PLC0415 - imports torch

    return load_pooled(spec, config, device, precision, module.build)


def pooled_spec(spec: EncoderSpec, pooling: Pooling) -> EncoderSpec:
    """Return the spec of an encoder with another pooling; `spec` has the default pooling.

    Raises
    ------
    UsageError
        If the encoder cannot pool in this way, see `Pooling.of_model`.
    """
    config = config_of(spec)
    own = replace(spec, pooling=pooling.of_model(spec.name, config.layout))
    return replace(own, dim=_length(own, config))


def _length(spec: EncoderSpec, config: EncoderConfig) -> int:
    """Return the number of values for a sequence, or for a token.

    Raises
    ------
    UsageError
        If the pooling needs a language model, and the files of the encoder have none.
    """
    if spec.pooling.outputs == "vectors":
        return config.dim * max(1, len(spec.pooling.layers))
    vocabulary = getattr(_module(spec.architecture), "vocabulary", lambda _: 0)(spec)
    if not vocabulary:
        raise UsageError(
            f"{spec.name} has no masked language model, which --outputs {spec.pooling.outputs} "
            "needs: give an ESM-2 checkpoint, or a Hugging Face folder of an ESM or BERT model "
            "with lm_head. or cls. weights."
        )
    return vocabulary if spec.pooling.outputs == "logits" else 1


def open_spec(path: Path) -> EncoderSpec:
    """Recognise published weights by their files; return an `EncoderSpec` for `load_encoder`.

    Parameters
    ----------
    path
        A fair-esm ESM-2 checkpoint (``.pt``), a DNABERT-S folder with config.json, tokenizer.json
        and model.safetensors or pytorch_model.bin, or a Hugging Face folder of ESM-2 or of another
        ESM, T5 or BERT model with safetensors.

    Raises
    ------
    BundleError
        If `path` is not such a file or folder, or is damaged.
    """
    if not path.exists():
        raise BundleError(f"{path}: does not exist. Check the encoder's path.")
    for architecture in sorted(name for name, config in _CONFIGS.items() if config.with_torch):
        spec: EncoderSpec | None = _module(architecture).recognise(path)
        if spec is not None:
            return spec
    raise BundleError(
        f"{path}: contains no known encoder. Give a fair-esm ESM-2 checkpoint (esm2_*.pt), a "
        f"DNABERT-S folder with {FILES}, or a Hugging Face folder of an ESM, T5 or BERT model with "
        "config.json and model.safetensors."
    )


def _module(architecture: str) -> Any:  # noqa: ANN401 - a module has no type that lists its functions
    return import_module(f"virnucpro.encoders.{architecture}.encoder")
