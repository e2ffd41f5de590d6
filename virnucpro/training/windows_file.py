"""The FASTA file with all windows that a training needs, and their order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from virnucpro.classify.quality import is_complex
from virnucpro.durable import write_file
from virnucpro.training.cross_validation import Pieces
from virnucpro.training.draw import WINDOW, Drawn, draw_crops, draw_pieces, tile_pieces
from virnucpro.training.groups import Genome, Group
from virnucpro.training.platt import LENGTH_CLASSES

__all__ = ["TrainingWindows", "draw_training_windows"]

_SHORT, _LONG = 1_250, 10_000
_PIECES = (30, 400)
"""Pieces of up to 1,250 bases for the cross-validation: per virus group, per kingdom of others."""
_RECORDS = (20, 200)
"""The same for pieces of up to 10,000 bases."""
_LONG_RECORDS = (12, 120)
"""The same for pieces of more than 10,000 bases."""


@dataclass(frozen=True, slots=True)
class _Tiled:
    groups: list[Group]
    windows: list[bytes]
    first: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TrainingWindows:
    """Crops for training, then pieces of each length for the cross-validation.

    Attributes
    ----------
    crops
        The training windows.
    tiled
        Groups, windows and bounds of the pieces, by length in bases.
    """

    crops: Drawn
    tiled: Mapping[int, _Tiled]

    def write(self, path: Path) -> None:
        """Write all windows as FASTA, atomically, in the order that `split` expects."""
        with write_file(path) as stream:
            for number, window in enumerate(self._all()):
                stream.write(b">%d\n%b\n" % (number, window))

    def split(self, features: NDArray[np.float32]) -> tuple[NDArray[np.float32], dict[int, Pieces]]:
        """Divide the features of all windows, (n, dim), into those of crops and of pieces."""
        end = len(self.crops.bases)
        crops, pieces = features[:end], {}
        for length, one in self.tiled.items():
            start, end = end, end + len(one.windows)
            pieces[length] = Pieces(one.groups, features[start:end], one.first)
        return crops, pieces

    def _all(self) -> Sequence[bytes]:
        return [*self.crops.bases, *(w for one in self.tiled.values() for w in one.windows)]


def draw_training_windows(genomes: Sequence[Genome], seed: int) -> TrainingWindows:
    """Draw the windows; the result depends on the genomes, their order and the seed alone."""
    tiled = {}
    for length in (one.bases for one in LENGTH_CLASSES):
        numbers = _PIECES if length <= _SHORT else _RECORDS if length <= _LONG else _LONG_RECORDS
        drawn = _callable(draw_pieces(genomes, length, *numbers, seed))
        if len(set(drawn.viral.tolist())) < 2:
            continue
        if length <= WINDOW:
            first = np.arange(len(drawn.bases) + 1)
            tiled[length] = _Tiled(drawn.groups, drawn.bases, first)
        else:
            tiles = tile_pieces(drawn.bases)
            tiled[length] = _Tiled(drawn.groups, tiles.windows, tiles.first)
    return TrainingWindows(draw_crops(genomes, seed), tiled)


def _callable(drawn: Drawn) -> Drawn:
    """Return the pieces that can be called; the rule of the calls abstains for repeats."""
    kept = [row for row, bases in enumerate(drawn.bases) if is_complex(bases)]
    return Drawn(
        [drawn.bases[row] for row in kept],
        [drawn.groups[row] for row in kept],
        [drawn.sources[row] for row in kept],
    )
