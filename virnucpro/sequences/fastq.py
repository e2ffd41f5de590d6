"""FASTQ through dnaio, with what dnaio does not take made fit for it.

dnaio refuses headers that are not ASCII, and blank lines at the end of a file.
"""

import re
from collections.abc import Iterator
from io import BufferedReader

from dnaio import FastqFormatError, FastqReader

from virnucpro.console import shortened
from virnucpro.errors import InputError
from virnucpro.sequences.streams import BlockStream

__all__ = ["split_fastq"]

_LINES_A_RECORD = 4

# A byte that is not ASCII travels as an escape and two hexadecimal digits, and so does the escape.
_ESCAPE = b"\x1a"
_TO_ESCAPE = re.compile(rb"[\x1a\x80-\xff]")
_ESCAPED = re.compile(rb"\x1a([0-9a-f]{2})")


def split_fastq(blocks: Iterator[bytes], path: str) -> Iterator[tuple[bytes, bytes]]:
    r"""Divide a FASTQ file into records of four lines each.

    Blank lines at the end are left out; lines end in ``\n`` or ``\r\n``.

    Parameters
    ----------
    blocks
        The file's content; its first byte is the first ``@``.
    path
        Named in errors.

    Yields
    ------
    header : bytes
        The line after ``@``.
    sequence : bytes
        One line.

    Raises
    ------
    InputError
        When a record is not of four lines, or its qualities are not as many as its letters.
    """
    escaped = map(_escape, _without_trailing_blank_lines(blocks))
    stream = BufferedReader(BlockStream(escaped))
    try:
        for record in FastqReader(stream):
            yield _unescape(record.name.encode()), _unescape(record.sequence.encode())
    except FastqFormatError as error:
        raise InputError(
            f"{path}: {shortened(str(error))}; repair the file or create it again"
        ) from error


def _without_trailing_blank_lines(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Hold line ends back until more follows; a last record may end in empty lines of its own."""
    held = b""
    ended_lines = 0
    for block in blocks:
        text = held + block
        body = text.rstrip(b"\r\n")
        held = text[len(body) :]
        ended_lines += body.count(b"\n")
        if body:
            yield body
    wanting = -(ended_lines + 1) % _LINES_A_RECORD
    yield b"\n" * (1 + min(wanting, max(held.count(b"\n") - 1, 0)))


def _escape(text: bytes) -> bytes:
    if text.isascii() and _ESCAPE not in text:
        return text
    return _TO_ESCAPE.sub(lambda match: _ESCAPE + match[0].hex().encode(), text)


def _unescape(text: bytes) -> bytes:
    if _ESCAPE not in text:
        return text
    return _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), text)
