"""Build a sequence index from batches of records: windows, items and rows."""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from virnucpro.arrays import IntArray
from virnucpro.console import encoded_name
from virnucpro.errors import UsageError
from virnucpro.sequences.columns import (
    COLUMNS,
    OPTIONAL_COLUMNS,
    TEMPORARY_COLUMNS,
    ColumnFile,
    Folder,
    Header,
    MemoryFolder,
    column_path,
    open_column,
    open_writer,
)
from virnucpro.sequences.entries import STANDARD_INPUTS, FilePart, Input
from virnucpro.sequences.input_rules import InputNotes, InputRules
from virnucpro.sequences.items import cut_records, divide_records
from virnucpro.sequences.mates import grouped, joint_letters, read_pairs, split_pairs
from virnucpro.sequences.records import UNNAMED, Record, Records, read_groups
from virnucpro.sequences.rows import ROW_COLUMNS, write_rows
from virnucpro.sequences.spec import ContentDigest, IndexSpec, InputFile, RecordStatus

_BATCH_BYTES = 1 << 20
# Bytes added for each record to the size of a batch, so that empty records are limited too.
_RECORD_BYTES = 100
_LONGEST = 2**31 - 1

_RUNNING_SUMS = (
    "name_first",
    "record_first_base",
    "record_first_window",
    "record_first_piece",
    "window_first_item",
)

ReadListener: TypeAlias = Callable[[int, int], object]
"""Called with the numbers of records and letters that have been read, about once per MB."""


def no_listener(_records: int, _letters: int) -> None:
    """Do nothing."""


class _Batch(NamedTuple):
    """Names in UTF-8, sequences and qualities of several records.

    `qualities` is empty if they are not stored, or if one of the records lacks them. `invalid` are
    positions of records with invalid letters. `mates` are the letters of the first mates.
    `too_long` are the letters of too long records, by their positions.
    """

    names: list[bytes]
    sequences: list[bytes]
    qualities: list[bytes]
    invalid: list[int]
    mates: list[int]
    too_long: dict[int, int]

    @classmethod
    def empty(cls) -> "_Batch":
        return cls([], [], [], [], [], {})

    @property
    def n_letters(self) -> int:
        """Number of the letters of all records."""
        return sum(map(len, self.sequences)) + sum(self.too_long.values())


def input_digests(
    inputs: Sequence[str], spec: IndexSpec, rules: InputRules | None = None
) -> tuple[InputFile, ...]:
    """Read all inputs and return their digests, without writing an index.

    `virnucpro.sequences.spec.fingerprint` of the digests equals the fingerprint of an index of
    these inputs.

    Raises
    ------
    InputError
        As `virnucpro.sequences.index.build_index`.
    """
    reader = _Reader(inputs, spec, rules or InputRules())
    deque(reader.batches(), maxlen=0)
    return reader.digests()


def write_columns(
    folder: Folder, inputs: Sequence[Input], spec: IndexSpec, read: ReadListener, rules: InputRules
) -> Header:
    """Read all inputs and write the columns of their index; return the content of its header.

    Raises
    ------
    InputError, UsageError
        As `virnucpro.sequences.index.build_index`.
    """
    if sum(path in STANDARD_INPUTS for path in inputs) > 1:
        raise UsageError("standard input can be read only once: give the input - only once")
    keeps_qualities = spec.kind != "whole"  # outputs of embed have no sequences
    reader = _Reader(inputs, spec, rules, qualities=keeps_qualities)
    with ExitStack() as stack:
        streamed = _StreamedColumns(
            folder, stack, paired=spec.pairs is not None, qualities=keeps_qualities
        )
        for batch in reader.batches():
            streamed.add(batch, spec)
            read(*reader.counts)
        files = streamed.close()
    files |= write_rows(folder)
    warnings = tuple(reader.warnings(folder))
    if isinstance(folder, Path):
        for name in TEMPORARY_COLUMNS:
            column_path(folder, name).unlink()
    return _header(spec, reader.digests(), files, warnings)


