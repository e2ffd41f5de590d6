"""Estimate of the disk space that a run still needs."""

import errno
from dataclasses import dataclass

__all__ = ["SpaceNeeded", "is_short_of_space", "space_needed"]

_SHORT = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

# Measured on runs of `mini`, rounded up; sizes that do not depend on the vectors.
_SEGMENT_BYTES = 12 << 10
"""HDF5's own data in one segment, the user block, and the file system's rounding."""
_ROW_BYTES = 17
"""Row number, two scores, state."""
_ITEM_BYTES = 48
"""An entry of HDF5's heap, the state, and the item's scores as text."""
_RECORD_BYTES = 128
"""A record's line in the tables, without its name."""
_WINDOW_BYTES = 96
"""A window's lines in two tables, without its names."""
_SUFFIX_BYTES = 12
"""Suffix of a record's name in that of a window or an item: ``_chunk_17F1``."""
_FIXED_BYTES = 64 << 10
"""run.json, status.json, plans, logs, and the headers of embeddings.h5."""


@dataclass(frozen=True, slots=True)
class SpaceNeeded:
    """Bytes that a run still has to write, by purpose."""

    segments: int
    embeddings: int
    tables: int

    @property
    def total(self) -> int:
        """The sum, including files of the same size in every run."""
        return self.segments + self.embeddings + self.tables + _FIXED_BYTES


def space_needed(
    *,
    units: int,
    rows: int,
    vector_bytes: int,
    records: int,
    windows: int,
    items: int,
    name_bytes: float,
) -> SpaceNeeded:
    """Return an upper estimate of the bytes that a run still has to write.

    Parameters
    ----------
    units, rows
        Units and rows without a segment.
    vector_bytes
        Size of a stored vector of all encoders; 0 in a run without embeddings.
    records, windows, items
        Numbers of the whole run: new outputs are written beside the old ones.
    name_bytes
        Mean length of a record's name in bytes.
    """
    name = name_bytes + _SUFFIX_BYTES
    return SpaceNeeded(
        segments=units * _SEGMENT_BYTES + rows * (vector_bytes + _ROW_BYTES),
        embeddings=round(items * (vector_bytes + name + _ITEM_BYTES)) if vector_bytes else 0,
        tables=round(
            records * (name + _RECORD_BYTES)
            + windows * (2 * name + _WINDOW_BYTES)
            + items * (name + _ITEM_BYTES)
        ),
    )


def is_short_of_space(error: OSError) -> bool:
    """Return whether space is short: on the disk, in a quota, or below a limit of file sizes."""
    return error.errno in _SHORT
