"""Reads the tables that users give: labels, predictions of tools, regions of records."""

import csv
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from virnucpro.errors import InputError

Excluded: TypeAlias = Mapping[str, Sequence[tuple[int, int]]]
"""Record name -> regions ``(start, end)``, 0-based and half-open, that are left out."""


class _Plain(csv.excel_tab):
    """Tab-separated cells without quotes."""

    quoting = csv.QUOTE_NONE


def read_rows(
    path: Path, required: Sequence[str] = (), advice: str = ""
) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """Read a TSV file; return the names of its columns, and its rows with their lines.

    Missing cells at the end of a row are empty. Empty rows are skipped.

    Parameters
    ----------
    required, advice
        Columns that the table must have, and the last sentence of the error if it lacks one.

    Raises
    ------
    InputError
        If the file cannot be read, or a required column is missing or there twice.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream, dialect=_Plain, restval="")
            columns = list(reader.fieldnames or ())
            rows = [(reader.line_num, row) for row in reader if any(row.values())]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: the table cannot be read ({error})") from error
    if missing := [name for name in required if name not in columns]:
        raise InputError(f"{path}: the column {missing[0]!r} is missing. {advice}")
    if doubled := [name for name in required if columns.count(name) > 1]:
        raise InputError(f"{path}: two columns are called {doubled[0]!r}. Remove or rename one.")
    return columns, rows


def read_regions(path: Path | None) -> Excluded:
    """Read a BED file: record name, 0-based start, end; further columns are ignored.

    Without a file, there are no regions.

    Raises
    ------
    InputError
        If the file cannot be read, or a line has no valid region.
    """
    if path is None:
        return {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: the regions cannot be read ({error})") from error
    regions: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith(("#", "track", "browser")):
            continue
        cells = line.split("\t")
        try:
            start, end = int(cells[1]), int(cells[2])
        except (IndexError, ValueError):
            start = end = -1
        if not 0 <= start < end:
            raise InputError(
                f"{path}, line {number}: not a region; give a tab-separated BED file with the "
                "columns record, start and end"
            )
        regions[cells[0]].append((start, end))
    return dict(regions)