def column_blocks(
    inputs: Sequence[Input],
    spec: IndexSpec,
    rules: InputRules,
    n_bytes: int,
    warn: Callable[[str], object],
) -> Iterator[tuple[MemoryFolder, Header]]:
    """Read all inputs; yield the columns of an index of each block of about `n_bytes`.

    The memory needed does not depend on the number of blocks. Parameters and errors are those of
    `virnucpro.sequences.index.index_blocks`.
    """
    reader = _Reader(inputs, spec, rules, batch_bytes=n_bytes)
    for batch in reader.batches():
        if batch.names:
            folder, digest = MemoryFolder(), ContentDigest("")
            digest.add(batch.names, batch.sequences, batch.too_long)
            with ExitStack() as stack:
                streamed = _StreamedColumns(folder, stack)
                streamed.add(batch, spec)
                files = streamed.close()
            yield folder, _header(spec, (digest.result(),), files | write_rows(folder), ())
    for text in reader.notes.warnings(reader.digests(), 0, ""):
        warn(text)


class BlockContent(NamedTuple):
    """The columns of an index of one block, and the trouble of its records."""

    folder: MemoryFolder
    files: Mapping[str, ColumnFile]
    notes: InputNotes


def read_block(
    parts: Sequence[FilePart], spec: IndexSpec, rules: InputRules, first_record: int
) -> BlockContent:
    """Read the records of a block and divide them; return the columns of their index.

    Parameters
    ----------
    parts
        The block: a part of a file, or of two files of mates.
    first_record
        Number of the records before. The first ones of a file are compared with the other alphabet.

    Raises
    ------
    InputError
        When a record is invalid; its number is that in its file.
    """
    folder, keeps_qualities = MemoryFolder(), spec.kind != "whole"
    reader = _Reader(parts, spec, rules, qualities=keeps_qualities, batch_bytes=sys.maxsize)
    (batch,) = reader.read_together(parts, first_record)
    with ExitStack() as stack:
        streamed = _StreamedColumns(
            folder, stack, paired=spec.pairs is not None, qualities=keeps_qualities
        )
        streamed.add(batch, spec)
        files = streamed.close()
    files |= write_rows(folder)
    kept = {name: files[name] for name in (*COLUMNS, *OPTIONAL_COLUMNS) if name in files}
    return BlockContent(folder, kept, reader.notes)


def read_sequences(
    parts: Sequence[FilePart], spec: IndexSpec, rules: InputRules
) -> tuple[bytes, bytes]:
    """Read a block again; return the letters of its records, and their qualities, as in its index.

    Parameters and errors are those of `read_block`.
    """
    reader = _Reader(parts, spec, rules, qualities=True, batch_bytes=sys.maxsize)
    (batch,) = reader.read_together(parts, 1)
    return b"".join(batch.sequences), b"".join(batch.qualities)


def _header(
    spec: IndexSpec,
    digests: tuple[InputFile, ...],
    files: Mapping[str, ColumnFile],
    warnings: tuple[str, ...],
) -> Header:
    kept = {name: files[name] for name in (*COLUMNS, *OPTIONAL_COLUMNS) if name in files}
    return Header(spec, digests, kept, warnings)


