"""Accuracy of scores of windows, by the program's own consensus."""

from dataclasses import asdict, dataclass

import numpy as np
from mini.genomes import Pool
from mini.items import Items
from numpy.typing import NDArray

from virnucpro.classify.consensus import call_windows
from virnucpro.store.schema import RowState

__all__ = ["Quality", "auroc", "consensus", "f1", "rate_windows"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Quality:
    """Figures of one window length.

    Attributes
    ----------
    windows
        Number of windows.
    scored, scored_viral, scored_others
        Share with an open frame: of all windows, of viral ones, of the others.
    auroc, f1
        On scored windows; F1 of the viral class at a score of 0.5.
    kmer_auroc, kmer_f1
        The k-mer regression on the same scored windows.
    kmer_auroc_all
        The k-mer regression on all windows.
    """

    windows: int
    scored: float
    scored_viral: float
    scored_others: float
    auroc: float
    f1: float
    kmer_auroc: float
    kmer_f1: float
    kmer_auroc_all: float

    def rounded(self) -> dict[str, float]:
        """Return the figures by name, rounded to four places."""
        return {
            name: value if isinstance(value, int) else round(float(value), 4)
            for name, value in asdict(self).items()
        }


def consensus(items: Items, scores: NDArray[np.float32]) -> FloatArray:
    """Return one score for each window from the items' scores (n_items, 2); NaN without items."""
    rows = np.arange(len(items.window), dtype=np.int64)
    done = np.full(len(rows), RowState.DONE, np.uint8)
    return call_windows(items.first, rows, scores, done).score.astype(np.float64)


def rate_windows(
    pool: Pool, window_scores: FloatArray, kmer_scores: NDArray[np.float32]
) -> Quality:
    """Compare scores and log odds of the k-mer regression with the labels."""
    scored = ~np.isnan(window_scores)
    truth = pool.viral[scored]
    return Quality(
        windows=len(pool.windows),
        scored=scored.mean(),
        scored_viral=scored[pool.viral].mean(),
        scored_others=scored[~pool.viral].mean(),
        auroc=auroc(window_scores[scored], truth),
        f1=f1(window_scores[scored] >= 0.5, truth),
        kmer_auroc=auroc(kmer_scores[scored], truth),
        kmer_f1=f1(kmer_scores[scored] >= 0, truth),
        kmer_auroc_all=auroc(kmer_scores, pool.viral),
    )


def auroc(scores: NDArray[np.floating], truth: BoolArray) -> float:
    """Return the probability that a viral window scores above another; ties count a half."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    n_viral = int(truth.sum())
    n_others = len(truth) - n_viral
    return float((ranks[truth].sum() - n_viral * (n_viral + 1) / 2) / (n_viral * n_others))


def f1(called: BoolArray, truth: BoolArray) -> float:
    """Return the harmonic mean of precision and recall of the viral class."""
    hits = int((called & truth).sum())
    return 2 * hits / (int(called.sum()) + int(truth.sum()))
