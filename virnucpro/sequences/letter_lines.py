"""Find the line of a letter in an input file, for an error message: the file is read again."""

import io
from pathlib import Path

from virnucpro.sequences.entries import BlockStream, read_blocks

__all__ = ["line_of_letter"]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf".decode("latin-1")
_LINES_A_RECORD = 4
_WITHOUT_SPACE = str.maketrans("", "", " \t\n\v\f")


def line_of_letter(path: str, record: int, letter: int) -> int | None:
    """Return the line that contains a letter of a record, from 1; None if `path` is no file.

    Parameters
    ----------
    path
        A FASTA or FASTQ file, plain or compressed.
    record, letter
        Number of the record in the file, and of the letter in the record without white space, both
        from 1.

    Raises
    ------
    InputError
        If the file cannot be read again.
    """
    if not Path(path).is_file():  # a pipe or standard input can be read only once
        return None
    blocks = io.BufferedReader(BlockStream(read_blocks(path)))
    # Universal line ends: \n, \r\n and \r, as in the reader of records.
    with io.TextIOWrapper(blocks, "latin-1") as stream:
        found = 0
        for number, line in enumerate(stream, 1):
            text = line if found else line.removeprefix(_BYTE_ORDER_MARK).lstrip()
            if not found and text.startswith("@"):
                return number + _LINES_A_RECORD * (record - 1) + 1
            if text.startswith(">"):
                found += 1
            elif found == record:
                letter -= len(text.translate(_WITHOUT_SPACE))
                if letter <= 0:
                    return number
    return None