class _Reader:
    """Reads all inputs in batches of `batch_bytes`, with or without `qualities`.

    `notes` counts the trouble of the inputs. `counts` has the numbers of records and letters that
    have been read.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        spec: IndexSpec,
        rules: InputRules,
        *,
        qualities: bool = False,
        batch_bytes: int = _BATCH_BYTES,
    ) -> None:
        self._alphabet = spec.alphabet
        self._paired = spec.pairs is not None
        self._groups = grouped(inputs, spec.pairs)
        self._qualities = qualities
        self._batch_bytes = batch_bytes
        self._rules = rules
        self.counts = [0, 0]
        self._inputs = inputs
        self._digests = [ContentDigest(str(path)) for path in inputs]
        self.notes = InputNotes(
            spec.alphabet, rules, judged=spec.kind == "whole", pieces=spec.piece is not None
        )

    def batches(self) -> Iterator[_Batch]:
        """Yield the records of all inputs, never of two inputs (or two pairs of them) at once."""
        for group in self._groups:
            digests = [self._digests[number] for number in group]
            for batch in self.read_together([self._inputs[number] for number in group]):
                _add_to(digests, batch)
                self.counts[0] += len(batch.names)
                self.counts[1] += batch.n_letters
                yield batch
            self.notes.end()

    def read_together(self, paths: Sequence[Input], first_record: int = 0) -> Iterator[_Batch]:
        """Yield the records of one file, or of two files of mates; count their trouble."""
        self.notes.begin(str(paths[0]))
        for batch in self._batches_of(paths, first_record):
            self.notes.check(batch.names, batch.sequences, judged=not first_record)
            if not self.notes.accept_qualities(batch.names, batch.qualities, paired=self._paired):
                batch.qualities.clear()
            yield batch

    def digests(self) -> tuple[InputFile, ...]:
        """Return the digests of all inputs."""
        return tuple(digest.result() for digest in self._digests)

    def warnings(self, folder: Folder) -> Iterator[str]:
        """Yield the warnings about all inputs; `folder` is their index."""
        parts = [*repeated_values(open_column(folder, "name_hash").values)]
        n_repeats = sum(number for number, _ in parts)
        name = ""
        if n_repeats:
            place = min(int(places.min()) for number, places in parts if number)
            low, high = open_column(folder, "name_first").values[place : place + 2].tolist()
            name = open_column(folder, "names").read(low, high).decode()
        yield from self.notes.warnings(self.digests(), n_repeats, name)

    def _records_of(self, paths: Sequence[Input]) -> Iterator[Record | Records]:
        longest = min(self._rules.max_record, _LONGEST)
        strict = self._rules.strict
        read = partial(read_groups, alphabet=self._alphabet, strict=strict, longest=longest)
        return read_pairs(paths, read) if self._paired else read(paths[0])

    def _batches_of(self, paths: Sequence[Input], first_record: int) -> Iterator[_Batch]:
        batch, size, number = _Batch.empty(), 0, first_record
        for record in self._records_of(paths):
            if isinstance(record, Records):
                number += len(record.names)
                sizes, first, before = _sizes(record), 0, -size
                while before + self._batch_bytes <= sizes[-1]:
                    last = int(np.searchsorted(sizes, before + self._batch_bytes)) + 1
                    self._extend(batch, record.part(first, last))
                    yield batch
                    batch, first, before = _Batch.empty(), last, int(sizes[last - 1])
                self._extend(batch, record.part(first, len(sizes)))
                size = int(sizes[-1]) - before
                continue
            number += 1
            name, sequence, gaps, problem, qualities, mate, too_long = record
            odd = name.startswith(UNNAMED) or encoded_name(name) != name
            if odd or gaps or problem or too_long:
                self.notes.add(number, record)
                if problem:
                    batch.invalid.append(len(batch.names))
                if too_long:
                    batch.too_long[len(batch.names)] = too_long
            batch.names.append(name.encode())
            batch.sequences.append(sequence)
            if self._qualities and qualities is not None:
                batch.qualities.append(qualities)
            if mate is not None:
                batch.mates.append(mate)
            size += len(sequence) + len(name) + _RECORD_BYTES
            if size >= self._batch_bytes:
                yield batch
                batch, size = _Batch.empty(), 0
        yield batch

    def _extend(self, batch: _Batch, records: Records) -> None:
        batch.names.extend(records.names)
        batch.sequences.extend(records.sequences)
        batch.mates.extend(records.mates)
        if self._qualities:
            batch.qualities.extend(records.qualities)


def _sizes(records: Records) -> IntArray:
    """Return the bytes that each record, and all before it, count in a batch."""
    names, sequences = (np.array([*map(len, column)], np.int64) for column in records[:2])
    return np.cumsum(names + sequences + _RECORD_BYTES)


def _add_to(digests: Sequence[ContentDigest], batch: _Batch) -> None:
    """Add a batch to the digest of its file, or the mates to the digests of their two files."""
    if len(digests) == 1:
        digests[0].add(batch.names, batch.sequences, batch.too_long)
        return
    pairs = split_pairs(batch.sequences, batch.mates)
    for number, (digest, mates) in enumerate(zip(digests, pairs, strict=True)):
        digest.add(batch.names, mates, second=number > 0)


class _StreamedColumns:
    """Appends batches of records to the column files of records, windows, items and pieces.

    The column of qualities is removed at the end, unless all records have qualities.
    """

    def __init__(
        self, folder: Folder, stack: ExitStack, *, paired: bool = False, qualities: bool = False
    ) -> None:
        self._folder = folder
        self._paired = paired
        self._n_records = self._n_without_qualities = 0
        chosen = {"mate_lengths": paired, "qualities": qualities}
        self._columns = {
            name: stack.enter_context(open_writer(folder, name))
            for name in (*COLUMNS, *TEMPORARY_COLUMNS, *OPTIONAL_COLUMNS)
            if name not in ROW_COLUMNS and chosen.get(name, True)
        }
        self._totals = dict.fromkeys(_RUNNING_SUMS, 0)
        for name in _RUNNING_SUMS:
            self._columns[name].append([0])

    def add(self, batch: _Batch, spec: IndexSpec) -> None:
        names, sequences, qualities, invalid, mates, too_long = batch
        lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
        firsts = np.array(mates, np.int64) if self._paired else lengths
        joints = joint_letters(lengths, firsts)
        left_out = dict.fromkeys(invalid, RecordStatus.INVALID_LETTERS)
        left_out |= dict.fromkeys(too_long, RecordStatus.TOO_LONG)
        items = divide_records(sequences, spec, left_out, lengths - joints)
        pieces = cut_records(sequences, items, spec, firsts, joints)
        # First base of each record, of the window of each item, and of each piece.
        origin = self._totals["record_first_base"] + np.cumsum([0, *lengths])[:-1]
        windows = np.repeat(origin, np.diff(items.windows.first)) + items.windows.starts
        all_letters = lengths.copy()
        all_letters[[*too_long]] = [*too_long.values()]
        counts: dict[str, npt.ArrayLike] = {
            "name_first": np.fromiter(map(len, names), np.int64, len(names)),
            "record_first_base": lengths,
            "record_first_window": np.diff(items.windows.first),
            "record_first_piece": pieces.per_record,
            "window_first_item": items.per_window,
        }
        values: dict[str, Any] = {
            "bases": b"".join(sequences),
            "names": b"".join(names),
            "record_lengths": all_letters,
            "record_status": items.status,
            "window_starts": items.windows.starts,
            "window_ends": items.windows.ends,
            "item_frame": items.frame,
            "item_length": items.length,
            "item_first_base": np.repeat(windows, items.per_window) + items.start,
            "item_span": items.span,
            "item_digest": items.digests,
            "piece_digest": pieces.digests,
            "piece_length": pieces.length,
            "piece_first_base": np.repeat(origin, pieces.per_record) + pieces.start,
            "name_hash": np.fromiter(map(hash, names), np.int64, len(names)),
        }
        if self._paired:
            values["mate_lengths"] = np.where(lengths, firsts, all_letters)
        self._n_records += len(names)
        self._n_without_qualities += len(names) - len(qualities)
        if not self._n_without_qualities and qualities:
            values["qualities"] = b"".join(qualities)
        for name, numbers in counts.items():
            values[name] = self._totals[name] + np.cumsum(numbers, dtype=np.int64)
            self._totals[name] += int(np.sum(numbers))
        for name, part in values.items():
            self._columns[name].append(part)

    def close(self) -> dict[str, ColumnFile]:
        for piece, owners in _PIECE_COLUMNS.items():
            self._columns.pop(piece).close()
            for _, block in _blocks(open_column(self._folder, piece).values):
                for owner in owners:
                    self._columns[owner].append(block)
        files = {name: column.close() for name, column in self._columns.items()}
        if "qualities" in files and (self._n_without_qualities or not self._n_records):
            del files["qualities"]
            if isinstance(self._folder, Path):
                column_path(self._folder, "qualities").unlink()
        return files


_PIECE_COLUMNS: Final = {
    "piece_digest": ("item_digest",),
    "piece_length": ("item_length", "item_span"),
    "piece_first_base": ("item_first_base",),
}
"""Columns of pieces, and those of items in which they follow the items."""

_AT_ONCE: Final = 1 << 26
"""Values that are sorted at once; 33 bytes of memory each."""
_BLOCK: Final = 1 << 22


def repeated_values(values: IntArray, at_once: int = _AT_ONCE) -> Iterator[tuple[int, IntArray]]:
    """Yield number and positions of values that occur several times, for a part of them at once.

    The number is that of the values that equal an earlier value.

    Parameters
    ----------
    values
        ``(n,)`` int64, evenly distributed hashes; may be memory-mapped.
    at_once
        Number of values in memory; the array is read once for each such part.
    """
    n_parts = max(1, -(-len(values) // at_once))
    for part in range(n_parts):
        places = [np.empty(0, np.int64)]
        places += [n + np.flatnonzero(block % n_parts == part) for n, block in _blocks(values)]
        place = np.concatenate(places)
        own = values[place]
        order = np.argsort(own)
        again = np.flatnonzero(own[order[1:]] == own[order[:-1]])
        yield len(again), place[np.unique(order[np.concatenate((again, again + 1))])]


def _blocks(values: IntArray) -> Iterator[tuple[int, IntArray]]:
    for start in range(0, len(values), _BLOCK):
        yield start, values[start : start + _BLOCK]
