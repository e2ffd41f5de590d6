"""FASTA files, divided into entries.

Reasons against dnaio's FASTA reader: it decodes headers by the locale and fails on some that are
not ASCII, it drops lines that begin with ``#``, and its loop over lines in Python has a fifth of
the throughput of this module. FASTQ is read by dnaio.
"""

from collections.abc import Iterator

from virnucpro.errors import InputError

__all__ = ["split_fasta"]

_HEADER_BYTES = 1 << 24


def split_fasta(blocks: Iterator[bytes], path: str) -> Iterator[tuple[bytes, bytes]]:
    r"""Divide a FASTA file into entries.

    Lines end in ``\n``, ``\r\n`` or ``\r``. A line that begins with ``>`` starts an entry; a ``>``
    within a line does not.

    Parameters
    ----------
    blocks
        Content of the file; its first byte is the first ``>``.
    path
        Name of the file for errors.

    Yields
    ------
    header : bytes
        The first line, without ``>``.
    body : bytes
        All other lines, including their line ends.

    Raises
    ------
    InputError
        When a header is longer than 16 MiB.
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
    """Join and divide blocks so that each header and the line end before it are in one block."""
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
    """Split at every ``>`` after a line end; the first part continues an earlier entry."""
    entries: list[bytes] = []
    # A search for two bytes takes six times as long as for one, and other ``>`` are rare.
    entry: list[bytes] = []
    for part in text.split(b">"):
        if entry and entry[-1].endswith(b"\n"):
            entries.append(b">".join(entry))
            entry = []
        entry.append(part)
    entries.append(b">".join(entry))
    return entries
