"""Settings of an encoder of another package, and its entry point. Does not import torch."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Final, Self

from virnucpro.console import described
from virnucpro.encoders.base import View
from virnucpro.encoders.config import EncoderConfig
from virnucpro.encoders.plugin.interface import EncoderPlugin
from virnucpro.encoders.pooling import TokenLayout
from virnucpro.encoders.weights.shapes import Shapes
from virnucpro.errors import BundleError, UsageError
from virnucpro.extras import entry_points

_GROUP: Final = "virnucpro.encoders"

ADVICE: Final = "Correct the package, or install another version of it."


@dataclass(frozen=True, slots=True)
class PluginConfig(EncoderConfig):
    """Attributes of an `EncoderPlugin`, and its package.

    Attributes
    ----------
    name, package
        Name of the entry point; name and version of its package.
    alphabet, width, max_tokens, n_weights
        As in `EncoderPlugin`, where `width` is `dim`.
    settings
        The settings of the plugin as JSON.
    """

    architecture: ClassVar[str] = "plugin"
    with_torch: ClassVar[bool] = False

    name: str
    package: str
    alphabet: View
    width: int
    max_tokens: int
    n_weights: int
    settings: str

    @classmethod
    def read(cls, settings: Mapping[str, object], source: Path) -> Self:
        """Return the settings as a dataclass after checks; messages begin with `source`.

        Raises
        ------
        BundleError
            If a setting is missing or invalid.
        """
        values: dict[str, Any] = {field.name: settings.get(field.name) for field in fields(cls)}
        numbers = [values[name] for name in ("width", "max_tokens", "n_weights")]
        whole = all(type(n) is int and n >= 0 for n in numbers) and values["width"] > 0
        if not whole or values["alphabet"] not in {"nucleotide", "protein"}:
            raise BundleError(
                f"{source}: alphabet {values['alphabet']!r}, dim, max_tokens, n_weights {numbers}: "
                "the alphabet must be nucleotide or protein, the others whole numbers of at least "
                f"0, and dim of at least 1. {ADVICE}"
            )
        return cls(**values)

    @property
    def title(self) -> str:
        """Name, package and version, for messages."""
        return f"{self.name} of {self.package}"

    @property
    def fingerprint(self) -> str:
        """What a resume compares, as text: its refusal shows the differences."""
        return f"{self.package} {json.dumps(asdict(self))}"

    @property
    def view(self) -> View:
        """Kind of sequence that the encoder reads."""
        return self.alphabet

    @property
    def dim(self) -> int:
        """Number of values in a vector."""
        return self.width

    @property
    def layout(self) -> TokenLayout:
        """The limit of tokens; layers and special tokens are the encoder's own matter."""
        return TokenLayout(0, longest=self.max_tokens)

    def tensor_shapes(self) -> Shapes:
        """Return one shape with the number of weights, from which memory is estimated."""
        return {"weights": (self.n_weights,)} if self.n_weights else {}

    def require_weights(self, found: Shapes, source: Path) -> None:  # noqa: ARG002 - see below
        """Raise BundleError: a bundle cannot contain an encoder of another package.

        Raises
        ------
        BundleError
            Always.
        """
        raise BundleError(f"{source}: a bundle cannot contain {self.title}. Get another bundle.")


def plugin_names() -> tuple[str, ...]:
    """Return the names of all encoders of other packages, without importing a package."""
    return tuple(sorted({point.name for point in entry_points(_GROUP)}))


def open_plugin(name: str) -> tuple[PluginConfig, EncoderPlugin] | None:
    """Import the encoder with this name from another package; None if no package has it.

    Raises
    ------
    UsageError
        If several packages have an encoder with this name.
    BundleError
        If the encoder cannot be imported, or one of its attributes is invalid.
    """
    found = [point for point in entry_points(_GROUP) if point.name == name]
    owners = [f"{point.dist.name} {point.dist.version}" for point in found if point.dist]
    if len(found) > 1:
        raise UsageError(
            f"encoder {name!r} is in several packages: {', '.join(sorted(owners))}. Uninstall all "
            "but one of them."
        )
    if not found:
        return None
    source = Path(f"encoder {name} of {owners[0]}")
    try:
        plugin = found[0].load()()
        attributes = _attributes(plugin)
    except Exception as error:
        raise BundleError(f"{source}: cannot be loaded ({described(error)}). {ADVICE}") from error
    return PluginConfig.read({"name": name, "package": owners[0], **attributes}, source), plugin


def _attributes(plugin: object) -> dict[str, object]:
    if not isinstance(plugin, EncoderPlugin):
        raise TypeError(f"{type(plugin).__name__} is not a subclass of EncoderPlugin")
    return {
        "alphabet": plugin.alphabet,
        "width": plugin.dim,
        "max_tokens": plugin.max_tokens,
        "n_weights": plugin.n_weights,
        "settings": json.dumps(dict(plugin.settings), sort_keys=True),
    }
