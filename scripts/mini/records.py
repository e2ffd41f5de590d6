"""Whole records and fragments: scores, thresholds, and shares of correct calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from mini.evaluation import auroc
from mini.genomes import Genome
from numpy.typing import NDArray

from virnucpro.sequences.windows import tile

__all__ = ["Records", "choose_thresholds", "cut_fragments", "rate_records", "whole_genomes"]

_AMBIGUOUS_HALF_WIDTH = 0.01
"""Half width of the band of ambiguous scores around the best threshold."""

Scorer = Callable[[Sequence[bytes]], NDArray[np.float64]]
"""Return the score of each window, NaN for windows without an open frame."""


@dataclass(frozen=True, slots=True)
class Records:
    """Sequences with one call for each record.

    Attributes
    ----------
    names
        Names of their genomes.
    pieces
        The sequences of each record: several if a genome is segmented.
    viral
        (n,) bool.
    """

    names: list[str]
    pieces: list[tuple[bytes, ...]]
    viral: NDArray[np.bool_]

    def scores(self, window: int, score: Scorer) -> NDArray[np.float64]:
        """Return the score of every record: the mean over scored windows of the `even` tiling."""
        windows = [[w for p in pieces for w in _windows(p, window)] for pieces in self.pieces]
        joined = score([w for record in windows for w in record])
        parts = np.split(joined, np.cumsum([len(record) for record in windows])[:-1])
        return np.array([_mean(part) for part in parts])


def cut_fragments(genomes: Sequence[Genome], length: int, per_group: int, seed: int) -> Records:
    """Cut up to `per_group` fragments from each group, at random positions without overlap."""
    rng = np.random.default_rng([seed, length])
    groups: dict[tuple[str, str], list[tuple[Genome, bytes]]] = {}
    for genome in genomes:
        for sequence in genome.sequences:
            starts = range(0, len(sequence) - length + 1, length)
            pieces = [(genome, sequence[start : start + length]) for start in starts]
            groups.setdefault(genome.key, []).extend(pieces)
    drawn = [
        pieces[i]
        for _, pieces in sorted(groups.items(), key=lambda group: group[0])
        for i in sorted(rng.permutation(len(pieces))[:per_group])
    ]
    return Records(
        [genome.name for genome, _ in drawn],
        [(piece,) for _, piece in drawn],
        np.array([genome.viral for genome, _ in drawn]),
    )


def whole_genomes(genomes: Sequence[Genome], max_bases: int) -> Records:
    """Return whole genomes, at most `max_bases` of each sequence."""
    return Records(
        [genome.name for genome in genomes],
        [tuple(sequence[:max_bases] for sequence in genome.sequences) for genome in genomes],
        np.array([genome.viral for genome in genomes]),
    )


def choose_thresholds(scores: NDArray[np.float64], viral: NDArray[np.bool_]) -> dict[str, float]:
    """Return the threshold of best balanced accuracy, with a narrow band around it."""
    known = ~np.isnan(scores)
    candidates = np.linspace(0.3, 0.7, 401)
    right = [_balanced(scores[known] >= cut, viral[known]) for cut in candidates]
    best = float(np.median(candidates[np.isclose(right, max(right))]))
    return {
        "viral": round(best + _AMBIGUOUS_HALF_WIDTH, 4),
        "non_viral": round(best - _AMBIGUOUS_HALF_WIDTH, 4),
    }


def rate_records(
    scores: NDArray[np.float64], viral: NDArray[np.bool_], thresholds: dict[str, float]
) -> dict[str, float]:
    """Return the shares of correct and wrong calls of each class."""
    called = scores >= thresholds["viral"]
    cleared = scores < thresholds["non_viral"]
    known = ~np.isnan(scores)
    figures: dict[str, float] = {"records": len(scores)}
    if viral.any() and not viral.all():
        figures["auroc"] = auroc(scores[known], viral[known])
    for name, members, right, wrong in (
        ("viral", viral, called, cleared),
        ("others", ~viral, cleared, called),
    ):
        if members.any():
            figures[f"{name}_right"] = float(right[members].mean())
            figures[f"{name}_wrong"] = float(wrong[members].mean())
    return {name: round(value, 4) for name, value in figures.items()}


def _balanced(called: NDArray[np.bool_], viral: NDArray[np.bool_]) -> float:
    return float(called[viral].mean() + (~called[~viral]).mean()) / 2


def _windows(sequence: bytes, window: int) -> list[bytes]:
    starts, ends = tile(len(sequence), window, "even")
    return [sequence[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]


def _mean(scores: NDArray[np.float64]) -> float:
    known = scores[~np.isnan(scores)]
    return float(known.mean()) if len(known) else float("nan")
