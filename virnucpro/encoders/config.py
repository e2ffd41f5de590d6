"""Interface of a model's settings, and a function that reads them. Does not import torch."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, Self, TypeVar

from virnucpro.encoders.base import View
from virnucpro.encoders.pooling import TokenLayout
from virnucpro.encoders.weights.shapes import Shapes
from virnucpro.errors import BundleError

__all__ = ["EncoderConfig", "read_fields"]

Config = TypeVar("Config", bound="EncoderConfig")


class EncoderConfig(Protocol):
    """Interface of a dataclass with the settings of an architecture (`EncoderSpec.config`).

    Attributes
    ----------
    architecture
        Key in the registry, and name of the folder below ``virnucpro/encoders``.
    batch_tokens
        Token budget of a batch on any device; 0 for the budget of the device.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    architecture: ClassVar[str]
    batch_tokens: ClassVar[int]

    @classmethod
    def read(cls, settings: Mapping[str, object], source: Path) -> Self:
        """Check settings that were read from the file `source`; return them as a dataclass.

        Raises
        ------
        BundleError
            If a setting is missing or invalid; the message names `source`.
        """

    @property
    def view(self) -> View:
        """Kind of sequence that the encoder reads."""

    @property
    def dim(self) -> int:
        """Number of values in a vector of one layer."""

    @property
    def layout(self) -> TokenLayout:
        """Layers and special tokens."""

    def tensor_shapes(self) -> Shapes:
        """Return the shape of each tensor of a bundle's weights file, by tensor name."""

    def require_weights(self, found: Shapes, source: Path) -> None:
        """Compare the tensor shapes `found` in the file `source` with these settings.

        Raises
        ------
        BundleError
            If a tensor is missing, unknown, or of another shape.
        """


_VALID: Final[Mapping[object, tuple[str, Callable[[Any], bool]]]] = {
    int: ("a positive whole number", lambda value: type(value) is int and value > 0),
    float: (
        "a positive number",
        lambda value: type(value) in (int, float) and 0 < value <= sys.float_info.max,
    ),
    bool: ("true or false", lambda value: type(value) is bool),
}
"""Description and check of a setting, by the type of its field."""


def read_fields(cls: type[Config], settings: Mapping[str, object], source: Path) -> Config:
    """Return the dataclass `cls` filled with `settings`; settings without a field are ignored.

    Raises
    ------
    BundleError
        If a setting is missing or invalid; the message names `source`.
    """
    for field in fields(cls):
        if field.name not in settings:
            raise BundleError(
                f"{source}: the encoder's settings lack {field.name!r}; they contain "
                f"{', '.join(sorted(settings)) or 'nothing'}. Give the settings of this encoder."
            )
        (wanted, is_valid), value = _VALID[field.type], settings[field.name]
        if not is_valid(value):
            raise BundleError(
                f"{source}: the encoder's setting {field.name!r} is {value!r}, not {wanted}. "
                "Get the encoder's files again."
            )
    return cls(**{field.name: settings[field.name] for field in fields(cls)})
