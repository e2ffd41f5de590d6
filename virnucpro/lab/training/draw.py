"""Windows and records drawn from genomes at random.

Genomes of a group are drawn in proportion to the root of their length, whatever the number of
their records. So a transcriptome of a thousand records counts as one genome.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple

import numpy as np

from virnucpro.arrays import BoolArray, IntArray
from virnucpro.lab.training.genomes import VIRUS, Genome, Group, are_viral, by_group

WINDOW = 500
"""Default length in bases of the windows of a record."""

_CROPS_A_GROUP = (240, 10_000)
_CROPS_A_ROOT_BASE = 4.4
_MOST_CROPS = 500_000
"""Maximum number of windows; the groups of larger training sets have proportionally fewer."""
_MOST_BASES = 400_000
"""Maximum bases of a genome that count for its group's number of crops."""

_WITH_ERRORS = 1 / 3
_MOST_ERRORS = 0.06
READ_ERRORS = 0.05
"""Rate of errors of pieces for the calibration of long reads."""
_KINDS = (0.4, 0.35)
"""Shares of substitutions and deletions; the other errors are insertions."""

_MOST_UNKNOWN = 0.1
"""Pieces with a larger share of letters other than A, C, G, T are not drawn."""
_ATTEMPTS = 20

_BASES = np.frombuffer(b"ACGT", dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Crops:
    """Lengths and number of the windows for training.

    Attributes
    ----------
    lengths
        Shortest and longest in bases; lengths are log-uniform.
    share
        Share of the usual number of windows.
    """

    lengths: tuple[int, int]
    share: float = 1.0

    def draw(self, rng: np.random.Generator) -> int:
        """Return a random length."""
        return int(np.exp(rng.uniform(*np.log(self.lengths))))


CROPS = Crops((150, 1000))
"""Default lengths of the windows for training."""

LANGUAGE_MODEL_SHARE = 0.25
"""Share of the windows for training that language models encode: a window takes them a thousand
times as long as composition.
"""


class PieceKind(NamedTuple):
    """Pieces for evaluation of one length in bases; those with `errors` have `READ_ERRORS`."""

    bases: int
    errors: bool = False


@dataclass(frozen=True, slots=True)
class Drawn:
    """Pieces of genomes.

    Attributes
    ----------
    bases
        n sequences; empty if they are not needed any more.
    genomes
        Genome of each sequence.
    """

    bases: list[bytes]
    genomes: list[Genome]

    @property
    def groups(self) -> list[Group]:
        """Group of each sequence."""
        return [genome.key for genome in self.genomes]

    @property
    def sources(self) -> list[str]:
        """Class of each sequence."""
        return [genome.source for genome in self.genomes]

    def folds(self, scheme: int) -> IntArray:
        """Return the fold of each sequence, ``(n,)``; see `Genome.folds`."""
        return np.array([genome.folds[scheme] for genome in self.genomes], np.int64)

    @property
    def viral(self) -> BoolArray:
        """(n,) bool."""
        return are_viral(self.groups)

    def select(self, chosen: BoolArray) -> "Drawn":
        """Return the pieces for which `chosen`, ``(n,)``, is True."""
        return Drawn(list(compress(self.bases, chosen)), list(compress(self.genomes, chosen)))


def draw_crops(genomes: Sequence[Genome], seed: int, crops: Crops = CROPS) -> Drawn:
    """Draw windows for training, a third of them with errors of sequencing.

    The number of a group's windows is proportional to the root of its bases, within limits.
    """
    rng = np.random.default_rng([seed, 1])
    drawn = Drawn([], [])
    groups = list(by_group(genomes).values())
    roots = [_CROPS_A_ROOT_BASE * counted_bases(members) ** 0.5 for members in groups]
    counts = np.clip(roots, *_CROPS_A_GROUP)
    counts *= crops.share * min(1, _MOST_CROPS / counts.sum())
    for members, count in zip(groups, counts.tolist(), strict=True):
        source = _Source(members, crops.lengths[0])
        for _ in range(int(count)):
            length = crops.draw(rng)
            source.draw(length, rng, drawn, errors=True)
    return drawn


def counted_bases(members: Sequence[Genome]) -> int:
    """Return the bases of a group's genomes that count for the number of its pieces."""
    return sum(min(genome.bases, _MOST_BASES) for genome in members)


def draw_pieces(
    genomes: Sequence[Genome],
    length: int,
    per_virus_group: int,
    per_kingdom: int,
    seed: int,
    *,
    of_bacteria: int | None = None,
) -> Drawn:
    """Draw pieces for evaluation: equally many of each virus group, and of each kingdom.

    A group of others has no more pieces than its sequences have without an overlap.

    Parameters
    ----------
    of_bacteria
        Pieces of bacteria, if not `per_kingdom`.
    """
    rng = np.random.default_rng([seed, length])
    groups = by_group(genomes)
    sizes = Counter(kingdom for kingdom, _ in groups)
    drawn = Drawn([], [])
    for (kingdom, _), members in groups.items():
        wanted = per_kingdom if of_bacteria is None or kingdom != "bacteria" else of_bacteria
        source = _Source(members, length)
        per_group = min(-(-wanted // sizes[kingdom]), source.n_apart)
        for _ in range(per_virus_group if kingdom == VIRUS else per_group):
            source.draw(length, rng, drawn, errors=False)
    return drawn


class _Source:
    """The sequences of a group; `n_apart` pieces of them do not overlap."""

    def __init__(self, members: Sequence[Genome], length: int) -> None:
        self._choices: list[tuple[Genome, bytes]] = []
        shares: list[float] = []
        for genome in members:
            long = [sequence for sequence in genome.sequences if len(sequence) >= length]
            total = sum(map(len, long))
            self._choices += [(genome, sequence) for sequence in long]
            shares += [len(sequence) / total * total**0.5 for sequence in long]
        self.n_apart = sum(len(sequence) // length for _, sequence in self._choices)
        self._sums = np.cumsum(shares) / max(sum(shares), 1.0)

    def draw(self, length: int, rng: np.random.Generator, drawn: Drawn, *, errors: bool) -> None:
        """Append a piece to `drawn`, or nothing if there is none of this length."""
        for _ in range(_ATTEMPTS if self._choices else 0):
            choice = int(np.searchsorted(self._sums, rng.random()))
            genome, sequence = self._choices[min(choice, len(self._choices) - 1)]
            if len(sequence) < length:
                continue
            start = int(rng.integers(len(sequence) - length + 1))
            piece = sequence[start : start + length]
            if is_known(piece):
                drawn.bases.append(draw_errors(piece, rng) if errors else piece)
                drawn.genomes.append(genome)
                return


def is_known(piece: bytes) -> bool:
    """Return whether nearly all letters of a piece are A, C, G or T."""
    return len(piece.translate(None, b"ACGT")) <= _MOST_UNKNOWN * len(piece)


def draw_errors(
    piece: bytes,
    rng: np.random.Generator,
    share: float = _WITH_ERRORS,
    most: float = _MOST_ERRORS,
) -> bytes:
    """Return a piece for training: a `share` of them has errors, at a rate up to `most`."""
    return with_errors(piece, rng.uniform(0, most), rng) if rng.random() < share else piece


def with_errors(bases: bytes, rate: float, rng: np.random.Generator) -> bytes:
    """Return bases with a share `rate` of errors like those of Nanopore reads."""
    letters = np.frombuffer(bases, np.uint8).copy()
    wrong = rng.random(len(letters)) < rate * _KINDS[0]
    letters[wrong] = _BASES[rng.integers(0, 4, int(wrong.sum()))]
    letters = letters[rng.random(len(letters)) >= rate * _KINDS[1]]
    places = np.flatnonzero(rng.random(len(letters)) < rate * (1 - sum(_KINDS)))
    return np.insert(letters, places, _BASES[rng.integers(0, 4, len(places))]).tobytes()
