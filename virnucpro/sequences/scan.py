"""Cut inputs into blocks: consecutive whole records, as ranges of bytes of plain FASTA or FASTQ.

A file is read once: a hash of its plain bytes, and the places where records begin. Files that have
no place to read from again, or are compressed or alignments, are first written as plain text.

A record longer than a block is a block of its own. To divide it, `Block` needs two numbers, part
and parts: each part reads the whole record, and computes its share of windows and pieces.
"""

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from itertools import chain, pairwise
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from virnucpro.arrays import IntArray
from virnucpro.errors import InputError, UsageError
from virnucpro.sequences.alignments import is_alignment, split_alignments
from virnucpro.sequences.entries import (
    LINES,
    STANDARD_INPUTS,
    FilePart,
    Input,
    is_plain,
    read_blocks,
)
from virnucpro.sequences.mates import grouped, is_mate
from virnucpro.sequences.records import content_start, require_sequences
from virnucpro.sequences.spec import Pairs

BLOCK_BYTES: Final = 1 << 20
"""Bytes from which on a block ends with its last record."""

_Cut: TypeAlias = tuple[int, int]
"""A place at which a record begins: its byte, and the number of the records before."""


class Span(NamedTuple):
    """Consecutive whole records of one file.

    Attributes
    ----------
    file
        Position of the file in the inputs.
    start, end
        Bytes of its plain text, half open.
    first
        Number of the records of the file before; of paired reads, each mate is one.
    """

    file: int
    start: int
    end: int
    first: int


class Block(NamedTuple):
    """Consecutive whole records of a run.

    Attributes
    ----------
    spans
        Their places: one, or two if the mates are in two files.
    first_record, n_records
        Number of the records of the file before, and of the block, as in the outputs: a pair is
        one.
    """

    spans: tuple[Span, ...]
    first_record: int
    n_records: int


@dataclass(frozen=True, slots=True)
class PlainFile:
    """An input file and its plain text.

    Attributes
    ----------
    path
        Path as given by the user.
    text
        Path of the plain text; the same for a plain file.
    aligned
        Whether the file has alignments.
    sha256, n_bytes
        SHA-256 and size of the plain text.
    """

    path: str
    text: str
    aligned: bool = False
    sha256: str = ""
    n_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Scan:
    """The input files of a run, and the blocks of all their records in input order.

    Without any record, there is one empty block.
    """

    files: tuple[PlainFile, ...]
    blocks: tuple[Block, ...]

    def parts(self, block: Block) -> list[FilePart]:
        """Read the records of a block, as inputs of `virnucpro.sequences.builder`.

        Raises
        ------
        InputError
            If a file cannot be read, or is shorter than before.
        """
        return [self._part(span) for span in block.spans]

    def _part(self, span: Span) -> FilePart:
        file = self.files[span.file]
        try:
            with Path(file.text).open("rb") as stream:
                stream.seek(span.start)
                text = stream.read(span.end - span.start)
        except OSError as error:
            raise InputError(
                f"{file.path}: the file cannot be read again ({error.strerror}); restore it"
            ) from error
        if len(text) < span.end - span.start:
            raise InputError(f"{file.path}: the file is shorter than before; restore it")
        return FilePart(file.path, BytesIO(text), span.first, file.aligned)


def scan(
    inputs: Sequence[Input], pairs: Pairs | None, folder: Path, n_bytes: int = BLOCK_BYTES
) -> Scan:
    """Read all inputs once and cut them into blocks.

    Parameters
    ----------
    inputs
        As for `virnucpro.sequences.records.read_groups`.
    pairs
        Where the mates of paired reads are; None for single sequences.
    folder
        Folder for the plain text of the inputs that need one.
    n_bytes
        Bytes from which on a block ends; those of the first mates if they have a file of their own.

    Raises
    ------
    InputError
        When an input cannot be read, or is not a file of sequences.
    UsageError
        When standard input is given twice, or a file of mates has no second one.
    OSError
        When the plain text cannot be written.
    """
    if sum(path in STANDARD_INPUTS for path in inputs) > 1:
        raise UsageError("standard input can be read only once: give the input - only once")
    files: dict[int, PlainFile] = {}
    blocks: list[Block] = []
    for group in grouped(inputs, pairs):
        paths = [inputs[number] for number in group]
        texts = _plain_texts(paths, group, folder, paired=pairs is not None)
        scans = [_FileScan(file) for file, _ in texts]
        units = texts[0][1]
        step = 2 if pairs and len(group) == 1 and not units else 1
        cuts = [scans[0].cut(n_bytes, step, units)]
        cuts += [other.cut_at([number for _, number in cuts[0]]) for other in scans[1:]]
        for number, one in zip(group, scans, strict=True):
            files[number] = one.result()
        if any(one.n_records for one in scans):
            cuts = [[*some, one.end] for some, one in zip(cuts, scans, strict=True)]
            blocks += _blocks(group, cuts, step, units)
    if not blocks:
        group = grouped(inputs, pairs)[0]
        blocks = [Block(tuple(Span(number, 0, 0, 0) for number in group), 0, 0)]
    return Scan(tuple(files[number] for number in range(len(inputs))), tuple(blocks))


