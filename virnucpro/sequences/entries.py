"""Entries of FASTA and FASTQ files, plain or compressed: header, body (sequence), qualities.

Other programs' readers (such as dnaio) decode headers, and cannot leave out the letters of a record
that would fill the memory.
"""

import io
import math
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple, TypeAlias

from virnucpro.console import shortened
from virnucpro.errors import InputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

STANDARD_INPUT = "-"
"""Name of standard input in a list of files."""
STANDARD_INPUTS: Final = (STANDARD_INPUT, "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
"""All paths of standard input; it can be read once."""


def shown_path(path: str) -> str:
    """Return a path as outputs contain it: ``stdin`` for standard input."""
    return "stdin" if path in STANDARD_INPUTS else path


@dataclass(frozen=True)
class OpenInput:
    """An open binary stream, in place of the path of a file; `path` names it in messages."""

    path: str
    stream: BinaryIO

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True)
class FilePart(OpenInput):
    """Some records of a file, as plain FASTA or FASTQ; `path` is that of the file.

    Attributes
    ----------
    first
        Number of the records of the file before this part.
    aligned
        Whether the file has alignments.
    """

    first: int = 0
    aligned: bool = False


Input: TypeAlias = str | OpenInput


def records_before(path: Input) -> int:
    """Return the number of the records of a file before the first one that is read."""
    return path.first if isinstance(path, FilePart) else 0


_BLOCK_BYTES = 1 << 20

# First bytes by compression, which is detected by content: file names may be wrong. Sources: RFC
# 1952; the bzip2 and xz file formats; RFC 8878, whose skippable frames may come first.
_SIGNATURES = {
    b"\x1f\x8b": "gz",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zst",
    **{bytes([low, 0x2A, 0x4D, 0x18]): "zst" for low in range(0x50, 0x60)},
}
SIGNATURE_BYTES: Final = max(map(len, _SIGNATURES))
"""First bytes of a file that show its compression."""


