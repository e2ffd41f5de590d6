"""The FASTA file with all windows that a training needs, and their order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress
from pathlib import Path

import numpy as np
from h5py import Dataset

from virnucpro.arrays import BoolArray, Float32Array, IntArray
from virnucpro.classifier.quality import is_complex
from virnucpro.durable import write_file
from virnucpro.errors import InputError
from virnucpro.lab.training.calibration import LengthClass, length_classes
from virnucpro.lab.training.cross_validation import Pieces
from virnucpro.lab.training.draw import (
    CROPS,
    READ_ERRORS,
    WINDOW,
    Crops,
    Drawn,
    PieceKind,
    draw_crops,
    draw_pieces,
    with_errors,
)
from virnucpro.lab.training.genomes import Genome
from virnucpro.sequences.windows import tile


@dataclass(frozen=True, slots=True)
class Part:
    """Rows `start` to `stop` of features in memory or in a file."""

    features: Float32Array | Dataset
    start: int
    stop: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of rows and of features."""
        return self.stop - self.start, int(self.features.shape[1])

    def __getitem__(self, rows: slice) -> Float32Array:
        """Return a block of rows."""
        stop = min(self.start + rows.stop, self.stop)
        block: Float32Array = self.features[self.start + rows.start : stop]
        return block


_SHORT, _LONG = 2.5, 20
"""Limits of the numbers below, in windows."""
_PIECES = (20, 300, 1200)
"""Short pieces for the cross-validation: per virus group, per kingdom of others, of bacteria, whose
false calls decide the precision in a metagenome."""
_RECORDS = (14, 120, 900)
"""The same for longer pieces."""
_LONG_RECORDS = (5, 60, 300)
"""The same for the longest pieces."""


@dataclass(frozen=True, slots=True)
class Tiled:
    """Pieces of one length: piece i has the windows ``first[i]:first[i + 1]``."""

    pieces: Drawn
    windows: list[bytes]
    first: IntArray

    @classmethod
    def of(cls, pieces: Drawn, window: int) -> "Tiled":
        """Divide pieces into windows by the `even` tiling."""
        windows: list[bytes] = []
        first = [0]
        for piece in pieces.bases:
            starts, ends = tile(len(piece), window, "even")
            windows += [piece[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
            first.append(len(windows))
        return cls(pieces, windows, np.array(first))

    def select(self, chosen: BoolArray) -> "Tiled":
        """Return the pieces that have a chosen window, with their chosen windows."""
        counts = np.add.reduceat(chosen, self.first[:-1], dtype=np.int64)
        first = np.concatenate(([0], np.cumsum(counts[counts > 0])))
        return Tiled(self.pieces.select(counts > 0), list(compress(self.windows, chosen)), first)


@dataclass(frozen=True, slots=True)
class TrainingWindows:
    """Crops for training, then pieces of each length for the cross-validation.

    Attributes
    ----------
    crops
        The training windows.
    tiled
        Pieces, their windows and bounds, by kind.
    classes
        Classes of records that can have a calibration; they have the lengths of the pieces.
    """

    crops: Drawn
    tiled: Mapping[PieceKind, Tiled]
    classes: tuple[LengthClass, ...]

    def gc_range(self) -> list[float]:
        """Return the 1st and 99th percentile of the GC content of the training windows."""
        shares = [
            (crop.count(b"G") + crop.count(b"C"))
            / max(1, sum(map(crop.count, (b"A", b"C", b"G", b"T"))))
            for crop in self.crops.bases
        ]
        return [round(float(value), 4) for value in np.percentile(shares, [1, 99])]

    def without_bases(self) -> "TrainingWindows":
        """Return the windows without their bases; pieces keep theirs."""
        tiled = {kind: replace(of_kind, windows=[]) for kind, of_kind in self.tiled.items()}
        return replace(self, crops=replace(self.crops, bases=[]), tiled=tiled)

    def write(self, path: Path) -> None:
        """Write all windows as FASTA, atomically, in the order that `split` expects."""
        longer = (tiled.windows for tiled in self.tiled.values())
        with write_file(path) as stream:
            for number, window in enumerate(chain(self.crops.bases, *longer)):
                stream.write(b">%d\n%b\n" % (number, window))

    def split(self, features: Float32Array | Dataset) -> tuple[Part, dict[PieceKind, Pieces]]:
        """Divide the features of all windows, (n, dim), into those of crops and of pieces."""
        end = len(self.crops.genomes)
        crops, pieces = Part(features, 0, end), {}
        for kind, tiled in self.tiled.items():
            start, end = end, end + int(tiled.first[-1])
            pieces[kind] = Pieces(tiled.pieces.groups, Part(features, start, end), tiled.first)
        return crops, pieces

    def select(self, chosen: BoolArray) -> "TrainingWindows":
        """Return the windows for which `chosen` is True; ``(n,)``, in the order of `split`.

        Pieces without a chosen window are left out, and so are kinds without pieces of a class.

        Raises
        ------
        InputError
            If no window for training of a class, or no piece, is chosen.
        """
        end = len(self.crops.genomes)
        crops, tiled = self.crops.select(chosen[:end]), {}
        for kind, of_kind in self.tiled.items():
            start, end = end, end + int(of_kind.first[-1])
            kept = of_kind.select(chosen[start:end])
            if len(set(kept.pieces.viral.tolist())) == 2:
                tiled[kind] = kept
        if len(set(crops.viral.tolist())) < 2 or not tiled:
            raise InputError(
                "no window of a class has an item, such as a stop-free stretch of 30 codons. Give "
                "longer sequences or --lengths, or whole windows as --items."
            )
        return replace(self, crops=crops, tiled=tiled)


def draw_training_windows(
    genomes: Sequence[Genome],
    seed: int,
    crops: Crops = CROPS,
    window: int = WINDOW,
    *,
    errors: bool = False,
) -> TrainingWindows:
    """Draw the windows; the result depends on the arguments and the order of genomes alone.

    Parameters
    ----------
    crops
        Lengths of the windows for training.
    window
        Length of a window of longer pieces.
    errors
        Whether to add longer pieces with errors, for the calibration of records.
    """
    tiled = {}
    classes = length_classes(window)
    for length in (length_class.bases for length_class in classes):
        short, long = length <= _SHORT * window, length <= _LONG * window
        numbers = _PIECES if short else _RECORDS if long else _LONG_RECORDS
        per_virus_group, per_kingdom, of_bacteria = numbers
        drawn = draw_pieces(
            genomes, length, per_virus_group, per_kingdom, seed, of_bacteria=of_bacteria
        )
        # The rule of the calls abstains for repeats.
        drawn = drawn.select(np.array([*map(is_complex, drawn.bases)], np.bool_))
        if len(set(drawn.viral.tolist())) < 2:
            continue
        tiled[PieceKind(length)] = Tiled.of(drawn, window)
        if errors and not short:
            rng = np.random.default_rng([seed, length, 1])
            bases = [with_errors(piece, READ_ERRORS, rng) for piece in drawn.bases]
            tiled[PieceKind(length, errors=True)] = Tiled.of(replace(drawn, bases=bases), window)
    return TrainingWindows(draw_crops(genomes, seed, crops), tiled, classes)
