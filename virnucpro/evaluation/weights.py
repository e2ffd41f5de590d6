"""Weights that let kingdoms, and groups within a kingdom, count equally.

A class has the weight of its prevalence. The kingdoms of a class share it equally, the groups of a
kingdom share the kingdom's weight equally, and so do the fragments of a group. In a resample of the
bootstrap, a group that is drawn m times counts like m groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from virnucpro.evaluation.fragments import Fragment, GroupKey, group_key

__all__ = ["Groups"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a set of fragments.

    Attributes
    ----------
    keys
        Class, kingdom and name of each group.
    of_fragment
        (n,) int64, index of each fragment's group.
    size
        (n_groups,) int64, number of fragments.
    viral
        (n_groups,) bool.
    kingdom
        (n_groups,) int64, number of the kingdom; kingdoms of different classes differ.
    """

    keys: tuple[GroupKey, ...]
    of_fragment: IntArray
    size: IntArray
    viral: NDArray[np.bool_]
    kingdom: IntArray

    @classmethod
    def of(cls, fragments: Sequence[Fragment]) -> "Groups":
        """Return the groups of the fragments, sorted by class, kingdom and name."""
        keys = sorted({group_key(fragment) for fragment in fragments})
        number = {key: index for index, key in enumerate(keys)}
        of_fragment = np.array([number[group_key(one)] for one in fragments], np.int64)
        kingdoms = sorted({key[:2] for key in keys})
        return cls(
            keys=tuple(keys),
            of_fragment=of_fragment,
            size=np.bincount(of_fragment, minlength=len(keys)),
            viral=np.array([key[0] for key in keys], bool),
            kingdom=np.array([kingdoms.index(key[:2]) for key in keys], np.int64),
        )

    def drawn(self, n_resamples: int, dice: np.random.Generator) -> IntArray:
        """Draw the groups of each class with replacement.

        Returns
        -------
        (n_resamples, n_groups) int64, how often each group is drawn. The draws of a class are as
        many as its groups.
        """
        counts = np.zeros((n_resamples, len(self.keys)), np.int64)
        for label in (True, False):
            members = np.flatnonzero(self.viral == label)
            if len(members):
                even = np.full(len(members), 1 / len(members))
                counts[:, members] = dice.multinomial(len(members), even, n_resamples)
        return counts

    def own_weights(self, prevalence: float) -> FloatArray:
        """Return the (n,) weights of the fragments if each group counts once."""
        once = np.ones((1, len(self.keys)), np.int64)
        weights: FloatArray = self.weights(once, prevalence)[0]
        return weights

    def weights(self, counts: IntArray, prevalence: float) -> FloatArray:
        """Return the weight of each fragment in each resample.

        Parameters
        ----------
        counts
            (n_resamples, n_groups), how often each group counts; ones for the data themselves.
        prevalence
            Sum of the weights of viral fragments; the sum of all weights is 1.

        Returns
        -------
        (n_resamples, n) float64.
        """
        group = np.zeros(counts.shape)
        for label, total in ((True, prevalence), (False, 1 - prevalence)):
            kingdoms = np.unique(self.kingdom[self.viral == label])
            present = np.zeros(len(counts))
            for kingdom in kingdoms:
                members = np.flatnonzero(self.kingdom == kingdom)
                drawn = counts[:, members].sum(axis=1, keepdims=True)
                present += drawn[:, 0] > 0
                group[:, members] = counts[:, members] / np.maximum(drawn, 1)
            members = np.flatnonzero(self.viral == label)
            group[:, members] *= total / np.maximum(present, 1)[:, None]
        return (group / self.size)[:, self.of_fragment]
