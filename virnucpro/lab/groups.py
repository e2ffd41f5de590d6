"""Weights that let kingdoms, and groups within a kingdom, count equally.

A class has the weight of its prevalence. The kingdoms of a class share it equally, the groups of a
kingdom share the kingdom's weight equally, and so do the sequences of a group. In a resample of the
bootstrap, a group that is drawn m times counts like m groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from virnucpro.arrays import BoolArray, FloatArray, IntArray

GroupKey: TypeAlias = tuple[bool, str, str]
"""Class (whether viral), kingdom and name of a group."""


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of a set of sequences.

    Attributes
    ----------
    keys
        Class, kingdom and name of each group.
    of_sequence
        (n,) int64, index of each sequence's group.
    size
        (n_groups,) int64, number of sequences.
    viral
        (n_groups,) bool.
    kingdom
        (n_groups,) int64, number of the kingdom; kingdoms of different classes differ.
    """

    keys: tuple[GroupKey, ...]
    of_sequence: IntArray
    size: IntArray
    viral: BoolArray
    kingdom: IntArray

    @classmethod
    def of(cls, sequences: Sequence[GroupKey]) -> "Groups":
        """Return the groups of sequences, sorted by class, kingdom and name."""
        keys = sorted(set(sequences))
        number = {key: index for index, key in enumerate(keys)}
        of_sequence = np.array([number[key] for key in sequences], np.int64)
        kingdoms = sorted({key[:2] for key in keys})
        return cls(
            keys=tuple(keys),
            of_sequence=of_sequence,
            size=np.bincount(of_sequence, minlength=len(keys)),
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
        """Return the (n,) weights of the sequences if each group counts once."""
        once = np.ones((1, len(self.keys)), np.int64)
        weights: FloatArray = self.weights(once, prevalence)[0]
        return weights

    def weights(self, counts: IntArray, prevalence: float) -> FloatArray:
        """Return the weight of each sequence in each resample.

        Parameters
        ----------
        counts
            (n_resamples, n_groups), how often each group counts; ones for the data themselves.
        prevalence
            Sum of the weights of viral sequences; the sum of all weights is 1.

        Returns
        -------
        (n_resamples, n) float64.
        """
        group = counts / self.size
        for label, total in ((True, prevalence), (False, 1 - prevalence)):
            kingdoms = np.unique(self.kingdom[self.viral == label])
            present = np.zeros(len(counts))
            for kingdom in kingdoms:
                members = np.flatnonzero(self.kingdom == kingdom)
                drawn = counts[:, members].sum(axis=1, keepdims=True)
                present += drawn[:, 0] > 0
                group[:, members] /= np.maximum(drawn, 1)
            members = np.flatnonzero(self.viral == label)
            group[:, members] /= np.maximum(present, 1)[:, None]
            group[:, members] *= total
        return group[:, self.of_sequence]
