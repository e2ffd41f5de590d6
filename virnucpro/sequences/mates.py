"""Join the mates of paired reads: a pair is one record.

The record is the first mate, a run of N (`JOINT`) and the reverse complement of the second mate. So
both are on one strand, and windows are placed around the run, as around any long run of N. The name
is that of the mates without ``/1`` and ``/2``, ``.1`` and ``.2``, or ``_1`` and ``_2``.
"""

import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from select import select
from stat import S_ISFIFO
from typing import Final

import numpy as np

from virnucpro.arrays import IntArray
from virnucpro.console import shortened
from virnucpro.errors import InputError, UsageError
from virnucpro.sequences.alignments import has_alignments
from virnucpro.sequences.entries import (
    STANDARD_INPUT,
    Input,
    OpenInput,
    records_before,
)
from virnucpro.sequences.records import Record, Records, one_by_one, read_records
from virnucpro.sequences.spec import Pairs
from virnucpro.sequences.translation import reverse_complement, reverse_complements

JOINT: Final = b"N" * 25
"""Letters between the mates; long enough that windows are placed around them."""
_JOINT_QUALITIES: Final = b"!" * len(JOINT)
_FIRST: Final = "/1"
_SECOND: Final = "/2"
_OTHER_FIRST: Final = (".1", "_1")
"""Ends of the names of first mates in read archives and of simulators."""
_ENDS: Final = (_FIRST.encode(), _SECOND.encode())
_PAIRS_OF_ENDS: Final = {_ENDS, *((end.encode(), f"{end[0]}2".encode()) for end in _OTHER_FIRST)}
_ADVICE: Final = "give the mates in the same order, without reads that have no mate"
_COLLATE: Final = "collate the file by name (samtools collate), without reads that have no mate"
_AT_ONCE: Final = 1 << 16
"""Bytes of a read from a pipe that need not be there yet."""


def joint_letters(lengths: IntArray, mates: IntArray) -> IntArray:
    """Return the letters between the mates of each record: 0 for a single read.

    Parameters
    ----------
    lengths
        ``(n,)``, letters of the records, with those between the mates.
    mates
        ``(n,)``, letters of the first mates; of a single read, its own.
    """
    return np.where(mates < lengths, len(JOINT), 0)


def split_pairs(
    sequences: Sequence[bytes], mates: Sequence[int]
) -> tuple[list[bytes], list[bytes]]:
    """Return both mates of records, as in the input; `mates` are the lengths of the first ones."""
    pairs = [*zip(sequences, mates, strict=True)]
    second = reverse_complements([sequence[first + len(JOINT) :] for sequence, first in pairs])
    return [sequence[:first] for sequence, first in pairs], second


def grouped(inputs: Sequence[Input], pairs: Pairs | None) -> list[tuple[int, ...]]:
    """Return the positions of the inputs that are read together: two for files of mates, else one.

    A file of alignments has both mates.

    Raises
    ------
    UsageError
        If a file of first mates has no file of second mates.
    InputError
        If this file does not exist.
    """
    groups: list[tuple[int, ...]] = []
    numbers = iter(range(len(inputs)))
    for number in numbers:
        if pairs != "files" or has_alignments(inputs[number]):
            groups.append((number,))
            continue
        other = next(numbers, None)
        if other is None or has_alignments(inputs[other]):
            first = inputs[number]
            if isinstance(first, str) and first != STANDARD_INPUT and not Path(first).exists():
                raise InputError(f"{first}: the file does not exist; check its path")
            raise UsageError(
                f"--paired takes two files for each sample, R1 and R2, but {first} has no "
                "second file; give both, or --interleaved for mates in one file"
            )
        groups.append((number, other))
    return groups


def read_pairs(
    paths: Sequence[Input], read: Callable[[Input], Iterator[Record | Records]] = read_records
) -> Iterator[Record | Records]:
    """Read paired reads from two files, or from one file in which second mates follow first ones.

    Mates in alignments are next to each other, in any order; reads without the flag of a mate are
    single reads.

    Parameters
    ----------
    paths
        One or two files.
    read
        `read_records`, or `virnucpro.sequences.records.read_groups` for groups; with its options.

    Yields
    ------
    Record, Records
        The joined mates.

    Raises
    ------
    InputError
        As `read`; if names or numbers of the mates differ, or a mate is too long.
    """
    if len(paths) == 1:
        yield from _of_one_file(paths[0], one_by_one(read(paths[0])))
        return
    with ExitStack() as stack:
        opened = [_opened_pipe(path, stack) for path in paths]
        yield from _of_two_files(paths, [_Side(read(path)) for path in opened])


def is_mate(name: bytes) -> bool:
    """Return whether a read of a file of alignments has the flag of a mate."""
    return name.endswith(_ENDS)


class _Pipe(io.BufferedReader):
    """A named pipe, whose large reads return what is there: its writer may write elsewhere first.

    Opening does not wait for the writer; the first read does.
    """

    _waits = True

    def read(self, size: int | None = -1) -> bytes:
        """Read `size` bytes; of a block or more, at least one byte unless the pipe has ended."""
        if self._waits:
            select([self], [], [])
            self._waits = False
        return super().read(size) if size is None or size < _AT_ONCE else self.read1(size)


