"""Settings of the encoder of genes."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from virnucpro.encoders.composition.config import LettersConfig
from virnucpro.encoders.genes.genes import GC_CLASSES
from virnucpro.encoders.genes.inputs import FACTS, N_INPUTS, WIDTH
from virnucpro.encoders.weights.shapes import Shapes, require_shapes

FEATURES_VERSION: Final = 2
"""Version of the evidence; it changes with its number, order or definition."""


@dataclass(frozen=True, slots=True)
class GenesConfig(LettersConfig):
    """Version of the evidence."""

    architecture: ClassVar[str] = "genes"
    batch_tokens: ClassVar[int] = 1 << 19
    counted: ClassVar[str] = "evidence of genes"
    version: ClassVar[int] = FEATURES_VERSION

    @property
    def dim(self) -> int:
        """Number of values in an output vector: inputs of the record head, then facts."""
        return N_INPUTS + len(FACTS)

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
