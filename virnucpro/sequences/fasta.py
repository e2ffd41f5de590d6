"""FASTA, divided into entries.

dnaio's reader is not used for FASTA: it decodes by the locale, so that a header which is not ASCII
stops it or not depending on the machine, it leaves out lines that begin with ``#``, and it takes
line after line in Python, at a fifth of the speed of what is below. (FASTQ goes through dnaio.)
"""

from collections.abc import Iterator

from virnucpro.errors import InputError

__all__ = ["split_fasta"]

_HEADER_BYTES = 1 << 24


def split_fasta(blocks: Iterator[bytes], path: str) -> Iterator[tuple[bytes, bytes]]:
    r"""Divide a FASTA file into entries.

    Lines end in ``\n``, ``\r\n`` or ``\r``. An entry begins with a line that begins with ``>``; a
    ``>`` within a line begins nothing.

    Parameters
    ----------
    blocks
        The file's content; its first byte is the first ``>``.
    path
        Named in errors.

    Yields
    ------
    header : bytes
        The line after ``>``.
    body : bytes
        All further lines, line ends included.

    Raises
    ------
    InputError
        When a header has no end.
    """
    header: bytes | None = None
    pieces: list[bytes] = []
    for text in _with_whole_headers(blocks, path):
        continued, *entries = _at_headers(text)
        pieces.append(continued)
        for entry in entries:
            if header is not None:
                yield header, b"".join(pieces)
            header, _, body = entry.partition(b"\n")
            pieces = [body]
    if header is not None:
        yield header, b"".join(pieces)


def _with_whole_headers(blocks: Iterator[bytes], path: str) -> Iterator[bytes]:
    """Cut the text anew, so that no header is cut, and each follows a line end in its own piece."""
    rest = b"\n"
    for block in blocks:
        text = rest + block.replace(b"\r", b"\n")
        cut = text.rfind(b"\n")
        if cut < 0 or text[cut + 1 : cut + 2] not in {b"", b">"}:
            cut = len(text)
        rest = text[cut:]
        if len(rest) > _HEADER_BYTES:
            raise InputError(
                f"{path}: a header is longer than {_HEADER_BYTES >> 20} MiB, it starts with "
                f"{rest[1:41]!r}; give a FASTA file with complete header lines"
            )
        yield text[:cut]
    yield rest + b"\n"


def _at_headers(text: bytes) -> list[bytes]:
    """Split at every ``>`` that follows a line end: first the remainder of an earlier entry."""
    entries: list[bytes] = []
    # A search for two bytes is six times slower than for one, and ``>`` is rare elsewhere.
    entry: list[bytes] = []
    for part in text.split(b">"):
        if entry and entry[-1].endswith(b"\n"):
            entries.append(b">".join(entry))
            entry = []
        entry.append(part)
    entries.append(b">".join(entry))
    return entries
