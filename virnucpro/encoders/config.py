"""Settings of a model: what they say without its weights, and how they are read and checked.

Free of torch, as every architecture's own settings are.
"""

import sys
from collections.abc import Mapping
from dataclasses import Field
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

from virnucpro.encoders.base import View
from virnucpro.encoders.shapes import Shapes
from virnucpro.encoders.work import Work
from virnucpro.errors import BundleError

__all__ = ["EncoderConfig", "flag", "positive_integer", "positive_number"]


class EncoderConfig(Protocol):
    """The settings of an architecture's encoders: a dataclass whose fields a spec's config holds.

    Attributes
    ----------
    architecture
        Its key in the registry, and the name of its module.
    view
        What its encoders read.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    architecture: ClassVar[str]
    view: ClassVar[View]

    @classmethod
    def read(cls, settings: Mapping[str, object], source: Path) -> Self:
        """Check settings that came out of `source`.

        Raises
        ------
        BundleError
            When one is missing or wrong; the message names `source`.
        """

    @property
    def dim(self) -> int:
        """Length of a vector."""

    @property
    def n_layers(self) -> int:
        """How many layers there are."""

    def tensor_shapes(self) -> Shapes:
        """Give name and shape of all weights that a bundle's file must have."""

    def require_weights(self, found: Shapes, source: Path) -> None:
        """Hold the shapes of the tensors in `source` against these settings.

        Raises
        ------
        BundleError
            When a tensor that is needed is missing or has another shape, or when there are some
            that no part of the model takes.
        """

    def work(self) -> Work:
        """Say what an encoder multiplies."""


def _setting(config: Mapping[str, object], key: str, source: Path) -> object:
    if key not in config:
        raise BundleError(
            f"{source}: the encoder's settings lack {key!r}; they hold "
            f"{', '.join(sorted(config)) or 'nothing'}. Is this the right architecture?"
        )
    return config[key]


def _refuse(key: str, value: object, wanted: str, source: Path) -> BundleError:
    return BundleError(
        f"{source}: the encoder's setting {key!r} is {value!r}, which is not {wanted}. "
        "Get the encoder's files again."
    )


def positive_integer(config: Mapping[str, object], key: str, source: Path) -> int:
    """Read a whole number of at least 1.

    Raises
    ------
    BundleError
        When it is not there or is something else; the message names `source`.
    """
    value = _setting(config, key, source)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _refuse(key, value, "a positive whole number", source)
    return value


def positive_number(config: Mapping[str, object], key: str, source: Path) -> float:
    """Read a finite number above 0.

    Raises
    ------
    BundleError
        When it is not there or is something else; the message names `source`.
    """
    value = _setting(config, key, source)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refuse(key, value, "a positive number", source)
    if not 0 < value <= sys.float_info.max:
        raise _refuse(key, value, "a positive number", source)
    return float(value)


def flag(config: Mapping[str, object], key: str, source: Path) -> bool:
    """Read true or false.

    Raises
    ------
    BundleError
        When it is not there or is something else; the message names `source`.
    """
    value = _setting(config, key, source)
    if not isinstance(value, bool):
        raise _refuse(key, value, "true or false", source)
    return value
