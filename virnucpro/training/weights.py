"""Weights of groups and kingdoms, so that large groups do not outweigh small ones."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from virnucpro.training.groups import Group

__all__ = ["auroc", "draw_weights", "equal_weights", "resampled_weights", "share_above"]

FloatArray = NDArray[np.float64]


def equal_weights(groups: Sequence[Group]) -> FloatArray:
    """Return (n,) weights: virus groups are equal, kingdoms of others too; each class sums to 1."""
    counts: dict[Group, int] = {}
    for group in groups:
        counts[group] = counts.get(group, 0) + 1
    n_groups: dict[str, int] = {}
    for kingdom, _ in counts:
        n_groups[kingdom] = n_groups.get(kingdom, 0) + 1
    n_kingdoms = max(sum(kingdom != "virus" for kingdom in n_groups), 1)
    return np.array(
        [
            1.0 / counts[group] / n_groups[group[0]] / (1 if group[0] == "virus" else n_kingdoms)
            for group in groups
        ]
    )


def draw_weights(groups: Sequence[Group]) -> FloatArray:
    """Return the probability of each window; a group of n windows weighs the root of n."""
    counts: dict[Group, int] = {}
    for group in groups:
        counts[group] = counts.get(group, 0) + 1
    roots: dict[str, float] = {}
    for (kingdom, _), count in counts.items():
        roots[kingdom] = roots.get(kingdom, 0.0) + count**0.5
    others = sum(_KINGDOM_WEIGHTS.get(kingdom, 1.0) for kingdom in roots if kingdom != "virus")
    shares = {
        kingdom: 1.0 if kingdom == "virus" else _KINGDOM_WEIGHTS.get(kingdom, 1.0) / others
        for kingdom in roots
    }
    weights = [shares[one[0]] * counts[one] ** -0.5 / roots[one[0]] for one in groups]
    total: FloatArray = np.array(weights)
    total /= total.sum()
    return total


_KINGDOM_WEIGHTS: Final = {
    "bacteria": 2.0,
    "fungi": 1.2,
    "vertebrate": 1.2,
    "plant": 1.0,
    "invertebrate": 1.0,
    "archaea": 1.0,
    "plasmid": 1.0,
    "transcript": 1.0,
    "protozoa": 0.8,
    "organelle": 0.7,
}
"""Shares of the others' half of the training windows."""


def share_above(
    probabilities: FloatArray, groups: Sequence[Group], thresholds: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """Return the share of each kingdom's sequences called viral; groups are equal."""
    weights = equal_weights(groups)
    kingdoms = np.array([kingdom for kingdom, _ in groups])
    return {
        preset: {
            kingdom: round(
                float(
                    np.average(
                        probabilities[kingdoms == kingdom] >= threshold,
                        weights=weights[kingdoms == kingdom],
                    )
                ),
                4,
            )
            for kingdom in sorted(set(kingdoms.tolist()))
        }
        for preset, threshold in thresholds.items()
    }


def resampled_weights(groups: Sequence[Group], n_resamples: int, seed: int) -> FloatArray:
    """Return (n_resamples, n) weights of a bootstrap that draws groups of each class.

    The weights of a resample are `equal_weights` of the drawn groups: a group that is drawn m times
    counts like m groups, and the kingdoms that are drawn are equal.
    """
    rng = np.random.default_rng(seed)
    keys = sorted(set(groups))
    number = {key: place for place, key in enumerate(keys)}
    of_piece = np.array([number[group] for group in groups])
    kingdoms = np.array([kingdom for kingdom, _ in keys])
    weights = np.zeros((n_resamples, len(keys)))
    for members in (kingdoms == "virus", kingdoms != "virus"):
        count = int(members.sum())
        if not count:
            continue
        times = np.zeros((n_resamples, len(keys)))
        times[:, members] = rng.multinomial(count, np.full(count, 1 / count), n_resamples)
        of_kingdom = [kingdoms == one for one in sorted(set(kingdoms[members].tolist()))]
        sums = [times[:, one].sum(axis=1, keepdims=True) for one in of_kingdom]
        present = np.sum([one > 0 for one in sums], axis=0)
        for one, total in zip(of_kingdom, sums, strict=True):
            weights[:, one] = times[:, one] / np.maximum(total, 1) / present
    resampled: FloatArray = (weights / np.bincount(of_piece))[:, of_piece]
    return resampled


def auroc(scores: FloatArray, viral: NDArray[np.bool_], weights: FloatArray) -> FloatArray:
    """Return the weighted probability that a viral piece scores higher than another piece.

    Parameters
    ----------
    weights
        ``(..., n)``; the result has the shape of the leading dimensions.
    """
    order = np.argsort(scores, kind="stable")
    starts = np.flatnonzero(np.diff(scores[order], prepend=-np.inf))
    others, virus = (
        np.add.reduceat(np.where(side, weights[..., order], 0.0), starts, axis=-1)
        for side in (~viral[order], viral[order])
    )
    below = np.cumsum(others, axis=-1) - others / 2
    found: FloatArray = (virus * below).sum(axis=-1) / (virus.sum(axis=-1) * others.sum(axis=-1))
    return found
