"""Weights of groups and kingdoms, so that large groups do not outweigh small ones."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from virnucpro.arrays import FloatArray
from virnucpro.lab.groups import GroupKey, Groups
from virnucpro.lab.training.genomes import VIRUS, Group, are_viral

_HALF: Final = 0.5
"""Share of each class in `Groups`; the weights here are twice as large."""


def equal_weights(groups: Sequence[Group]) -> FloatArray:
    """Return (n,) weights: virus groups are equal, kingdoms of others too; each class sums to 1."""
    return 2 * Groups.of([*map(_key, groups)]).own_weights(_HALF)


def _key(group: Group) -> GroupKey:
    return group[0] == VIRUS, *group


def draw_weights(groups: Sequence[Group], sources: Sequence[str]) -> FloatArray:
    """Return the probability of each window to be drawn.

    A group of n windows weighs the root of n. Viruses have one half of the sum, phages at most
    one half of that, and no virus group more than `_MOST` or less than `_LEAST` of it, where there
    are enough groups; kingdoms of others have shares of the other half.

    Parameters
    ----------
    groups, sources
        Group and class of each window.
    """
    counts = Counter(groups)
    roots: dict[str, float] = defaultdict(float)
    for (kingdom, _), count in counts.items():
        roots[kingdom] += count**0.5
    found = np.array(
        [_KINGDOM_WEIGHTS.get(k, 1.0) * counts[k, name] ** -0.5 / roots[k] for k, name in groups]
    )
    viral = are_viral(groups)
    phage = viral & np.array([is_phage(source) for source in sources], np.bool_)
    keys = sorted({group for group in counts if group[0] == VIRUS})
    numbers = {group: number for number, group in enumerate(keys)}
    of_virus = np.array([numbers[group] for group in groups if group[0] == VIRUS], np.int64)
    least, most = min(_LEAST, 0.5 / max(len(keys), 1)), max(_MOST, 2 / max(len(keys), 1))
    for _ in range(_ROUNDS):
        share = found[phage].sum() / max(found[viral].sum(), _TINY)
        if _PHAGES < share < 1:
            found[phage] *= _PHAGES / share
            found[viral & ~phage] *= (1 - _PHAGES) / (1 - share)
        sums = np.bincount(of_virus, found[viral], len(keys))
        shares = sums / max(sums.sum(), _TINY)
        factors = np.clip(shares, least, most) / np.maximum(shares, _TINY)
        found[viral] *= factors[of_virus]
    for side in (viral, ~viral):
        found[side] /= 2 * max(found[side].sum(), _TINY)
    total: FloatArray = found / found.sum()
    return total


def is_phage(source: str) -> bool:
    """Return whether a class of viruses is one of phages."""
    return source.endswith("phage")


PROKARYOTES: Final = ("bacteria", "archaea")
"""Kingdoms of prokaryotes: most of a metagenome is their DNA."""

_PHAGES: Final = 0.5
_MOST: Final = 0.03
_LEAST: Final = 0.001
"""Largest and smallest share of a virus group in the weight of viruses."""
_ROUNDS: Final = 8
"""Each limit moves the sum that the others refer to."""
_TINY: Final = 1e-12
_KINGDOM_WEIGHTS: Final = {
    "bacteria": 5.0,
    "archaea": 1.5,
    "fungi": 1.2,
    "vertebrate": 1.2,
    "protozoa": 0.8,
    "organelle": 0.7,
    "rRNA": 0.3,
    "plasmid": 2.0,
    "transcript": 1.5,
    "coding": 2.0,
}
"""Shares of the others' half of the training windows; 1 for kingdoms that are not listed."""


def share_above(
    probabilities: FloatArray, groups: Sequence[Group], threshold: float
) -> dict[str, float]:
    """Return the share of each kingdom's sequences called viral; groups are equal."""
    weights, called = equal_weights(groups), probabilities >= threshold
    kingdoms = np.array([kingdom for kingdom, _ in groups])
    shares = {}
    for kingdom in sorted(set(kingdoms.tolist())):
        inside = kingdoms == kingdom
        shares[kingdom] = round(float(np.average(called[inside], weights=weights[inside])), 4)
    return shares


def resampled_weights(groups: Sequence[Group], n_resamples: int, seed: int) -> FloatArray:
    """Return (n_resamples, n) weights of a bootstrap that draws groups of each class.

    The weights of a resample are `equal_weights` of the drawn groups: a group that is drawn m times
    counts like m groups, and the kingdoms that are drawn are equal.
    """
    known = Groups.of([*map(_key, groups)])
    counts = known.drawn(n_resamples, np.random.default_rng(seed))
    return 2 * known.weights(counts, _HALF)
