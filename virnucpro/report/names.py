"""What records and windows are called, by the published tool's rule, many at a time."""

import numpy as np
import numpy.typing as npt

from virnucpro.sequences.index import SequenceIndex

__all__ = ["record_names", "window_names", "window_records"]


def window_records(index: SequenceIndex, windows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Tell which record each window, int64 (n,), is a piece of: int64 (n,)."""
    return np.searchsorted(index.record_first_window, windows, side="right") - 1


def record_names(index: SequenceIndex, records: npt.NDArray[np.int64]) -> list[str]:
    """Name the records, int64 (n,); looks each distinct one up once."""
    distinct, where = np.unique(records, return_inverse=True)
    names = [index.record_name(record) for record in distinct.tolist()]
    return [names[position] for position in where.tolist()]


def window_names(index: SequenceIndex, windows: npt.NDArray[np.int64]) -> list[str]:
    """Name the windows, int64 (n,): ``{record}_chunk_{k}``, k from 1 in each record."""
    records = window_records(index, windows)
    numbers = windows - index.record_first_window[records] + 1
    return [
        f"{name}_chunk_{number}"
        for name, number in zip(record_names(index, records), numbers.tolist(), strict=True)
    ]
