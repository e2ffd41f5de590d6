"""Labelled genomes, their groups, and the folds of a cross-validation."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["VIRUS", "Genome", "Group", "assign_folds", "by_group"]

Group = tuple[str, str]
"""Kingdom and name of a group of related genomes: a virus family, or a genus of hosts."""

VIRUS = "virus"
"""Kingdom of all viral genomes."""


@dataclass(frozen=True, slots=True)
class Genome:
    """Labelled sequences that count as one genome.

    Attributes
    ----------
    name
        Name in the table of the training set.
    kingdom
        `VIRUS`, or the kingdom of a genome that is not viral.
    group
        Name of the group. Groups of the same name are in one fold, whatever the kingdom.
    source
        Class of the genome's windows.
    sequences
        Upper-case bases.
    records
        Name of the record of each sequence.
    """

    name: str
    kingdom: str
    group: str
    source: str
    sequences: tuple[bytes, ...]
    records: tuple[str, ...]

    @property
    def viral(self) -> bool:
        """Whether this is a virus."""
        return self.kingdom == VIRUS

    @property
    def key(self) -> Group:
        """The group, with the kingdom."""
        return self.kingdom, self.group


def by_group(genomes: Iterable[Genome]) -> dict[Group, list[Genome]]:
    """Return genomes by group, in a fixed order."""
    groups = defaultdict(list)
    for genome in genomes:
        groups[genome.key].append(genome)
    return dict(sorted(groups.items()))


def assign_folds(genomes: Sequence[Genome], n_folds: int, seed: int) -> dict[str, int]:
    """Return the fold of each group's name.

    Groups of a kingdom are sorted by size; each next `n_folds` groups go to different folds. A
    name that stands in several kingdoms is in one fold.
    """
    rng = np.random.default_rng(seed)
    groups = by_group(genomes)
    kingdoms = sorted({kingdom for kingdom, _ in groups}, key=lambda one: _rank(groups, one))
    folds: dict[str, int] = {}
    for kingdom in kingdoms:
        sizes = {
            group: sum(map(len, (s for g in members for s in g.sequences)))
            for (of, group), members in groups.items()
            if of == kingdom and group not in folds
        }
        largest_first = sorted(sizes, key=lambda one: (-sizes[one], one))
        for start in range(0, len(largest_first), n_folds):
            block = largest_first[start : start + n_folds]
            order = rng.permutation(n_folds).tolist()
            folds.update(zip(block, order[: len(block)], strict=True))
    return folds


def _rank(groups: Mapping[Group, list[Genome]], kingdom: str) -> tuple[int, str]:
    return sum(one == kingdom for one, _ in groups), kingdom
