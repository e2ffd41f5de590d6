"""Read the windows of some records from windows.tsv, without reading the whole table."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from virnucpro.report.reading.records import RecordTable, damaged, open_table
from virnucpro.report.tsv import NA

__all__ = ["Track", "read_tracks"]

_BYTES_AT_ONCE: Final = 1 << 23
_NEEDED: Final = ("seq_name", "start", "end", "score")


@dataclass(frozen=True, slots=True)
class Track:
    """Scores of the windows of one record.

    Attributes
    ----------
    starts, ends
        ``(n_windows,)`` first and last base of each window, counted from 1.
    scores
        ``(n_windows,)``; NaN for a window without a score.
    """

    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float64]


def read_tracks(path: Path, table: RecordTable, records: Sequence[int]) -> list[Track]:
    """Return the windows of some records, in the order of `records`.

    The rows of windows.tsv are in the order of predictions.tsv, so that the numbers of windows give
    the lines of each record.

    Raises
    ------
    StoreError
        If windows.tsv is missing, damaged, or does not belong to `table`.
    """
    after = np.cumsum(table.numbers["n_windows"], dtype=np.int64)
    chosen = np.asarray(records, np.int64)
    first = after[chosen] - table.numbers["n_windows"][chosen]
    order = np.argsort(first, kind="stable")
    starts = dict(zip(records, _offsets(path, first, order), strict=True))
    names = dict(zip(records, table.rows(records), strict=True))
    found = []
    with open_table(path) as stream:
        header = stream.readline().decode(errors="replace").rstrip("\n").split("\t")
        if missing := [name for name in _NEEDED if name not in header]:
            raise damaged(path, f"it has no column {missing[0]}")
        place = [header.index(name) for name in _NEEDED]
        for record in records:
            stream.seek(starts[record])
            cells = []
            for _ in range(int(table.numbers["n_windows"][record])):
                row = stream.readline().decode(errors="replace").rstrip("\n").split("\t")
                if len(row) != len(header) or row[place[0]] != names[record]["seq_name"]:
                    raise damaged(path, f"its rows do not belong to those of {table.path.name}")
                cells.append([row[number] for number in place[1:]])
            found.append(_track(path, cells))
    return found


def _track(path: Path, cells: Sequence[Sequence[str]]) -> Track:
    try:
        return Track(
            starts=np.array([int(start) for start, _, _ in cells], np.int64),
            ends=np.array([int(end) for _, end, _ in cells], np.int64),
            scores=np.array([np.nan if s == NA else float(s) for *_, s in cells], np.float64),
        )
    except ValueError as error:
        raise damaged(path, str(error)) from error


def _offsets(path: Path, lines: npt.NDArray[np.int64], order: npt.NDArray[np.int64]) -> list[int]:
    """Return the position in bytes of each row of a table, by counting line ends.

    `lines` are numbers of rows from 0, without the header; `order` sorts them.
    """
    found = np.full(len(lines), -1, np.int64)
    wanted = lines[order]  # row n begins behind line end n, since the header is line 0
    done, ends_before, position = 0, 0, 0
    with open_table(path) as stream:
        while done < len(wanted) and (block := stream.read(_BYTES_AT_ONCE)):
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
            upto = int(np.searchsorted(wanted, ends_before + len(ends)))
            found[order[done:upto]] = position + ends[wanted[done:upto] - ends_before] + 1
            done = upto
            ends_before += len(ends)
            position += len(block)
    if done < len(wanted):
        raise damaged(path, "it has fewer rows than the records have windows")
    return [int(offset) for offset in found]
