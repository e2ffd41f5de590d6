"""Training genomes, their groups, and windows drawn from them."""

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from virnucpro.sequences.records import read_records
from virnucpro.sequences.windows import tile

__all__ = ["HELD_OUT_FAMILY", "Genome", "Pool", "draw_crops", "draw_tiles", "read_genomes"]

HELD_OUT_FAMILY = "Microviridae"
"""The family of the demonstration's phage, phiX174; not used for training."""

_KINGDOM_WEIGHTS = {"archaea": 1.5, "organelle": 0.6, "plasmid": 1.0, "bacteria": 1.0}
_EUKARYOTE_WEIGHT = 2.5
"""Eukaryotes are few fragments; organelles are many small similar genomes."""

_MAX_UNKNOWN = 0.1
"""Windows with a larger share of letters other than A, C, G, T are not drawn."""


@dataclass(frozen=True, slots=True)
class Genome:
    """One genome; its records are cut at regions that are similar to phages."""

    name: str
    kingdom: str
    family: str
    group: str
    split: Literal["train", "valid"]
    sequences: tuple[bytes, ...]

    @property
    def viral(self) -> bool:
        """Whether this is a virus."""
        return self.kingdom == "virus"

    @property
    def key(self) -> tuple[str, str]:
        """The group: genomes of a group are never in both splits."""
        return self.kingdom, self.group

    @property
    def bases(self) -> int:
        """Number of bases."""
        return sum(map(len, self.sequences))


@dataclass(frozen=True, slots=True)
class Pool:
    """Windows of one length.

    Attributes
    ----------
    windows
        n sequences of bases.
    viral
        (n,) bool.
    group
        (n,) int64, number of the genome's group.
    groups
        The groups' names by number.
    """

    windows: list[bytes]
    viral: NDArray[np.bool_]
    group: NDArray[np.int64]
    groups: list[tuple[str, str]]


def read_genomes(folder: Path) -> list[Genome]:
    """Read genomes.tsv and its genomes, without regions that are similar to phages."""
    regions = _regions(folder / "phage_like_regions.bed")
    with (folder / "genomes.tsv").open(newline="") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    return [
        Genome(
            row["id"],
            row["group"],
            row["family"],
            row["split_group"],
            "train" if row["split"] == "train" else "valid",
            _sequences(folder / row["group"] / f"{row['id']}.fa.gz", row["id"], regions),
        )
        for row in rows
    ]


def draw_crops(genomes: Sequence[Genome], length: int, count: int, seed: int) -> Pool:
    """Draw windows at random positions, half of them viral, equally many from each family."""
    rng = np.random.default_rng([seed, length])
    return _pool(
        [
            entry
            for viral in (False, True)
            for entry in _draw_class(
                [g for g in genomes if g.viral is viral], length, count // 2, rng
            )
        ]
    )


def draw_tiles(genomes: Sequence[Genome], length: int, per_group: int, seed: int) -> Pool:
    """Draw up to `per_group` windows of the `even` tiling from each group."""
    rng = np.random.default_rng([seed, length])
    drawn = []
    for members in _by_group(genomes, length).values():
        tiles = [(g, s[a:b]) for g in members for s in g.sequences for a, b in _tiles(s, length)]
        chosen = rng.permutation(len(tiles))[:per_group]
        drawn += [tiles[i] for i in sorted(chosen) if _is_known(tiles[i][1])]
    return _pool(drawn)


def _regions(path: Path) -> Mapping[tuple[str, str], list[tuple[int, int]]]:
    regions = defaultdict(list)
    for line in path.read_text().splitlines():
        genome, record, start, end = line.split("\t")[:4]
        regions[genome, record].append((int(start), int(end)))
    return regions


def _sequences(
    path: Path, genome: str, regions: Mapping[tuple[str, str], list[tuple[int, int]]]
) -> tuple[bytes, ...]:
    pieces = []
    for record in read_records(str(path)):
        cuts = sorted(regions.get((genome, record.name), []))
        starts = [0, *(end for _, end in cuts)]
        ends = [*(start for start, _ in cuts), len(record.sequence)]
        pieces += [record.sequence[a:b] for a, b in zip(starts, ends, strict=True) if b > a]
    return tuple(pieces)


def _by_group(genomes: Sequence[Genome], length: int) -> dict[tuple[str, str], list[Genome]]:
    """Return the genomes with a window of `length` by group, in a fixed order."""
    groups = defaultdict(list)
    for genome in genomes:
        if any(len(sequence) >= length for sequence in genome.sequences):
            groups[genome.key].append(genome)
    return dict(sorted(groups.items()))


def _draw_class(
    genomes: Sequence[Genome], length: int, count: int, rng: np.random.Generator
) -> list[tuple[Genome, bytes]]:
    groups = list(_by_group(genomes, length).values())
    weights = np.array([_group_weight(members) for members in groups])
    choices = [_crop_choices(members, length) for members in groups]
    drawn: list[tuple[Genome, bytes]] = []
    while len(drawn) < count:
        candidates, shares = choices[rng.choice(len(groups), p=weights / weights.sum())]
        genome, sequence = candidates[rng.choice(len(candidates), p=shares)]
        start = int(rng.integers(len(sequence) - length + 1))
        if _is_known(window := sequence[start : start + length]):
            drawn.append((genome, window))
    return drawn


def _group_weight(members: Sequence[Genome]) -> float:
    kingdom = members[0].kingdom
    return 1.0 if kingdom == "virus" else _KINGDOM_WEIGHTS.get(kingdom, _EUKARYOTE_WEIGHT)


def _crop_choices(
    members: Sequence[Genome], length: int
) -> tuple[list[tuple[Genome, bytes]], NDArray[np.float64]]:
    """Return a group's sequences and their shares, proportional to the root of their length."""
    candidates = [(g, s) for g in members for s in g.sequences if len(s) >= length]
    roots = np.sqrt([len(sequence) for _, sequence in candidates])
    return candidates, roots / roots.sum()


def _tiles(sequence: bytes, length: int) -> list[tuple[int, int]]:
    if len(sequence) < length:
        return []
    starts, ends = tile(len(sequence), length, "even")
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _is_known(window: bytes) -> bool:
    return len(window.translate(None, b"ACGT")) <= _MAX_UNKNOWN * len(window)


def _pool(drawn: Sequence[tuple[Genome, bytes]]) -> Pool:
    groups = sorted({genome.key for genome, _ in drawn})
    number = {key: i for i, key in enumerate(groups)}
    return Pool(
        [window for _, window in drawn],
        np.array([genome.viral for genome, _ in drawn]),
        np.array([number[genome.key] for genome, _ in drawn], np.int64),
        groups,
    )
