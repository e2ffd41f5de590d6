"""Registry of encoders. A new one is a folder with two files, and one line here.

The folder has the name of the architecture. ``config.py`` holds its settings, an `EncoderConfig`
free of torch. ``encoder.py`` holds ``load(spec, device, precision) -> Encoder`` and
``recognise(path) -> EncoderSpec | None``; it is imported on first use.
"""

from importlib import import_module
from pathlib import Path
from typing import Any, Final

from virnucpro.encoders.base import Encoder, EncoderSpec, Precision
from virnucpro.encoders.config import EncoderConfig
from virnucpro.encoders.dnabert_s.config import FILES, DnabertSConfig
from virnucpro.encoders.esm2.config import Esm2Config
from virnucpro.errors import BundleError

__all__ = ["architectures", "config_of", "load_encoder", "open_spec"]

_CONFIGS: Final[tuple[type[EncoderConfig], ...]] = (
    DnabertSConfig,
    Esm2Config,
)


def architectures() -> tuple[str, ...]:
    """List the names of all architectures."""
    return tuple(sorted(one.architecture for one in _CONFIGS))


def config_of(spec: EncoderSpec) -> EncoderConfig:
    """Read an encoder's settings; none of its files is opened.

    Raises
    ------
    BundleError
        When the architecture is unknown, or a setting is missing or wrong.
    """
    for one in _CONFIGS:
        if one.architecture == spec.architecture:
            return one.read(spec.config, spec.folder)
    raise BundleError(
        f"{spec.folder}: encoder {spec.name!r} is of the unknown architecture "
        f"{spec.architecture!r}; known are {', '.join(architectures())}. "
        "Use a version of virnucpro that knows it."
    )


def load_encoder(spec: EncoderSpec, device: str = "cpu", precision: Precision = "fp32") -> Encoder:
    """Open an encoder.

    Parameters
    ----------
    spec
        From a bundle or from `open_spec`.
    device
        torch's name of it, such as ``cpu`` or ``cuda:0``.
    precision
        Type of the weights and of the arithmetic; vectors are float32 always.

    Raises
    ------
    BundleError
        When the architecture is unknown, a file is missing or damaged, or what is loaded is not
        what the spec says.
    DeviceError
        When there is no such device.
    UsageError
        When there is no such precision.
    """
    architecture = config_of(spec).architecture
    encoder: Encoder = _module(architecture).load(spec, device, precision)
    if (encoder.dim, encoder.view) != (spec.dim, spec.view):
        raise BundleError(
            f"{spec.folder}: encoder {spec.name!r} is said to give {spec.dim} numbers of the "
            f"{spec.view} view; its files give {encoder.dim} of the {encoder.view} view. "
            "Get the bundle again."
        )
    return encoder


def open_spec(path: Path) -> EncoderSpec:
    """Recognise published weights by what they are.

    Parameters
    ----------
    path
        A fair-esm ESM-2 checkpoint (``.pt``), or a DNABERT-S folder with config.json,
        tokenizer.json and model.safetensors or pytorch_model.bin.

    Raises
    ------
    BundleError
        When it is neither, or is damaged.
    """
    if not path.exists():
        raise BundleError(f"{path}: there is no such file or folder. Check the encoder's path.")
    for architecture in architectures():
        spec: EncoderSpec | None = _module(architecture).recognise(path)
        if spec is not None:
            return spec
    raise BundleError(
        f"{path}: holds no encoder that is known here. Give a fair-esm ESM-2 checkpoint "
        f"(esm2_*.pt), or a DNABERT-S folder with {FILES}."
    )


def _module(architecture: str) -> Any:  # noqa: ANN401 - modules have no type that names their functions
    return import_module(f"virnucpro.encoders.{architecture}.encoder")
