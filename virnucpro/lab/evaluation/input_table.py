"""Reads the tables that users give: labels, and predictions of tools."""

import csv
from pathlib import Path

from virnucpro.errors import InputError


class _Plain(csv.excel_tab):
    """Tab-separated cells without quotes."""

    quoting = csv.QUOTE_NONE


def read_rows(path: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """Read a TSV or CSV file; return the names of its columns, and its rows with their lines.

    Missing cells at the end of a row are empty. Empty rows are skipped.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            header = stream.readline()
            stream.seek(0)
            dialect = csv.excel if "," in header and "\t" not in header else _Plain
            reader = csv.DictReader(stream, dialect=dialect, restval="")
            columns = list(reader.fieldnames or ())
            rows = [(reader.line_num, row) for row in reader if any(row.values())]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: the table cannot be read ({error})") from error
    return columns, rows
