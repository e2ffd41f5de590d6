"""Build a sequence index from batches of records: windows, items and rows."""

import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from virnucpro.console import shortened
from virnucpro.durable import sync_folder, temporary_beside
from virnucpro.errors import InputError, RunExistsError, StoreError, UsageError
from virnucpro.sequences.columns import (
    COLUMNS,
    OPTIONAL_COLUMNS,
    TEMPORARY_COLUMNS,
    Column,
    ColumnFile,
    ColumnWriter,
    Header,
    column_path,
    write_header,
)
from virnucpro.sequences.input_rules import InputNotes, InputRules
from virnucpro.sequences.items import divide_records
from virnucpro.sequences.qualities import QualitiesWriter
from virnucpro.sequences.records import STANDARD_INPUT, UNNAMED, read_records
from virnucpro.sequences.repeats import count_repeats
from virnucpro.sequences.rows import ROW_COLUMNS, write_rows
from virnucpro.sequences.spec import ContentDigest, IndexSpec, InputFile

__all__ = ["ReadListener", "input_digests", "no_listener", "write_index"]

_BATCH_BYTES = 1 << 20
# Bytes added for each record to the size of a batch, so that empty records are limited too.
_RECORD_BYTES = 100
_LONGEST = 2**31 - 1

_RUNNING_SUMS = ("name_first", "record_first_base", "record_first_window", "window_first_item")

ReadListener: TypeAlias = Callable[[int, int], object]
"""Called with the numbers of records and letters that have been read, about once per MB."""


def no_listener(_records: int, _letters: int) -> None:
    """Do nothing."""


class _Batch(NamedTuple):
    """Names in UTF-8, sequences and qualities of several records.

    `qualities` is empty if they are not stored, or if one of the records lacks them. `invalid` and
    `unnamed` are positions of records with invalid letters, and without a name.
    """

    names: list[bytes]
    sequences: list[bytes]
    qualities: list[bytes]
    invalid: list[int]
    unnamed: list[int]


