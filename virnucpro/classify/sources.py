"""The most probable class of each record, from a classifier with several classes."""

import numpy as np

from virnucpro.classify.consensus import Status, WindowCalls
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.windows import IntArray
from virnucpro.store.coverage import Coverage

__all__ = ["likely_sources"]


def likely_sources(index: SequenceIndex, windows: WindowCalls, coverage: Coverage) -> IntArray:
    """Return the position of the class with the largest mean probability over scored windows.

    A window has the probabilities of its item with the highest virus score.

    Returns
    -------
    ``(n_records,)`` int64
        -1 for a record without a scored window, and for a classifier of two classes.
    """
    classes = coverage.scores[:, 2:]
    if not classes.shape[1] or not index.n_windows:
        return np.full(index.n_records, -1)
    scored = windows.status == Status.SCORED
    owner = np.repeat(np.arange(index.n_records), np.diff(index.record_first_window))[scored]
    rows = index.item_row[windows.best_item[scored]]
    totals = np.zeros((index.n_records, classes.shape[1]))
    for number in range(classes.shape[1]):
        values = classes[rows, number]
        totals[:, number] = np.bincount(owner, values, index.n_records)
    found: IntArray = np.where(totals.any(axis=1), totals.argmax(axis=1), -1)
    return found
