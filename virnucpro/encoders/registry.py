"""Which encoders there are. A new one is one file and one line here.

The file has ``load(spec, device, precision) -> Encoder`` and ``recognise(path) -> EncoderSpec |
None``. Nothing is imported before it is asked for: this module stays free of torch.
"""

from importlib import import_module
from pathlib import Path
from typing import Any, Final

from virnucpro.encoders.base import Encoder, EncoderSpec, Precision
from virnucpro.errors import BundleError

__all__ = ["EncoderSpec", "Precision", "architectures", "load_encoder", "open_spec"]

_MODULES: Final = {
    "dnabert_s": "virnucpro.encoders.dnabert_s",
    "esm2": "virnucpro.encoders.esm2",
}


def architectures() -> tuple[str, ...]:
    """List the names of all architectures."""
    return tuple(sorted(_MODULES))


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
    encoder: Encoder = _module(spec).load(spec, device, precision)
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
    for name in _MODULES.values():
        spec: EncoderSpec | None = import_module(name).recognise(path)
        if spec is not None:
            return spec
    raise BundleError(
        f"{path}: holds no encoder that is known here. Give a fair-esm ESM-2 checkpoint "
        "(esm2_*.pt), or a DNABERT-S folder with config.json, tokenizer.json and model.safetensors "
        "or pytorch_model.bin."
    )


def _module(spec: EncoderSpec) -> Any:  # noqa: ANN401 - modules have no type that names their functions
    if spec.architecture not in _MODULES:
        raise BundleError(
            f"{spec.folder}: encoder {spec.name!r} is of the unknown architecture "
            f"{spec.architecture!r}; known are {', '.join(architectures())}. "
            "Use a version of virnucpro that knows it."
        )
    return import_module(_MODULES[spec.architecture])
