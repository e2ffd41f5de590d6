"""The composition encoder: features of whole windows, computed by NumPy on the CPU."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from virnucpro.arrays import Float32Array, IntegerArray
from virnucpro.encoders.base import Encoder, EncoderSpec
from virnucpro.encoders.composition.config import CompositionConfig
from virnucpro.encoders.composition.features import features
from virnucpro.sequences.translation import GeneticCode, genetic_code


@dataclass(frozen=True, slots=True)
class LettersEncoder(Encoder):
    """An encoder that reads letters; its tokeniser is `letters_of`."""

    def collate(self, batch: Sequence[IntegerArray]) -> list[bytes]:
        """Return the letters of each sequence."""
        return [ids.tobytes() for ids in batch]


@dataclass(frozen=True, slots=True)
class CompositionEncoder(LettersEncoder):
    """Computes the features of each sequence of a batch."""

    code: GeneticCode

    def start(self, batch: list[bytes]) -> Callable[[], Float32Array]:
        """Return a function that returns the features, (n, dim) float32."""
        found = features(batch, self.code)
        return lambda: found


def load(spec: EncoderSpec, config: CompositionConfig, *_: str) -> CompositionEncoder:
    """Return the composition encoder; it runs on the CPU in fp32."""
    code = genetic_code(config.genetic_code)
    return CompositionEncoder(spec.name, config.dim, config.view, letters_of, code)


def letters_of(sequences: Sequence[bytes]) -> list[IntegerArray]:
    """Convert bases to token ids: the codes of the letters, uint8; case has no effect later."""
    return [np.frombuffer(sequence, np.uint8) for sequence in sequences]