def _plain_texts(
    paths: Sequence[Input], numbers: Sequence[int], folder: Path, *, paired: bool
) -> list[tuple[PlainFile, Sequence[int]]]:
    """Return files that are read together as plain text, and the first reads of their records.

    Two pipes are read at the same time, because their writer may wait for either.
    """
    write = partial(_plain_text, folder=folder, paired=paired)
    if len(paths) == 1:
        return [write(paths[0], numbers[0])]
    with ThreadPoolExecutor(len(paths), "virnucpro-inputs") as pool:
        return [*pool.map(write, paths, numbers)]


def _plain_text(
    path: Input, number: int, *, folder: Path, paired: bool
) -> tuple[PlainFile, Sequence[int]]:
    blocks = read_blocks(path)
    start = next(blocks, b"")
    aligned = is_alignment(start, path)
    if not aligned and is_plain(path):
        return PlainFile(str(path), str(path)), ()
    text = folder / f"{number}.txt"
    if aligned:
        return PlainFile(str(path), str(text), aligned=True), _write_reads(
            text, path, paired=paired
        )
    with text.open("wb") as stream:
        stream.writelines(chain([start], blocks))
    return PlainFile(str(path), str(text)), ()


def _write_reads(text: Path, path: Input, *, paired: bool, qualities: bool = True) -> Sequence[int]:
    """Write reads as FASTQ, or as FASTA if one lacks qualities.

    Return the numbers of the reads with which the records of paired reads begin, else nothing.
    """
    units = array("q")
    has_first = False
    with text.open("wb") as stream:
        for number, (name, letters, of_letters, _) in enumerate(split_alignments(path)):
            if not qualities:
                stream.write(b">%b\n%b\n" % (name, letters))
            elif of_letters is None:
                return _write_reads(text, path, paired=paired, qualities=False)
            else:
                stream.write(b"@%b\n%b\n+\n%b\n" % (name, letters, of_letters))
            has_first = paired and not has_first
            if has_first:
                units.append(number)
                has_first = is_mate(name)
    return units


def _blocks(
    group: Sequence[int], cuts: Sequence[list[_Cut]], step: int, units: Sequence[int]
) -> Iterator[Block]:
    """Yield the blocks of one file, or of two files of mates, between their cuts."""
    for of_files in zip(*map(pairwise, cuts), strict=True):
        spans = tuple(
            Span(number, start, end, first)
            for number, ((start, first), (end, _)) in zip(group, of_files, strict=True)
        )
        (_, first), (_, after) = of_files[0]
        if units:
            first, after = bisect_left(units, first), bisect_left(units, after)
        yield Block(spans, first // step, after // step - first // step)


class _FileScan:
    """One reading of a plain file; afterwards, `n_records` and `end` are those of the whole file.

    Of paired reads, each mate is a record here.
    """

    def __init__(self, file: PlainFile) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._n_bytes = 0
        self.n_records = 0

    @property
    def end(self) -> _Cut:
        """Size of the file, and number of its records."""
        return self._n_bytes, self.n_records

    def result(self) -> PlainFile:
        """Return the file with the digest of its text."""
        return replace(self._file, sha256=self._hash.hexdigest(), n_bytes=self._n_bytes)

    def cut(self, n_bytes: int, step: int, units: Sequence[int]) -> list[_Cut]:
        """Return the cuts behind each `n_bytes`: at every `step`-th record, or one of `units`."""
        cuts, wanted = [(0, 0)], n_bytes
        allowed = np.append(np.array(units, np.int64), -1)
        for first, starts in self._record_starts():
            numbers = np.arange(first, first + len(starts))
            able = (numbers % step == 0) & (numbers > 0)
            if len(units):
                able &= allowed[np.searchsorted(allowed[:-1], numbers)] == numbers
            places, numbers = starts[able], numbers[able]
            while (at := int(np.searchsorted(places, wanted))) < len(places):
                cuts.append((int(places[at]), int(numbers[at])))
                wanted = cuts[-1][0] + n_bytes
        return cuts

    def cut_at(self, wanted: Sequence[int]) -> list[_Cut]:
        """Return the cuts at records with given numbers; at the end of the file if it has fewer."""
        places = {0: 0}
        numbers = np.array(wanted)
        for first, starts in self._record_starts():
            here = numbers[(numbers >= max(first, 1)) & (numbers < first + len(starts))]
            places |= zip(here.tolist(), starts[here - first].tolist(), strict=True)
        return [(places.get(number, self._n_bytes), number) for number in wanted]

    def _record_starts(self) -> Iterator[tuple[int, IntArray]]:
        """Read the file; yield, for each part, the number of records before it, and their starts.

        A FASTQ record has four lines. Another line in its place is an error, which the reader of
        the block before raises.
        """
        blocks = self._hashed(read_blocks(self._file.text))
        start = content_start(blocks)
        require_sequences(start, self._file.path)
        offset, last, n_lines = self._n_bytes - len(start), b"\n", 0
        for block in chain([start], blocks):
            if start[:1] == b">":
                text = np.frombuffer((last + block).replace(b"\r", b"\n"), np.uint8)
                starts = np.flatnonzero(text[1:] == ord(">"))
                starts = starts[text[starts] == ord("\n")]
            else:
                text = np.frombuffer(last + block, np.uint8)
                ends = np.flatnonzero(text[:-1] == ord("\n"))
                starts = ends[-n_lines % LINES :: LINES]
                starts = starts[text[starts + 1] == ord("@")]
                n_lines += len(ends)
            yield self.n_records, starts + offset
            self.n_records += len(starts)
            last, offset = block[-1:], offset + len(block)

    def _hashed(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        for block in blocks:
            self._hash.update(block)
            self._n_bytes += len(block)
            yield block