def write_index(
    folder: Path, inputs: Sequence[str], spec: IndexSpec, read: ReadListener, rules: InputRules
) -> None:
    """Read all inputs and write their index into `folder`, which is created atomically.

    Raises
    ------
    InputError, RunExistsError, StoreError, UsageError
        As `virnucpro.sequences.index.build_index`.
    """
    if inputs.count(STANDARD_INPUT) > 1:
        raise UsageError("standard input can be read only once: give the input - only once")
    if folder.exists():
        raise RunExistsError(f"{folder}: the folder exists; remove it or choose another folder")
    temporary = temporary_beside(folder)
    try:
        temporary.mkdir()
        write_header(temporary, _write_columns(temporary, inputs, spec, read, rules))
        temporary.replace(folder)
        sync_folder(folder.parent)
    except OSError as error:
        raise StoreError(
            f"{folder}: the sequence index cannot be written ({error}); correct this error "
            "and rerun the command, or choose another output folder"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


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


def _write_columns(
    folder: Path, inputs: Sequence[str], spec: IndexSpec, read: ReadListener, rules: InputRules
) -> Header:
    keeps_qualities = spec.kind != "whole"  # outputs of embed have no sequences
    reader = _Reader(inputs, spec, rules, qualities=keeps_qualities)
    with ExitStack() as stack:
        streamed = _StreamedColumns(folder, stack)
        for batch in reader.batches():
            streamed.add(batch, spec)
            read(*reader.counts())
        files = streamed.close()
    files |= write_rows(folder)
    warnings = tuple(reader.warnings(folder))
    for name in TEMPORARY_COLUMNS:
        column_path(folder, name).unlink()
    kept = {name: files[name] for name in (*COLUMNS, *OPTIONAL_COLUMNS) if name in files}
    return Header(spec, reader.digests(), kept, warnings)


class _Reader:
    """Reads all inputs in batches of about 1 MiB, with or without `qualities`."""

    def __init__(
        self,
        inputs: Sequence[str],
        spec: IndexSpec,
        rules: InputRules,
        *,
        qualities: bool = False,
    ) -> None:
        self._alphabet = spec.alphabet
        self._qualities = qualities
        self._strict = rules.strict
        self._digests = [ContentDigest(path) for path in inputs]
        self._notes = InputNotes(spec.alphabet, rules, judged=spec.kind == "whole")

    def batches(self) -> Iterator[_Batch]:
        """Yield the records of all inputs, never of two inputs at once."""
        for digest in self._digests:
            self._notes.begin(digest.path)
            for batch in self._batches_of(digest.path):
                self._notes.check(batch.names, batch.sequences)
                if not self._notes.accept_qualities(batch.names, batch.qualities):
                    batch.qualities.clear()
                names = batch.names.copy()
                for place in batch.unnamed:
                    names[place] = b""  # as in runs of earlier versions
                digest.add(names, batch.sequences)
                yield batch
            self._notes.end()

    def counts(self) -> tuple[int, int]:
        """Return the numbers of records and letters that have been read."""
        found = self._digests
        return sum(one.n_records for one in found), sum(one.n_bases for one in found)

    def digests(self) -> tuple[InputFile, ...]:
        """Return the digests of all inputs."""
        return tuple(digest.result() for digest in self._digests)

    def warnings(self, folder: Path) -> Iterator[str]:
        """Yield the warnings about all inputs; `folder` is their index."""
        repeats = count_repeats(Column(folder, "name_hash").values)
        name = ""
        if repeats.number:
            bounds = Column(folder, "name_first").values[repeats.position : repeats.position + 2]
            name = Column(folder, "names").read(int(bounds[0]), int(bounds[1])).decode()
        yield from self._notes.warnings(self.digests(), repeats.number, name)

    def _batches_of(self, path: str) -> Iterator[_Batch]:
        batch, size = _Batch([], [], [], [], []), 0
        records = read_records(path, self._alphabet, strict=self._strict)
        for number, record in enumerate(records, 1):
            name, sequence, gaps, problem, qualities = record
            if len(sequence) > _LONGEST:
                raise InputError(
                    f"{path}: record {shortened(name)}: {len(sequence):,} letters, more than the "
                    f"limit of {_LONGEST:,}; split the record"
                )
            if gaps or problem or name.startswith(UNNAMED):
                self._notes.add(number, record)
                if problem:
                    batch.invalid.append(len(batch.names))
                if name == f"{UNNAMED}{number}":
                    batch.unnamed.append(len(batch.names))
            batch.names.append(name.encode())
            batch.sequences.append(sequence)
            if self._qualities and qualities is not None:
                batch.qualities.append(qualities)
            size += len(sequence) + len(name) + _RECORD_BYTES
            if size >= _BATCH_BYTES:
                yield batch
                batch, size = _Batch([], [], [], [], []), 0
        yield batch


class _StreamedColumns:
    """Appends batches of records to the column files of records, windows and items."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._columns = {
            name: stack.enter_context(ColumnWriter(folder, name))
            for name in (*COLUMNS, *TEMPORARY_COLUMNS)
            if name not in ROW_COLUMNS
        }
        self._totals = dict.fromkeys(_RUNNING_SUMS, 0)
        for name in _RUNNING_SUMS:
            self._columns[name].append([0])
        self._qualities = QualitiesWriter(folder, stack)

    def add(self, batch: _Batch, spec: IndexSpec) -> None:
        names, sequences, qualities, invalid, _ = batch
        items = divide_records(sequences, spec, invalid)
        lengths = [len(sequence) for sequence in sequences]
        counts: dict[str, npt.ArrayLike] = {
            "name_first": [len(name) for name in names],
            "record_first_base": lengths,
            "record_first_window": np.diff(items.windows.first),
            "window_first_item": items.per_window,
        }
        pieces: dict[str, Any] = {
            "bases": b"".join(sequences),
            "names": b"".join(names),
            "record_lengths": lengths,
            "record_status": items.status,
            "window_starts": items.windows.starts,
            "window_ends": items.windows.ends,
            "item_frame": items.frame,
            "item_length": items.length,
            "item_start": items.start,
            "item_span": items.span,
            "item_digest": items.digests,
            "name_hash": [hash(name) for name in names],
        }
        for name, values in counts.items():
            pieces[name] = self._totals[name] + np.cumsum(values, dtype=np.int64)
            self._totals[name] += int(np.sum(values))
        for name, piece in pieces.items():
            self._columns[name].append(piece)
        self._qualities.add(len(names), qualities)

    def close(self) -> dict[str, ColumnFile]:
        files = {name: column.close() for name, column in self._columns.items()}
        return files | self._qualities.close()
