"""Build a sequence index from batches of records: windows, items and rows."""

import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from virnucpro.console import shortened
from virnucpro.durable import sync_folder, temporary_beside
from virnucpro.errors import InputError, RunExistsError, StoreError, UsageError
from virnucpro.sequences.columns import (
    COLUMNS,
    TEMPORARY_COLUMNS,
    ColumnFile,
    ColumnWriter,
    Header,
    column_path,
    write_header,
)
from virnucpro.sequences.items import divide_records
from virnucpro.sequences.records import STANDARD_INPUT, Alphabet, read_records
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


_Batch: TypeAlias = tuple[list[bytes], list[bytes]]
"""Names in UTF-8 and sequences of several records."""


def write_index(
    folder: Path, inputs: Sequence[str], spec: IndexSpec, read: ReadListener = no_listener
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
        write_header(temporary, _write_columns(temporary, inputs, spec, read))
        temporary.replace(folder)
        sync_folder(folder.parent)
    except OSError as error:
        raise StoreError(
            f"{folder}: the sequence index cannot be written ({error}); correct this error "
            "and rerun the command, or choose another output folder"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def input_digests(inputs: Sequence[str], spec: IndexSpec) -> tuple[InputFile, ...]:
    """Read all inputs and return their digests, without writing an index.

    `virnucpro.sequences.spec.fingerprint` of the digests equals the fingerprint of an index of
    these inputs.

    Raises
    ------
    InputError
        As `virnucpro.sequences.index.build_index`.
    """
    digests = [ContentDigest(path) for path in inputs]
    for digest in digests:
        deque(_read_batches(digest, spec.alphabet), maxlen=0)
    return tuple(digest.result() for digest in digests)


def _write_columns(
    folder: Path, inputs: Sequence[str], spec: IndexSpec, read: ReadListener
) -> Header:
    digests = [ContentDigest(path) for path in inputs]
    with ExitStack() as stack:
        streamed = _StreamedColumns(folder, stack)
        for digest in digests:
            for batch in _read_batches(digest, spec.alphabet):
                streamed.add(batch, spec)
                read(sum(one.n_records for one in digests), sum(one.n_bases for one in digests))
        files = streamed.close()
    files |= write_rows(folder)
    for name in TEMPORARY_COLUMNS:
        column_path(folder, name).unlink()
    found = tuple(digest.result() for digest in digests)
    return Header(spec, found, {name: files[name] for name in COLUMNS})


def _read_batches(digest: ContentDigest, alphabet: Alphabet) -> Iterator[_Batch]:
    """Yield the records of a file in batches of about 1 MiB; add each batch to `digest`."""
    names: list[bytes] = []
    sequences: list[bytes] = []
    size = 0
    for record in read_records(digest.path, alphabet):
        if len(record.sequence) > _LONGEST:
            raise InputError(
                f"{digest.path}: record {shortened(record.name)}: {len(record.sequence):,} "
                f"letters, more than the limit of {_LONGEST:,}; split the record"
            )
        names.append(record.name.encode())
        sequences.append(record.sequence)
        size += len(record.sequence) + len(record.name) + _RECORD_BYTES
        if size >= _BATCH_BYTES:
            digest.add(names, sequences)
            yield names, sequences
            names, sequences, size = [], [], 0
    digest.add(names, sequences)
    yield names, sequences


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

    def add(self, batch: _Batch, spec: IndexSpec) -> None:
        names, sequences = batch
        items = divide_records(sequences, spec)
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
        }
        for name, values in counts.items():
            pieces[name] = self._totals[name] + np.cumsum(values, dtype=np.int64)
            self._totals[name] += int(np.sum(values))
        for name, piece in pieces.items():
            self._columns[name].append(piece)

    def close(self) -> dict[str, ColumnFile]:
        return {name: column.close() for name, column in self._columns.items()}
