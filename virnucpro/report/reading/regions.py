"""Read regions.tsv: viral and non-viral stretches of long records."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from virnucpro.report.reading.records import damaged, read_columns
from virnucpro.report.tsv import NA

__all__ = ["Region", "read_regions"]

_NEEDED: Final = ("seq_name", "start", "end", "state")
_COLUMNS: Final = ("seq_name", "file", "record", "start", "end", "state", "score")


@dataclass(frozen=True, slots=True)
class Region:
    """One row of regions.tsv; positions count from 1 and are inclusive."""

    name: str
    file: str
    record: str
    start: int
    end: int
    state: str
    score: float

    @property
    def length(self) -> int:
        """Return the number of bases."""
        return self.end - self.start + 1

    @property
    def key(self) -> tuple[str, str, str]:
        """Return what identifies the record: its file, its number in the file, its name."""
        return self.file, self.record, self.name


def read_regions(path: Path) -> list[Region] | None:
    """Return all regions of a run, in input order; None if the run has no regions.tsv.

    Raises
    ------
    StoreError
        If the file is not such a table.
    """
    if not path.exists():
        return None
    found = []
    for header, columns, _ in read_columns(path, _NEEDED):
        cells = dict(zip(header, columns, strict=True))
        none = (NA,) * len(columns[0])
        chosen = (cells.get(name, none) for name in _COLUMNS)
        for name, file, record, start, end, state, score in zip(*chosen, strict=True):
            try:
                value = np.nan if score == NA else float(score)
                found.append(Region(name, file, record, int(start), int(end), state, value))
            except ValueError as error:
                raise damaged(path, str(error)) from error
    return found
