"""The FASTA file with all windows that a training needs, and their order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from virnucpro.classifier.quality import is_complex
from virnucpro.durable import write_file
from virnucpro.errors import InputError
from virnucpro.training.cross_validation import Pieces
from virnucpro.training.draw import (
    CROPS,
    WINDOW,
    Crops,
    Drawn,
    draw_crops,
    draw_pieces,
    tile_pieces,
)
from virnucpro.training.groups import VIRUS, Genome, Group
from virnucpro.training.platt import LengthClass, length_classes

__all__ = ["TrainingWindows", "draw_training_windows"]

_SHORT, _LONG = 2.5, 20
"""Limits of the numbers below, in windows."""
_PIECES = (30, 400)
"""Short pieces for the cross-validation: per virus group, per kingdom of others."""
_RECORDS = (20, 200)
"""The same for longer pieces."""
_LONG_RECORDS = (12, 120)
"""The same for the longest pieces."""


@dataclass(frozen=True, slots=True)
class _Tiled:
    groups: list[Group]
    windows: list[bytes]
    first: NDArray[np.int64]

    def select(self, chosen: NDArray[np.bool_]) -> "_Tiled":
        """Return the pieces that have a chosen window, with their chosen windows."""
        counts = np.add.reduceat(chosen, self.first[:-1], dtype=np.int64)
        groups = list(compress(self.groups, counts))
        first = np.concatenate(([0], np.cumsum(counts[counts > 0])))
        return _Tiled(groups, list(compress(self.windows, chosen)), first)


@dataclass(frozen=True, slots=True)
class TrainingWindows:
    """Crops for training, then pieces of each length for the cross-validation.

    Attributes
    ----------
    crops
        The training windows.
    tiled
        Groups, windows and bounds of the pieces, by length in bases.
    classes
        Classes of records that can have a calibration; they have the lengths of the pieces.
    """

    crops: Drawn
    tiled: Mapping[int, _Tiled]
    classes: tuple[LengthClass, ...]

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

    def select(self, chosen: NDArray[np.bool_]) -> "TrainingWindows":
        """Return the windows for which `chosen` is True; ``(n,)``, in the order of `split`.

        Pieces without a chosen window are left out, and so are lengths without pieces of a class.

        Raises
        ------
        InputError
            If no window for training of a class, or no piece, is chosen.
        """
        end = len(self.crops.bases)
        crops, tiled = self.crops.select(chosen[:end]), {}
        for length, one in self.tiled.items():
            start, end = end, end + len(one.windows)
            kept = one.select(chosen[start:end])
            if len({kingdom == VIRUS for kingdom, _ in kept.groups}) == 2:
                tiled[length] = kept
        if len(set(crops.viral.tolist())) < 2 or not tiled:
            raise InputError(
                "no window of a class has an item, such as a stop-free stretch of 30 codons. Give "
                "longer sequences or --lengths, or whole windows as --items."
            )
        return replace(self, crops=crops, tiled=tiled)

    def _all(self) -> Sequence[bytes]:
        return [*self.crops.bases, *(w for one in self.tiled.values() for w in one.windows)]


def draw_training_windows(
    genomes: Sequence[Genome], seed: int, crops: Crops = CROPS, window: int = WINDOW
) -> TrainingWindows:
    """Draw the windows; the result depends on the arguments and the order of genomes alone.

    Parameters
    ----------
    crops
        Lengths of the windows for training.
    window
        Length of a window of longer pieces.
    """
    tiled = {}
    classes = length_classes(window)
    for length in (one.bases for one in classes):
        short, long = length <= _SHORT * window, length <= _LONG * window
        numbers = _PIECES if short else _RECORDS if long else _LONG_RECORDS
        drawn = _callable(draw_pieces(genomes, length, *numbers, seed))
        if len(set(drawn.viral.tolist())) < 2:
            continue
        if length <= window:
            first = np.arange(len(drawn.bases) + 1)
            tiled[length] = _Tiled(drawn.groups, drawn.bases, first)
        else:
            tiles = tile_pieces(drawn.bases, window)
            tiled[length] = _Tiled(drawn.groups, tiles.windows, tiles.first)
    return TrainingWindows(draw_crops(genomes, seed, crops), tiled, classes)


def _callable(drawn: Drawn) -> Drawn:
    """Return the pieces that can be called; the rule of the calls abstains for repeats."""
    kept = [row for row, bases in enumerate(drawn.bases) if is_complex(bases)]
    return Drawn(
        [drawn.bases[row] for row in kept],
        [drawn.groups[row] for row in kept],
        [drawn.sources[row] for row in kept],
    )
