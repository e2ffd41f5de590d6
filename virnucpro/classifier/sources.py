"""The most probable class of each record, from a classifier with several classes."""

import numpy as np

from virnucpro.classifier.consensus import Status
from virnucpro.classifier.run_scores import WindowBlocks, record_blocks
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.windows import IntArray
from virnucpro.store.coverage import Coverage

__all__ = ["likely_sources"]


def likely_sources(index: SequenceIndex, windows: WindowBlocks, coverage: Coverage) -> IntArray:
    """Return the position of the class with the largest mean probability over scored windows.

    A window has the probabilities of its item with the highest virus score.

    Returns
    -------
    ``(n_records,)`` int64
        -1 for a record without a scored window, and for a classifier of two classes.
    """
    classes = coverage.scores[:, 2:]
    found: IntArray = np.full(index.n_records, -1)
    for first, last in record_blocks(index) if classes.shape[1] else ():
        start, stop = index.record_first_window[[first, last]].tolist()
        calls = windows.block(start, stop)
        scored = calls.status == Status.SCORED
        n_windows = np.diff(index.record_first_window[first : last + 1])
        owner = np.repeat(np.arange(last - first), n_windows)[scored]
        rows = index.item_row[calls.best_item[scored]]
        totals = np.zeros((last - first, classes.shape[1]))
        for number in range(classes.shape[1]):
            totals[:, number] = np.bincount(owner, classes[rows, number], last - first)
        found[first:last] = np.where(totals.any(axis=1), totals.argmax(axis=1), -1)
    return found
