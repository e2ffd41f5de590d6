"""Build a sequence index from batches of records: windows, items and rows."""

import shutil
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b
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
    Column,
    ColumnFile,
    ColumnWriter,
    Header,
    column_path,
    write_column,
    write_header,
)
from virnucpro.sequences.records import STANDARD_INPUT, Alphabet, read_records
from virnucpro.sequences.spec import ContentDigest, IndexSpec, InputFile, RecordStatus
from virnucpro.sequences.translation import (
    GeneticCode,
    OpenFrames,
    genetic_code,
    open_frames,
    peptide,
    reverse_complement,
)
from virnucpro.sequences.windows import IntArray, Windows, tile_all

__all__ = [
    "DIGEST_BYTES",
    "Items",
    "distinct_rows",
    "divide_records",
    "input_digests",
    "write_index",
]

DIGEST_BYTES = 16
"""128 bits: with 2e9 distinct items, the probability of two equal digests is 6e-21."""

# Number of bases whose codons are classified at once; small enough for the CPU's cache.
_BLOCK_BASES = 1 << 17


@dataclass(frozen=True, slots=True)
class Items:
    """The windows and items of several records, in input order.

    Attributes
    ----------
    windows
        Windows of all records.
    status
        ``(n_records,)`` uint8 of `RecordStatus`.
    per_window
        ``(n_windows,)`` int64: number of items in each window.
    frame
        ``(n_items,)`` uint8: frame of each item, 0 to 5.
    length
        ``(n_items,)`` int32: residues of the frame, or letters of the whole sequence.
    digests
        Digests of the items, `DIGEST_BYTES` each; items with equal content have equal digests.
    """

    windows: Windows
    status: npt.NDArray[np.uint8]
    per_window: IntArray
    frame: npt.NDArray[np.uint8]
    length: npt.NDArray[np.int32]
    digests: bytes


def divide_records(sequences: Sequence[bytes], spec: IndexSpec) -> Items:
    """Divide records into windows, and windows into items; return both in input order.

    Parameters
    ----------
    sequences
        The sequence of each record, normalised as in `virnucpro.sequences.records.Record`.
    spec
        Rules that divide records into items.
    """
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    if spec.kind == "whole":
        return _whole_record_items(sequences, lengths)
    assert spec.window is not None
    assert spec.tiling is not None
    assert spec.genetic_code is not None
    windows = tile_all(lengths, spec.window, spec.tiling)
    return _frame_items(b"".join(sequences), lengths, windows, genetic_code(spec.genetic_code))


def _whole_record_items(sequences: Sequence[bytes], lengths: IntArray) -> Items:
    filled = lengths > 0
    first = np.concatenate(([0], np.cumsum(filled, dtype=np.int64)))
    n_items = int(first[-1])
    ends = lengths[filled]
    return Items(
        windows=Windows(first, np.zeros(n_items, np.int64), ends),
        status=np.where(filled, RecordStatus.SCORABLE, RecordStatus.TOO_SHORT).astype(np.uint8),
        per_window=np.ones(n_items, np.int64),
        frame=np.zeros(n_items, np.uint8),
        length=ends.astype(np.int32),
        digests=b"".join(_digest(sequence) for sequence in sequences if sequence),
    )


def _frame_items(text: bytes, lengths: IntArray, windows: Windows, code: GeneticCode) -> Items:
    record_start = np.repeat(np.cumsum(lengths) - lengths, np.diff(windows.first))
    starts, ends = windows.starts + record_start, windows.ends + record_start
    found: list[OpenFrames] = []
    digests: list[bytes] = []
    for block in _blocks(starts):
        low, high = int(starts[block.start]), int(ends[block.stop - 1])
        part = text[low:high]
        frames = open_frames(part, starts[block] - low, ends[block] - low, code)
        found.append(frames)
        digests += _frame_digests(part, starts[block] - low, ends[block] - low, frames, code)
    counts = [np.bincount(frames.window, minlength=len(frames.translatable)) for frames in found]
    per_window = _joined(counts, np.int64)
    translatable = _joined([frames.translatable for frames in found], np.bool_)
    return Items(
        windows=windows,
        status=_status(lengths, windows.first, translatable, per_window),
        per_window=per_window,
        frame=_joined([frames.frame for frames in found], np.uint8),
        length=_joined([frames.residues for frames in found], np.int32),
        digests=b"".join(digests),
    )


def _blocks(starts: IntArray) -> Iterator[slice]:
    """Yield slices of ascending `starts` (bases); each slice spans less than `_BLOCK_BASES`."""
    first = 0
    while first < len(starts):
        last = int(np.searchsorted(starts, starts[first] + _BLOCK_BASES))
        yield slice(first, last)
        first = last


def _joined(parts: Sequence[npt.NDArray[np.generic]], dtype: type[np.generic]) -> npt.NDArray[Any]:
    return np.concatenate((np.empty(0, dtype), *parts), dtype=dtype)


