"""Settings of the composition encoder, which has no weights."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from virnucpro.encoders.base import View
from virnucpro.encoders.composition.features import DIM
from virnucpro.encoders.config import EncoderConfig
from virnucpro.encoders.pooling import TokenLayout
from virnucpro.encoders.weights.shapes import Shapes
from virnucpro.errors import BundleError, UsageError
from virnucpro.sequences.translation import genetic_code

FEATURES_VERSION: Final = 1
"""Version of the features; it changes with their number, order or definition."""


_LONGEST: Final = 16_000_000
"""Bases of the longest window: places in it have 24 bits."""


@dataclass(frozen=True, slots=True)
class LettersConfig(EncoderConfig):
    """Settings of an encoder that counts letters: their version. It has no layers.

    Attributes
    ----------
    counted, version
        What the encoder computes, and the version that this program computes.
    """

    view: ClassVar[View] = "nucleotide"
    with_torch: ClassVar[bool] = False
    counted: ClassVar[str]
    version: ClassVar[int]

    features: int

    def check(self, source: Path) -> None:
        """Raise BundleError if the features have another version."""
        if self.features != self.version:
            raise BundleError(
                f"{source}: has version {self.features} of the {self.counted}; this version of "
                f"virnucpro computes version {self.version}. Use a version of virnucpro that "
                "computes the other one, or another bundle."
            )

    @property
    def layout(self) -> TokenLayout:
        """The encoder has no layers."""
        return TokenLayout(0, longest=_LONGEST)


@dataclass(frozen=True, slots=True)
class CompositionConfig(LettersConfig):
    """Version of the features, and NCBI's number of the genetic code for codons and stops."""

    architecture: ClassVar[str] = "composition"
    batch_tokens: ClassVar[int] = 1 << 18
    counted: ClassVar[str] = "composition features"
    version: ClassVar[int] = FEATURES_VERSION

    genetic_code: int

    def check(self, source: Path) -> None:
        """Raise BundleError if the features have another version or the genetic code is unknown."""
        LettersConfig.check(self, source)
        try:
            genetic_code(self.genetic_code)
        except UsageError as error:
            raise BundleError(f"{source}: {error}. Get the bundle again.") from error

    @property
    def dim(self) -> int:
        """Number of values in an output vector."""
        return DIM

    def tensor_shapes(self) -> Shapes:
        """Return an empty dict: the encoder has no weights."""
        return {}