def _opened_pipe(path: Input, stack: ExitStack) -> Input:
    """Return the open input of a named pipe, which `stack` closes; another input is unchanged.

    Two pipes of one writer must both be open before one of them is read.
    """
    with suppress(OSError, ValueError):  # raised again where the file is read
        if isinstance(path, str) and S_ISFIFO(Path(path).stat().st_mode):
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            pipe = stack.enter_context(_Pipe(io.FileIO(handle)))
            os.set_blocking(handle, True)
            return OpenInput(path, pipe)
    return path


def _of_two_files(paths: Sequence[Input], files: Sequence["_Side"]) -> Iterator[Record | Records]:
    number = records_before(paths[0])
    while any(ready := [file.ready() for file in files]):
        both = [file.take(max(1, min(ready))) for file in files]
        if records := _joined_records(*both):
            number += len(records.names)
            yield records
            continue
        for first, second in zip(*(one_by_one([group]) for group in both), strict=True):
            number += 1
            if first is None or second is None:
                ended, longer = paths if first is None else reversed(paths)
                name = shortened((first or second).name)
                raise InputError(
                    f"{ended}: ends before record {number}, but {longer} has it ({name}); {_ADVICE}"
                )
            yield _joined(first, second, f"{paths[0]} and {paths[1]}: record {number}")


class _Side:
    """The records of one of two files of mates, one by one or many at once."""

    def __init__(self, groups: Iterator[Record | Records]) -> None:
        self._groups = groups
        self._group: Record | Records | None = None
        self._first = 0

    def ready(self) -> int:
        """Return how many records can be taken at once, 0 at the end of the file."""
        if self._group is None:
            self._group, self._first = next(self._groups, None), 0
        if isinstance(self._group, Records):
            return len(self._group.names) - self._first
        return int(self._group is not None)

    def take(self, number: int) -> Record | Records | None:
        """Return the next records, of those that are ready; None at the end of the file."""
        group, first = self._group, self._first
        self._first += number
        if not isinstance(group, Records):
            self._group = None
            return group
        if self._first == len(group.names):
            self._group = None
        return group.part(first, self._first)


def _of_one_file(path: Input, records: Iterator[Record]) -> Iterator[Record]:
    aligned = has_alignments(path)
    number = records_before(path)
    for first in records:
        number += 1
        if aligned and not first.name.endswith((_FIRST, _SECOND)):  # by its flags, a single read
            yield first._replace(mate=len(first.sequence))
            continue
        second = next(records, None)
        if second is None:
            raise InputError(
                f"{path}: record {number} ({shortened(first.name)}) has no mate: the file ends "
                f"here; {_COLLATE if aligned else _ADVICE}"
            )
        pair = (second, first) if aligned and first.name.endswith(_SECOND) else (first, second)
        yield _joined(*pair, f"{path}: records {number} and {number + 1}", aligned=aligned)
        number += 1


def _common(first: str, second: str) -> str:
    """Return the name of both mates; "" if the names are not those of mates."""
    if first == second:
        return "" if first.endswith((_FIRST, _SECOND)) else first
    name = first.removesuffix(_FIRST)
    if name == second.removesuffix(_SECOND):
        return name
    numbered = first.endswith(_OTHER_FIRST) and second == f"{first[:-1]}2"
    return first[:-2] if numbered else ""


def _joined_records(
    first: Record | Records | None, second: Record | Records | None
) -> Records | None:
    """Join many mates at once; None unless all names are alike."""
    if not isinstance(first, Records) or not isinstance(second, Records):
        return None
    if first.names == second.names:
        names = first.names
        if any(name.endswith(_ENDS) for name in names):
            return None
    else:
        names = [name[:-2] for name in first.names]
        ends = first.names[0][-2:], second.names[0][-2:]
        if ends not in _PAIRS_OF_ENDS or not all(names):
            return None
        for end, mates in zip(ends, (first, second), strict=True):
            if [name + end for name in names] != mates.names:
                return None
    others = reverse_complements(second.sequences)
    qualities = b"\n".join(second.qualities)[::-1].split(b"\n")[::-1]
    return Records(
        names,
        [a + JOINT + b for a, b in zip(first.sequences, others, strict=True)],
        [a + _JOINT_QUALITIES + b for a, b in zip(first.qualities, qualities, strict=True)],
        [*map(len, first.sequences)],
    )


def _joined(first: Record, second: Record, place: str, *, aligned: bool = False) -> Record:
    name = _common(first.name, second.name)
    if not name:
        names = f"{shortened(first.name)} and {shortened(second.name)}"
        advice = _COLLATE if aligned else _ADVICE
        raise InputError(f"{place}: the names {names} are not those of two mates; {advice}")
    for mate in (first, second):
        if mate.too_long:
            raise InputError(
                f"{place}: a mate of {mate.too_long:,} letters is too long for paired reads; give "
                "a larger --max-record, or the reads without --paired and --interleaved"
            )
    qualities = None
    if first.qualities is not None and second.qualities is not None:
        qualities = first.qualities + _JOINT_QUALITIES + second.qualities[::-1]
    return Record(
        name,
        first.sequence + JOINT + reverse_complement(second.sequence),
        first.gaps + second.gaps,
        first.problem or (second.problem and f"mate 2: {second.problem}"),
        qualities,
        len(first.sequence),
    )
