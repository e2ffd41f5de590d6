"""The column of qualities, which an index has if all its records are FASTQ."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from virnucpro.sequences.columns import ColumnFile, ColumnWriter, Folder, column_path, open_writer

_NAME = "qualities"
_VALID = bytes(range(ord("!"), ord("~") + 1))
"""Characters of qualities. Source: Cock et al. 2010, doi:10.1093/nar/gkp1137."""


def first_invalid(qualities: Sequence[bytes]) -> int | None:
    """Return the position of the first qualities with other characters than ``!`` to ``~``.

    Returns None if all are valid.
    """
    if not b"".join(qualities).translate(None, _VALID):
        return None
    return next(n for n, quality in enumerate(qualities) if quality.translate(None, _VALID))


class QualitiesWriter:
    """Writes the column `qualities` as long as every record has some; else removes its file.

    Parameters
    ----------
    folder
        Folder of the index. The file is created with the first record.
    stack
        Closes the file, also after an error.
    """

    def __init__(self, folder: Folder, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._column: ColumnWriter | None = None
        self._complete = True

    def add(self, n_records: int, qualities: Sequence[bytes]) -> None:
        """Add the qualities of the next records; fewer than `n_records` remove the column."""
        if len(qualities) < n_records:
            self._complete = False
        if not self._complete or not n_records:
            return
        if self._column is None:
            self._column = self._stack.enter_context(open_writer(self._folder, _NAME))
        self._column.append(b"".join(qualities))

    def close(self) -> dict[str, ColumnFile]:
        """Complete the column; return its file, or nothing if there is no column."""
        if self._column is None:
            return {}
        file = self._column.close()
        if self._complete:
            return {_NAME: file}
        if isinstance(self._folder, Path):
            column_path(self._folder, _NAME).unlink()
        return {}
