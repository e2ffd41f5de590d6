"""FASTQ files, read by dnaio.

dnaio rejects headers that are not ASCII and blank lines at the end of a file. This module encodes
the former and removes the latter.
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

# A byte that is not ASCII becomes an escape byte and two hexadecimal digits; so does the escape.
_ESCAPE = b"\x1a"
_TO_ESCAPE = re.compile(rb"[\x1a\x80-\xff]")
_ESCAPED = re.compile(rb"\x1a([0-9a-f]{2})")


def split_fastq(blocks: Iterator[bytes], path: str) -> Iterator[tuple[bytes, bytes]]:
    r"""Divide a FASTQ file into records of four lines each.

    Lines end in ``\n`` or ``\r\n``. Blank lines at the end are ignored.

    Parameters
    ----------
    blocks
        Content of the file; its first byte is the first ``@``.
    path
        Name of the file for errors.

    Yields
    ------
    header : bytes
        The first line, without ``@``.
    sequence : bytes
        The second line.

    Raises
    ------
    InputError
        When a record does not have four lines, or its numbers of qualities and letters differ.
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
    """Delay line ends until more text follows; keep the empty lines of an empty last record."""
    held = b""
    ended_lines = 0
    for block in blocks:
        text = held + block
        body = text.rstrip(b"\r\n")
        held = text[len(body) :]
        ended_lines += body.count(b"\n")
        if body:
            yield body
    missing = -(ended_lines + 1) % _LINES_A_RECORD
    yield b"\n" * (1 + min(missing, max(held.count(b"\n") - 1, 0)))


def _escape(text: bytes) -> bytes:
    if text.isascii() and _ESCAPE not in text:
        return text
    return _TO_ESCAPE.sub(lambda match: _ESCAPE + match[0].hex().encode(), text)


def _unescape(text: bytes) -> bytes:
    if _ESCAPE not in text:
        return text
    return _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), text)
