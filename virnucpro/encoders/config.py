"""Base class of a model's settings, and readers of settings. Does not import torch."""

import json
import string
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from virnucpro.encoders.base import EncoderSpec, View
from virnucpro.encoders.pooling import TokenLayout
from virnucpro.encoders.weights.shapes import Shapes, require_shapes
from virnucpro.errors import BundleError

_VALID: Final[Mapping[object, tuple[str, Callable[[Any], bool]]]] = {
    int: ("a positive whole number", lambda value: type(value) is int and value > 0),
    float: (
        "a positive number",
        lambda value: type(value) in (int, float) and 0 < value <= sys.float_info.max,
    ),
    bool: ("true or false", lambda value: type(value) is bool),
}
"""Description and check of a setting, by the type of its field."""


@dataclass(frozen=True, slots=True)
class EncoderConfig(ABC):
    """Settings of an architecture (`EncoderSpec.config`), which are the fields of a subclass.

    Attributes
    ----------
    architecture
        Key in the registry, and name of the folder below ``virnucpro/encoders``.
    batch_tokens
        Token budget of a batch on any device; 0 for the budget of the device.
    with_torch
        Whether torch runs the encoder; others run on the CPU in fp32.
    """

    architecture: ClassVar[str]
    batch_tokens: ClassVar[int] = 0
    with_torch: ClassVar[bool] = True

    @classmethod
    def read(cls, settings: Mapping[str, object], source: Path) -> Self:
        """Check settings that were read from the file `source`; return them as a dataclass.

        Settings without a field are ignored.

        Raises
        ------
        BundleError
            If a setting is missing or invalid; the message names `source`.
        """
        for field in fields(cls):
            if field.name not in settings:
                names = ", ".join(sorted(settings)) or "nothing"
                raise BundleError(
                    f"{source}: the encoder's settings lack {field.name!r}; they contain {names}. "
                    "Give the settings of this encoder."
                )
            (wanted, is_valid), value = _VALID[field.type], settings[field.name]
            if not is_valid(value):
                raise BundleError(
                    f"{source}: the encoder's setting {field.name!r} is {value!r}, not {wanted}. "
                    "Get the encoder's files again."
                )
        config = cls(**{field.name: settings[field.name] for field in fields(cls)})
        config.check(source)
        return config

    def check(self, source: Path) -> None:  # noqa: B027 - most settings are independent
        """Raise BundleError if valid settings do not fit together; the message names `source`."""

    def spec(self, name: str, folder: Path, files: Mapping[str, str]) -> EncoderSpec:
        """Return the spec of an encoder with these settings and default pooling."""
        settings = asdict(self)
        return EncoderSpec(name, self.architecture, self.view, self.dim, folder, files, settings)

    @property
    @abstractmethod
    def view(self) -> View:
        """Kind of sequence that the encoder reads."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Number of values in a vector of one layer."""

    @property
    @abstractmethod
    def layout(self) -> TokenLayout:
        """Layers and special tokens."""

    @abstractmethod
    def tensor_shapes(self) -> Shapes:
        """Return the shape of each tensor of a bundle's weights file, by tensor name."""

    def require_weights(self, found: Shapes, source: Path) -> None:
        """Compare the tensor shapes `found` in the file `source` with these settings.

        Raises
        ------
        BundleError
            If a tensor is missing, unknown, or of another shape.
        """
        require_shapes(self.tensor_shapes(), found, source)


MOST_TOKENIZER_BYTES: Final = 64 << 20
"""Maximum size of a file of a tokeniser; published ones have at most 20 MB."""


def letter_table(unknown: str, replaced: str = "") -> bytes:
    """Return a table of bytes: letters in upper case; `replaced` and other bytes as `unknown`.

    So no sequence can contain a special token.
    """
    upper = (chr(byte).upper() if chr(byte) in string.ascii_letters else "" for byte in range(256))
    return bytes(ord(letter if letter and letter not in replaced else unknown) for letter in upper)


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file that contains an object.

    Raises
    ------
    BundleError
        If the file cannot be read, or contains anything else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BundleError(
            f"{path}: cannot be read as JSON ({error}). Get the file again."
        ) from error
    if not isinstance(content, dict):
        raise BundleError(f"{path}: is not a JSON object. Get the file again.")
    return content