class BlockStream(io.RawIOBase):
    """File object that reads from an iterator of blocks of bytes.

    Parameters
    ----------
    blocks
        Blocks of any size; an empty block does not end the stream.
    """

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        """Return True: `io` requires this method of a readable stream."""
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Copy bytes of the current block into the buffer; return the number of copied bytes."""
        while not self._ready:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._ready = memoryview(block)
        view = memoryview(buffer).cast("B")
        size = min(len(view), len(self._ready))
        view[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size


def read_blocks(path: Input) -> Iterator[bytes]:
    """Read a file in blocks; decompress gzip, bzip2, xz and zstandard, detected by content.

    Decompression runs in this process and thread.

    Parameters
    ----------
    path
        A file, a named pipe, or ``-`` for standard input; it and an `OpenInput` are not closed.

    Yields
    ------
    bytes
        About 1 MiB, never empty.

    Raises
    ------
    InputError
        When the file cannot be opened or read, or its compressed data are damaged or incomplete.
    """
    with ExitStack() as stack:
        raw = _open(path, stack)
        signature = _read(raw, SIGNATURE_BYTES, path)
        first = signature + _read(raw, _BLOCK_BYTES, path)
        plain = chain([first], iter(lambda: _read(raw, _BLOCK_BYTES, path), b""))
        compression = compression_of(signature)
        if compression is None:
            yield from filter(None, plain)
        else:
            yield from _decompress(plain, compression, path)


def is_plain(path: Input) -> bool:
    """Return whether an input is a file on disk without compression."""
    if isinstance(path, OpenInput) or not Path(path).is_file():
        return False
    with Path(path).open("rb") as stream:
        return compression_of(stream.read(SIGNATURE_BYTES)) is None


def compression_of(start: bytes) -> str | None:
    """Return the compression of a file by its first bytes; None without one."""
    return next((name for first, name in _SIGNATURES.items() if start.startswith(first)), None)


def _open(path: Input, stack: ExitStack) -> BinaryIO:
    if isinstance(path, OpenInput):
        return path.stream
    if path == STANDARD_INPUT:
        if sys.stdin is None:
            raise InputError("-: standard input is closed; name a file or use a pipe")
        return sys.stdin.buffer
    try:
        return stack.enter_context(Path(path).open("rb"))
    except IsADirectoryError as error:
        raise InputError(
            f"{path}: this is a directory; name its files, for example {Path(path) / '*.fa'}"
        ) from error
    except OSError as error:
        raise InputError(
            f"{path}: the file cannot be opened ({error.strerror}); check its path and permissions"
        ) from error


def _read(stream: BinaryIO, size: int, path: Input) -> bytes:
    try:
        return stream.read(size)
    except OSError as error:
        raise InputError(
            f"{path}: the file cannot be read ({error}); check the disk or copy the file again"
        ) from error


def _decompress(blocks: Iterator[bytes], compression: str, path: Input) -> Iterator[bytes]:
    decompressed = _of_streams if compression in {"bz2", "xz"} else _of_xopen
    try:
        yield from decompressed(blocks, compression)
    except InputError:
        raise
    except Exception as error:
        # Each decompressor has exception types of its own, some of them only in C modules.
        raise InputError(
            f"{path}: the {compression} data are damaged or cut off ({error}); "
            "copy or download the file again"
        ) from error


def _of_xopen(blocks: Iterator[bytes], compression: str) -> Iterator[bytes]:
    from xopen import xopen  # noqa: PLC0415 - for compressed files only

    source = io.BufferedReader(BlockStream(blocks), _BLOCK_BYTES)
    # threads=0, because with threads xopen starts an external program for each file.
    with xopen(source, "rb", threads=0, format=compression) as stream:
        while block := stream.read(_BLOCK_BYTES):
            yield block


def _of_streams(blocks: Iterator[bytes], compression: str) -> Iterator[bytes]:
    """Decompress the streams of a bzip2 or xz file.

    The file objects of `bz2` and `lzma` end without an error at the first stream with a damaged
    header.
    """
    module = import_module("bz2" if compression == "bz2" else "lzma")
    new = module.BZ2Decompressor if compression == "bz2" else module.LZMADecompressor
    decompressor = new()
    for block in blocks:
        data = block
        while True:
            if decompressor.eof:
                data = data.lstrip(b"\0") if compression == "xz" else data  # padding of streams
                if not data:
                    break
                decompressor = new()
            if text := decompressor.decompress(data, _BLOCK_BYTES):
                yield text
            data = decompressor.unused_data
            if not decompressor.eof and decompressor.needs_input:
                break
    if not decompressor.eof:
        raise EOFError("the data end within a stream")


_BGZF_END: Final = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
"""The empty block that ends a BGZF file. Source: SAM specification, section 4.1.2."""


def lacks_bgzf_end(path: str) -> bool:
    """Return whether a file on disk is BGZF without its last block: it is probably cut off."""
    with suppress(OSError):
        if os.path.isfile(path):  # noqa: PTH113 - no error for any text
            with Path(path).open("rb") as stream:
                start = stream.read(len(_BGZF_END))
                stream.seek(-min(len(_BGZF_END), os.fstat(stream.fileno()).st_size), os.SEEK_END)
                is_bgzf = start[:4] == _BGZF_END[:4] and start[10:16] == _BGZF_END[10:16]
                return is_bgzf and stream.read() != _BGZF_END
    return False


MAX_RECORD = 1_000_000_000
"""Default limit of the letters of one record, which all are in memory at once."""
WHITE_SPACE: Final = b" \t\n\r\v\f"
_HEADER_BYTES = 1 << 24


class Entry(NamedTuple):
    """One entry of a file, as it is in the file.

    Attributes
    ----------
    header
        The first line, without ``>`` or ``@``.
    body
        The letters, perhaps with white space.
    qualities
        As many as bytes of `body`; None in FASTA, and of a read without qualities.
    dropped
        Letters that are missing in `body`; 0 unless the record has more than the maximum.
    """

    header: bytes
    body: bytes
    qualities: bytes | None
    dropped: int = 0


class Entries(NamedTuple):
    """Several entries of a FASTQ file in their order, in columns; see `Entry`."""

    headers: list[bytes]
    bodies: list[bytes]
    qualities: list[bytes]


def split_fasta(blocks: Iterator[bytes], path: Input, longest: int = MAX_RECORD) -> Iterator[Entry]:
    r"""Divide a FASTA file into entries.

    Lines end in ``\n``, ``\r\n`` or ``\r``. A line that begins with ``>`` starts an entry; a ``>``
    within a line does not.

    Parameters
    ----------
    blocks
        Content of the file; its first byte is the first ``>``.
    path
        Name of the file for errors.
    longest
        Maximum letters of a record. All letters of a longer one may be dropped: a small compressed
        file could fill the memory.

    Yields
    ------
    Entry
        Its body may have line ends.

    Raises
    ------
    InputError
        When a header is longer than 16 MiB.
    """
    header: bytes | None = None
    pieces: list[bytes] = []
    size = dropped = 0  # size: an upper limit, until it exceeds the maximum
    exact = False
    for text in _with_whole_headers(blocks, path):
        continued, *entries = text.split(b"\n>")
        letters = _without_space(continued) if exact else continued.replace(b"\n", b"")
        pieces.append(letters)
        size += len(letters)
        if size > longest + 1 and not exact:  # a final stop does not count
            for place, piece in enumerate(pieces):  # one by one, for the memory
                pieces[place] = _without_space(piece)
            size, exact = sum(map(len, pieces)), True
        if dropped or size > longest + 1:
            dropped, size = dropped + size, 0
            pieces.clear()
        for entry in entries:
            if header is not None:
                yield Entry(header, b"".join(pieces), None, dropped)
            header, _, body = entry.partition(b"\n")
            pieces, size, dropped, exact = [body], len(body), 0, False
    if header is not None:
        yield Entry(header, b"".join(pieces), None, dropped)


def _without_space(text: bytes) -> bytes:
    return text.translate(None, WHITE_SPACE)


def total_bytes(inputs: Iterable[Input]) -> float:
    """Return the bytes of all inputs; infinite if one is a pipe, or cannot be read."""
    return sum(map(_size, inputs))


def _size(source: Input) -> float:
    if isinstance(source, OpenInput):
        size = source.stream.seek(0, os.SEEK_END)
        source.stream.seek(0)
        return size
    with suppress(OSError):
        if os.path.isfile(source):  # noqa: PTH113 - no error for any text
            return os.stat(source).st_size  # noqa: PTH116 - see above
    return math.inf


def too_long(path: Input, place: str, longest: int) -> InputError:
    """Return the error about a record with more letters than the limit `longest`."""
    return InputError(
        f"{path}: {place} has more than {longest:,} letters; split it. predict, embed and "
        "frames accept it with --max-record (it needs several times as many bytes of memory)"
    )


def _with_whole_headers(blocks: Iterator[bytes], path: Input) -> Iterator[bytes]:
    """Yield the text in blocks with line feeds as line ends; no block ends inside a header."""
    rest = b"\n"
    for block in blocks:
        text = rest + block.replace(b"\r", b"\n")
        cut = text.rfind(b"\n")
        if cut < 0 or text[cut + 1 : cut + 2] not in {b"", b">"}:
            cut = len(text)
        rest = text[cut:]
        if len(rest) > _HEADER_BYTES:
            raise _long_header(path, rest[1:])
        yield text[:cut]
    yield rest + b"\n"


def _long_header(path: Input, start: bytes) -> InputError:
    return InputError(
        f"{path}: a header is longer than {_HEADER_BYTES >> 20} MiB and starts with "
        f"{start[:40]!r}; give a file with complete header lines"
    )


_SEVERAL_BLOCKS: Final = 2 * _BLOCK_BYTES
LINES: Final = 4
"""Lines of a record of FASTQ."""


def split_fastq(
    blocks: Iterator[bytes], path: Input, longest: int = MAX_RECORD
) -> Iterator[Entry | Entries]:
    r"""Divide a FASTQ file into records of four lines each.

    Lines end in ``\n`` or ``\r\n``. Blank lines at the end are ignored. The whole records of a
    block are divided at once if all are plain, any other record line by line.

    Parameters
    ----------
    blocks
        Content of the file; its first byte is the first ``@``.
    path
        Name of the file for errors.
    longest
        Maximum letters of a record; letters of a longer one may be dropped.

    Yields
    ------
    Entry, Entries
        Qualities are the fourth line, as long as the second one.

    Raises
    ------
    InputError
        When a record does not have four lines, the number of qualities is not the number of
        letters, or a header is longer than 16 MiB.
    """
    stream = io.BufferedReader(BlockStream(blocks), _BLOCK_BYTES)
    most = max(longest, _SEVERAL_BLOCKS)  # also counts white space
    number = next_block = records_before(path)
    while True:
        if number >= next_block:
            text = stream.peek(1)
            reads, n_bytes = _plain_reads(text)
            if reads is None:
                next_block = number + text.count(b"\n") // LINES + 1
            else:
                stream.read(n_bytes)
                number += len(reads.headers)
                yield reads
        number += 1
        entry = _read_entry(stream, path, number, most)
        if entry is None:
            return
        yield entry


def _read_entry(
    stream: "io.BufferedReader[BlockStream]", path: Input, number: int, most: int
) -> Entry | None:
    """Return the next record, read line by line; None at the end of the file."""
    header = stream.readline(_HEADER_BYTES)
    if len(header) == _HEADER_BYTES:
        raise _long_header(path, header)
    header = header.rstrip(b"\r\n")
    if not header.strip():
        if any(map(bytes.strip, iter(partial(stream.read, _BLOCK_BYTES), b""))):
            raise _invalid_fastq(path, number, "", "its first line is blank")
        return None
    letters, dropped = _line(stream, most)
    plus = stream.readline(_HEADER_BYTES).rstrip(b"\r\n")
    qualities, _ = _line(stream, most)
    problem = ""
    if not header.startswith(b"@"):
        problem = "its first line does not begin with @"
    elif not plus.startswith(b"+"):
        problem = "its third line does not begin with +: a record has four lines"
    elif plus[1:] not in (b"", header[1:]):
        problem = "its third line has the name of another record"
    elif len(qualities) != len(letters):
        problem = f"{len(letters):,} letters, but {len(qualities):,} qualities"
    if problem:
        name = header.removeprefix(b"@").decode(errors="replace")
        problem += "" if stream.peek(1) else ", and the file ends there"
        raise _invalid_fastq(path, number, name, problem)
    return Entry(header[1:], letters, qualities, dropped)


def _plain_reads(text: bytes) -> tuple[Entries | None, int]:
    """Return the whole records at the start of a block and their bytes; None if any is not plain.

    Plain records end in line feeds, have no NUL, and none of the problems of `split_fastq`.
    """
    lines = text.split(b"\n")
    *_, rest = range(0, len(lines), LINES)
    headers, bodies, pluses, qualities = (lines[line:rest:LINES] for line in range(LINES))
    names = _after(b"@", headers)
    if (
        not names
        or b"\r" in text
        or b"\0" in text
        or len(names) < len(headers)
        or ({*pluses} != {b"+"} and _after(b"+", pluses) != names)
        or [*map(len, bodies)] != [*map(len, qualities)]
    ):
        return None, 0
    return Entries(names, bodies, qualities), len(text) - len(b"\n".join(lines[rest:]))


def _after(letter: bytes, lines: list[bytes]) -> list[bytes]:
    """Return lines without their first letter; fewer lines if another one begins with it."""
    return b"\n".join((b"", *lines)).split(b"\n" + letter)[1:]


def _invalid_fastq(path: Input, number: int, name: str, problem: str) -> InputError:
    return InputError(
        f"{path}: record {number} at line {4 * number - 3:,} ({shortened(name)}): {problem}; "
        "repair the file or create it again"
    )


def _line(stream: BinaryIO, most: int) -> tuple[bytes, int]:
    """Return a line without its end, of at most `most` bytes, and the number of other letters."""
    line = rest = stream.readline(most)
    dropped = 0
    while rest and not rest.endswith(b"\n"):
        rest = stream.readline(_BLOCK_BYTES)
        dropped += len(_without_space(rest))
    return line.removesuffix(b"\n").removesuffix(b"\r"), dropped