def _status(
    lengths: IntArray, first: IntArray, translatable: npt.NDArray[np.bool_], per_window: IntArray
) -> npt.NDArray[np.uint8]:
    def in_record(values: npt.NDArray[np.generic]) -> IntArray:
        reach = np.concatenate(([0], np.cumsum(values, dtype=np.int64)))
        return reach[first[1:]] - reach[first[:-1]]

    status = np.select(
        [in_record(per_window) > 0, lengths < 3, in_record(translatable) == 0],
        [RecordStatus.SCORABLE, RecordStatus.TOO_SHORT, RecordStatus.AMBIGUOUS_BASES],
        RecordStatus.NO_OPEN_FRAME,
    )
    return status.astype(np.uint8)


def _frame_digests(
    text: bytes, starts: IntArray, ends: IntArray, frames: OpenFrames, code: GeneticCode
) -> list[bytes]:
    """Return one digest per frame, computed from the frame's bases.

    If codons are dropped and the bases do not determine the peptide, the digest also covers the
    peptide.
    """
    both = text + reverse_complement(text)
    forward, offset = frames.frame < 3, frames.frame % 3
    start, end = starts[frames.window], ends[frames.window]
    low = np.where(forward, start, len(both) - end) + offset
    limit = np.where(forward, end, len(both) - start)
    high = np.minimum(low + 3 * frames.residues + 1, limit)
    spans = zip(low.tolist(), high.tolist(), strict=True)
    digests = [blake2b(both[a:b], digest_size=DIGEST_BYTES).digest() for a, b in spans]
    for i in np.flatnonzero((limit - low) // 3 != frames.residues).tolist():
        digests[i] = _digest_with_dropped_codons(both[low[i] : limit[i]], high[i] - low[i], code)
    return digests


def _digest_with_dropped_codons(frame: bytes, n_bases: int, code: GeneticCode) -> bytes:
    bases, residues = frame[:n_bases], peptide(frame, code)
    # If all dropped codons come after these bases, the bases alone determine the peptide.
    return _digest(bases if peptide(bases, code) == residues else bases + b"\0" + residues)


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=DIGEST_BYTES).digest()


_BATCH_BYTES = 1 << 20
# Bytes added for each record to the size of a batch, so that empty records are limited too.
_RECORD_BYTES = 100
_LONGEST = 2**31 - 1

_ROW_COLUMNS = ("item_row", "row_lengths", "row_first_base", "row_span", "row_frame")
_RUNNING_SUMS = ("name_first", "record_first_base", "record_first_window", "window_first_item")

_Batch: TypeAlias = tuple[list[bytes], list[bytes]]
"""Names in UTF-8 and sequences of several records."""


def write_index(folder: Path, inputs: Sequence[str], spec: IndexSpec) -> None:
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
        write_header(temporary, _write_columns(temporary, inputs, spec))
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


def _write_columns(folder: Path, inputs: Sequence[str], spec: IndexSpec) -> Header:
    digests = [ContentDigest(path) for path in inputs]
    with ExitStack() as stack:
        streamed = _StreamedColumns(folder, stack)
        for digest in digests:
            for batch in _read_batches(digest, spec.alphabet):
                streamed.add(batch, spec)
        files = streamed.close()
    files |= _write_rows(folder)
    for name in TEMPORARY_COLUMNS:
        column_path(folder, name).unlink()
    read = tuple(digest.result() for digest in digests)
    return Header(spec, read, {name: files[name] for name in COLUMNS})


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
            if name not in _ROW_COLUMNS
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
            "item_digest": items.digests,
        }
        for name, values in counts.items():
            pieces[name] = self._totals[name] + np.cumsum(values, dtype=np.int64)
            self._totals[name] += int(np.sum(values))
        for name, piece in pieces.items():
            self._columns[name].append(piece)

    def close(self) -> dict[str, ColumnFile]:
        return {name: column.close() for name, column in self._columns.items()}


def _write_rows(folder: Path) -> dict[str, ColumnFile]:
    """Assign a row to each distinct item and write the row columns; return sizes and checksums."""
    column = {
        name: Column(folder, name).values
        for name in (*COLUMNS, *TEMPORARY_COLUMNS)
        if name not in _ROW_COLUMNS
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
    return {name: write_column(folder, name, values) for name, values in rows.items()}


def distinct_rows(
    digests: npt.NDArray[np.uint64], lengths: npt.NDArray[np.int32]
) -> tuple[IntArray, IntArray]:
    """Assign a row to each distinct item: longest first, equal lengths by first appearance.

    Parameters
    ----------
    digests
        ``(n_items, 2)`` uint64; items with equal digests are identical.
    lengths
        ``(n_items,)`` int32; items with equal digests have equal lengths.

    Returns
    -------
    item_row
        ``(n_items,)`` int64: the row of each item.
    first_item
        ``(n_rows,)`` int64: the first item of each row.
    """
    if not len(digests):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    # lexsort is stable: identical items stay in the order of their appearance.
    order = np.lexsort((digests[:, 1], digests[:, 0]))
    ordered = digests[order]
    new = np.concatenate(([True], (ordered[1:] != ordered[:-1]).any(axis=1)))
    group_first = order[new]
    by_rank = np.lexsort((group_first, -lengths[group_first].astype(np.int64)))
    row_of_group = np.empty(len(by_rank), np.int64)
    row_of_group[by_rank] = np.arange(len(by_rank))
    item_row = np.empty(len(order), np.int64)
    item_row[order] = row_of_group[np.cumsum(new) - 1]
    return item_row, group_first[by_rank]
