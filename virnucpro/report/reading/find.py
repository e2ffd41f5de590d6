"""Find one record of a run by its name, or by its file and number."""

from difflib import get_close_matches
from typing import Final

from virnucpro.console import shortened
from virnucpro.errors import UsageError
from virnucpro.report.reading.records import RecordTable, read_columns
from virnucpro.report.tsv import NA

__all__ = ["find_record"]

_SHOWN: Final = 5


def find_record(
    table: RecordTable, name: str | None, file: str | None = None, number: int | None = None
) -> int:
    """Return the row of a record in predictions.tsv, from 0.

    Parameters
    ----------
    name, file, number
        Name of the record, its input file and its number in this file; None for any.

    Raises
    ------
    UsageError
        If no record, or more than one, is so; the message names the nearest names, or the records.
    StoreError
        If the table is damaged.
    """
    found: list[tuple[int, str, str, str]] = []
    names: dict[str, None] = {}
    row = 0
    for header, columns, _ in read_columns(table.path, ("seq_name",)):
        cells = dict(zip(header, columns, strict=True))
        own = cells["seq_name"]
        missing = (NA,) * len(own)
        files, numbers = cells.get("file", missing), cells.get("record", missing)
        for offset, one in enumerate(zip(own, files, numbers, strict=True)):
            wanted = (name, file, None if number is None else str(number))
            if all(want in (None, cell) for want, cell in zip(wanted, one, strict=True)):
                found.append((row + offset, *one))
        names |= dict.fromkeys(own)
        row += len(own)
    if len(found) == 1:
        return found[0][0]
    place = f"{table.path}: "
    asked = " ".join(
        [
            f"named {shortened(name)}" if name is not None else "",
            f"of file {shortened(file)}" if file is not None else "",
            f"with number {number}" if number is not None else "",
        ]
    ).split()
    if not found:
        near = get_close_matches(name or "", names, n=1)
        hint = f": did you mean {shortened(near[0])}?" if near else ""
        raise UsageError(f"{place}no sequence {' '.join(asked)}{hint}")
    choices = "\n".join(
        f"--file {shortened(file)} --record {record}" for _, _, file, record in found[:_SHOWN]
    )
    more = f"\nand {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
    raise UsageError(
        f"{place}{len(found):,} sequences {' '.join(asked)}; choose one of them:\n{choices}{more}"
    )
