"""Writes a sequence index, one batch of records after another."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from virnucpro.console import shortened
from virnucpro.durable import sync_folder, temporary_beside
from virnucpro.errors import InputError, RunExistsError, StoreError, UsageError
from virnucpro.sequences.columns import (
    COLUMNS,
    PASSING_COLUMNS,
    Column,
    ColumnFile,
    ColumnWriter,
    column_path,
)
from virnucpro.sequences.header import Header, write_header
from virnucpro.sequences.items import cut
from virnucpro.sequences.records import STANDARD_INPUT, Alphabet, read_records
from virnucpro.sequences.rows import distinct_rows
from virnucpro.sequences.spec import ContentDigest, IndexSpec, InputFile

__all__ = ["input_digests", "write_index"]

_BATCH_BYTES = 1 << 20
# What a record costs beside its letters, so that a batch of empty records ends too.
_RECORD_BYTES = 100
_LONGEST = 2**31 - 1

_ROW_COLUMNS = ("item_row", "row_lengths", "row_first_base", "row_span", "row_frame")
_RUNNING_SUMS = ("name_first", "record_first_base", "record_first_window", "window_first_item")


@dataclass(slots=True)
class _Batch:
    """Some records of one input: names in UTF-8 and sequences, one each a record."""

    names: list[bytes] = field(default_factory=list)
    sequences: list[bytes] = field(default_factory=list)


def write_index(folder: Path, inputs: Sequence[str], spec: IndexSpec) -> None:
    """Read all inputs and write their index; the folder appears whole or not at all.

    Raises
    ------
    InputError, RunExistsError, StoreError, UsageError
        As `virnucpro.sequences.index.build_index`.
    """
    if inputs.count(STANDARD_INPUT) > 1:
        raise UsageError("standard input can be read once only: name - once")
    if folder.exists():
        raise RunExistsError(f"{folder}: exists already; remove it or choose another folder")
    temporary = temporary_beside(folder)
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        write_header(temporary, _write_columns(temporary, inputs, spec))
        temporary.replace(folder)
        sync_folder(folder.parent)
    except OSError as error:
        raise StoreError(
            f"{folder}: the sequence index cannot be written ({error}); see to that and repeat, "
            "or choose another output folder"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def input_digests(inputs: Sequence[str], spec: IndexSpec) -> tuple[InputFile, ...]:
    """Read all inputs as an index's builder does, for their digests alone.

    With `virnucpro.sequences.spec.fingerprint` they tell whether an index would be the same.

    Raises
    ------
    InputError
        As `virnucpro.sequences.index.build_index`.
    """
    digests = [ContentDigest(path) for path in inputs]
    for path, digest in zip(inputs, digests, strict=True):
        for batch in _read_batches(path, spec.alphabet):
            digest.add(batch.names, batch.sequences)
    return tuple(digest.result() for digest in digests)


def _write_columns(folder: Path, inputs: Sequence[str], spec: IndexSpec) -> Header:
    with ExitStack() as stack:
        streamed = _Streamed(folder, stack)
        digests = [ContentDigest(path) for path in inputs]
        for path, digest in zip(inputs, digests, strict=True):
            for batch in _read_batches(path, spec.alphabet):
                digest.add(batch.names, batch.sequences)
                streamed.add(batch, spec)
        files = streamed.close()
        files |= _write_rows(folder, stack)
    for name in PASSING_COLUMNS:
        column_path(folder, name).unlink()
    read = tuple(digest.result() for digest in digests)
    return Header(spec, read, {name: files[name] for name in COLUMNS})


def _read_batches(path: str, alphabet: Alphabet) -> Iterator[_Batch]:
    """Read a file's records in batches of about 1 MiB, so that short ones are handled together."""
    batch, size = _Batch(), 0
    for record in read_records(path, alphabet):
        if len(record.sequence) > _LONGEST:
            raise InputError(
                f"{path}: record {shortened(record.name)}: {len(record.sequence):,} letters, more "
                f"than the limit of {_LONGEST:,}; split the record"
            )
        batch.names.append(record.name.encode())
        batch.sequences.append(record.sequence)
        size += len(record.sequence) + len(record.name) + _RECORD_BYTES
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = _Batch(), 0
    if batch.names:
        yield batch


class _Streamed:
    """The columns that grow with every batch."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._columns = {
            name: stack.enter_context(ColumnWriter(folder, name))
            for name in (*COLUMNS, *PASSING_COLUMNS)
            if name not in _ROW_COLUMNS
        }
        self._totals = dict.fromkeys(_RUNNING_SUMS, 0)
        for name in _RUNNING_SUMS:
            self._columns[name].append([0])

    def add(self, batch: _Batch, spec: IndexSpec) -> None:
        items = cut(batch.sequences, spec)
        lengths = [len(sequence) for sequence in batch.sequences]
        pieces: dict[str, Any] = {
            "bases": b"".join(batch.sequences),
            "names": b"".join(batch.names),
            "record_lengths": lengths,
            "record_status": items.status,
            "window_starts": items.windows.starts,
            "window_ends": items.windows.ends,
            "item_frame": items.frame,
            "item_length": items.length,
            "item_digest": items.digests,
        }
        for name, piece in pieces.items():
            self._columns[name].append(piece)
        self._run_on("name_first", [len(name) for name in batch.names])
        self._run_on("record_first_base", lengths)
        self._run_on("record_first_window", np.diff(items.windows.first))
        self._run_on("window_first_item", items.per_window)

    def _run_on(self, name: str, counts: npt.ArrayLike) -> None:
        reach = self._totals[name] + np.cumsum(counts, dtype=np.int64)
        self._columns[name].append(reach)
        self._totals[name] = int(reach[-1]) if reach.size else self._totals[name]

    def close(self) -> dict[str, ColumnFile]:
        return {name: column.close() for name, column in self._columns.items()}


def _write_rows(folder: Path, stack: ExitStack) -> dict[str, ColumnFile]:
    """Tell the distinct items, and where the first one of each stands."""
    column = {
        name: Column(folder, name).values
        for name in (*PASSING_COLUMNS, *_RUNNING_SUMS, "window_starts", "window_ends", "item_frame")
    }
    digests = np.array(column["item_digest"]).reshape(-1, 2)
    item_row, first_item = distinct_rows(digests, column["item_length"])
    window = np.searchsorted(column["window_first_item"], first_item, side="right") - 1
    record = np.searchsorted(column["record_first_window"], window, side="right") - 1
    starts = column["window_starts"][window]
    rows = {
        "item_row": item_row,
        "row_lengths": column["item_length"][first_item],
        "row_first_base": column["record_first_base"][record] + starts,
        "row_span": column["window_ends"][window] - starts,
        "row_frame": column["item_frame"][first_item],
    }
    files = {}
    for name, values in rows.items():
        writer = stack.enter_context(ColumnWriter(folder, name))
        writer.append(values)
        files[name] = writer.close()
    return files
