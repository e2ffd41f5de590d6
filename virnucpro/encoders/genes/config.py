"""Settings of the encoder of genes."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from virnucpro.encoders.base import View
from virnucpro.encoders.config import EncoderConfig
from virnucpro.encoders.genes.genes import GC_CLASSES
from virnucpro.encoders.genes.inputs import FACTS, N_INPUTS, WIDTH
from virnucpro.encoders.pooling import TokenLayout
from virnucpro.encoders.weights.shapes import Shapes, require_shapes
from virnucpro.errors import BundleError

FEATURES_VERSION: Final = 1
"""Version of the evidence; it changes with its number, order or definition."""


@dataclass(frozen=True, slots=True)
class GenesConfig(EncoderConfig):
    """Version of the evidence."""

    architecture: ClassVar[str] = "genes"
    view: ClassVar[View] = "nucleotide"
    batch_tokens: ClassVar[int] = 1 << 19
    with_torch: ClassVar[bool] = False

    features: int

    def check(self, source: Path) -> None:
        """Raise BundleError if the evidence has another version."""
        if self.features != FEATURES_VERSION:
            raise BundleError(
                f"{source}: has version {self.features} of the evidence of genes; this version of "
                f"virnucpro computes version {FEATURES_VERSION}. Use a version of virnucpro that "
                "computes it, or another bundle."
            )

    @property
    def dim(self) -> int:
        """Number of values in an output vector: inputs of the record head, then facts."""
        return N_INPUTS + len(FACTS)

    @property
    def layout(self) -> TokenLayout:
        """The encoder has no layers."""
        return TokenLayout(0)

    def tensor_shapes(self) -> Shapes:
        """Return the shapes of all tensors but the words, ``keys`` and ``values``."""
        return {"scores": (GC_CLASSES, 128), "means": (WIDTH,)}

    def require_weights(self, found: Shapes, source: Path) -> None:
        """Compare the tensor shapes `found` in the file `source` with these settings.

        Raises
        ------
        BundleError
            If a tensor is missing, unknown, or of another shape, or there is no known word.
        """
        n_words = max(1, *found.get("keys", (0,)))
        words: Shapes = {"keys": (n_words,), "values": (n_words,)}
        require_shapes(self.tensor_shapes() | words, found, source)
