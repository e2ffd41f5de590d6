"""How much of the disk a run still needs: an estimate from counts alone."""

import errno
from dataclasses import dataclass

__all__ = ["SpaceNeeded", "is_short_of_space", "space_needed"]

_SHORT = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

# Measured on runs of `mini`, rounded up; what does not grow with the vectors.
_SEGMENT_BYTES = 12 << 10
"""What HDF5 and the user block add to one segment, and the file system's rounding."""
_ROW_BYTES = 17
"""Row number, two scores, state."""
_ITEM_BYTES = 48
"""A name's place in HDF5's heap, the state, and the item's scores as text."""
_RECORD_BYTES = 128
"""A record's line in the tables, beside its name."""
_WINDOW_BYTES = 96
"""A window's lines in two tables, beside its names."""
_SUFFIX_BYTES = 12
"""What turns a record's name into that of a window or an item: ``_chunk_17F1``."""
_FIXED_BYTES = 64 << 10
"""run.json, status.json, plans, logs, and the headers of embeddings.h5."""


@dataclass(frozen=True, slots=True)
class SpaceNeeded:
    """Bytes that a run has yet to write, by what they are for."""

    segments: int
    embeddings: int
    tables: int

    @property
    def total(self) -> int:
        """All of it, with what is the same for every run."""
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
    """Estimate what a run has yet to write, on the safe side of what was measured.

    Parameters
    ----------
    units, rows
        Those without a segment yet.
    vector_bytes
        Size of a stored vector, of all encoders together; 0 where none is kept.
    records, windows, items
        Of the whole run: every output is written anew, beside the one that it replaces.
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
    """Say whether bytes are what was wanting: of the disk, of a quota, of a file's limit."""
    return error.errno in _SHORT
