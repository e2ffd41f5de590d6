"""SequenceIndex: the records, windows, items and rows of a run in memory-mapped columns."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from virnucpro.arrays import BoolArray, ByteArray, Int32Array, IntArray, IntegerArray
from virnucpro.console import encoded_file_name, encoded_names
from virnucpro.durable import write_folder
from virnucpro.errors import IndexFormatError, RunExistsError, StoreError, UsageError
from virnucpro.sequences.builder import (
    ReadListener,
    column_blocks,
    no_listener,
    write_columns,
)
from virnucpro.sequences.columns import (
    ADVICE,
    Column,
    Folder,
    Header,
    MemoryFolder,
    checksum,
    index_file,
    open_column,
    read_header,
    write_column,
    write_header,
)
from virnucpro.sequences.entries import Input, shown_path
from virnucpro.sequences.input_rules import InputRules
from virnucpro.sequences.items import ITEM_NAMES, PIECE_ITEM, WINDOW_ITEM
from virnucpro.sequences.mates import joint_letters
from virnucpro.sequences.spec import IndexSpec
from virnucpro.sequences.translation import genetic_code, residues_by_codon, reverse_complement
from virnucpro.sequences.windows import have_two_mates, piece_bounds

_OFFSETS = np.array([0, 1, 2, 0, 1, 2, 0, 0])
_FORWARD = np.array([True, True, True, False, False, False, True, True])
"""For each kind of a row: bases before its first codon, and whether it is on the strand given."""


class SequenceIndex:
    """The records, windows, items and rows of a run.

    Columns are memory-mapped and read on access, so a process needs a few MB for an index of any
    size. `build_index` and `open` return an index.

    Attributes
    ----------
    spec
        Rules that divided the records into items.
    inputs
        Input files and their content.
    fingerprint
        Digest of the inputs' content, `spec` and the version of the index format.
    n_records, n_windows, n_items, n_pieces, n_rows
        Numbers of records, windows, items, pieces, and distinct items and pieces.
    name_bytes
        Total length of the records' names in UTF-8.
    stored_letters
        Letters of all records but those that are too long.
    warnings
        Warnings about the inputs, see `virnucpro.sequences.input_rules.InputNotes`.
    has_qualities
        Whether the index has the qualities of all records: every input was FASTQ.
    record_lengths
        ``(n_records,)`` int64: bases, or residues of proteins, without gaps; of a pair, with the
        letters between its mates.
    record_letters
        ``(n_records,)`` int64: as `record_lengths`, but without the letters between mates.
    judged_letters
        ``(n_records,)`` int64: letters by which a record is judged: of a pair, the mean of its
        mates.
    mate_lengths
        ``(n_records,)`` int64: letters of the first mate of a pair, and of a single read its own;
        None if the reads are not paired.
    record_status
        ``(n_records,)`` uint8 of `RecordStatus`.
    record_first_window
        ``(n_records + 1,)`` int64: number of windows of all records before record ``i``.
    record_first_piece
        ``(n_records + 1,)`` int64: number of pieces of all records before record ``i``.
    window_starts, window_ends
        ``(n_windows,)`` int64, half open, in bases from the start of the record.
    window_first_item
        ``(n_windows + 1,)`` int64: number of items of all windows before window ``i``.
    item_frame
        ``(n_items,)`` uint8: frame as in `virnucpro.sequences.translation.FRAMES`, or
        `virnucpro.sequences.items.WINDOW_ITEM`; 0 for whole sequences.
    item_row, piece_row
        ``(n_items,)`` and ``(n_pieces,)`` int64: the row of each item, and of each piece.
    row_lengths
        ``(n_rows,)`` int32, descending: residues of the frame, or letters of a window, a piece or a
        whole sequence.
    """

    items_before = 0
    """Number of the run's items before those of the index."""

    def __init__(self, folder: Folder, header: Header) -> None:
        self._header = header
        self.spec = header.spec
        self.inputs = header.inputs
        self.fingerprint = header.fingerprint
        self.warnings = header.warnings
        self._folder = folder if isinstance(folder, Path) else None
        self._columns = {
            name: open_column(folder, name, place) for name, place in header.files.items()
        }
        self._values = {name: column.values for name, column in self._columns.items()}
        self.record_lengths: IntArray = self._values["record_lengths"]
        self.mate_lengths: IntArray | None = self._values.get("mate_lengths")
        self.record_letters = self.judged_letters = self.record_lengths
        if self.mate_lengths is not None:
            joints = joint_letters(self.record_lengths, self.mate_lengths)
            self.record_letters = self.record_lengths - joints
            pairs = have_two_mates(self.record_lengths, self.mate_lengths, joints)
            self.judged_letters = self.record_letters // (1 + pairs)
        self.record_status: ByteArray = self._values["record_status"]
        self.record_first_window: IntArray = self._values["record_first_window"]
        self.record_first_piece: IntArray = self._values["record_first_piece"]
        self.window_starts: IntArray = self._values["window_starts"]
        self.window_ends: IntArray = self._values["window_ends"]
        self.window_first_item: IntArray = self._values["window_first_item"]
        self.item_frame: ByteArray = self._values["item_frame"]
        self.item_row: IntArray = self._values["item_row"]
        self.piece_row: IntArray = self._values["piece_row"]
        self.row_lengths: Int32Array = self._values["row_lengths"]
        self.n_records = len(self.record_lengths)
        self.n_windows = len(self.window_starts)
        self.n_items = len(self.item_row)
        self.n_pieces = len(self.piece_row)
        self.n_rows = len(self.row_lengths)
        self.name_bytes = int(self._values["name_first"][-1])
        self.stored_letters = int(self._values["record_first_base"][-1])
        self._names = self._columns["names"]
        self._bases = self._columns["bases"]
        self.has_qualities = "qualities" in self._columns

    @classmethod
    def open(cls, folder: Path) -> "SequenceIndex":
        """Open an index on disk and check its header; `verify` checks its columns.

        Raises
        ------
        IndexFormatError
            When the folder has no index, an index of another version, or a damaged index.
        """
        return cls(folder, read_header(folder))

    def verify(self) -> None:
        """Read every column of the index once; compare the checksums with those of the header.

        Raises
        ------
        IndexFormatError
            When a column was changed since it was written.
        """
        for path, reason in self.changed_columns():
            raise IndexFormatError(f"{path}: {reason}; {ADVICE}")

    def changed_columns(self) -> Iterator[tuple[Path, str]]:
        """Read every column of the index once; yield the file and each problem."""
        if self._folder is None:
            return
        for name, place in self._header.files.items():
            if checksum(self._folder, name, place) != place.crc32:
                yield index_file(self._folder), f"{name} changed since it was written"

    def write(self, folder: Path) -> None:
        """Write the index into a new folder.

        Raises
        ------
        OSError
            If a file cannot be written.
        """
        folder.mkdir()
        files = {name: write_column(folder, name, own) for name, own in self._values.items()}
        write_header(folder, replace(self._header, files=files))

    def record_names(self, records: IntArray) -> list[str]:
        """Return the names of records, as written to all outputs.

        Characters that are unsafe in a table are percent-encoded, see `encoded_name`.
        """
        distinct, which = np.unique(records, return_inverse=True)
        first = self._values["name_first"]
        low, high = first[distinct], first[distinct + 1]
        if len(low) and (low[1:] == high[:-1]).all():  # half the time of `_parts`
            text = np.frombuffer(self._names.read(low[0], high[-1]), np.uint8)
            joined = np.insert(text, low - low[0], ord("\n")).tobytes()
        else:
            joined = b"\n".join((b"", *_parts(self._names, low, high)))
        found: list[str] = np.array(encoded_names(joined), object)[which].tolist()
        return found

    def window_names(self, windows: IntArray) -> list[str]:
        """Return window names as in the published tool: ``{record}_chunk_{number from 1}``."""
        records = _owners(self.record_first_window, windows)
        numbers = windows - self.record_first_window[records] + 1
        names = zip(self.record_names(records), numbers.tolist(), strict=True)
        return [f"{name}_chunk_{number}" for name, number in names]

    def item_names(self, items: IntArray) -> list[str]:
        """Return the names of items: window name and frame, or record name of a whole sequence."""
        windows = _owners(self.window_first_item, items)
        if self.spec.kind == "whole":
            return self.record_names(_owners(self.record_first_window, windows))
        frames = self.item_frame[items].tolist()
        names = zip(self.window_names(windows), frames, strict=True)
        return [name + ITEM_NAMES[frame] for name, frame in names]

    def piece_names(self, pieces: IntArray) -> list[str]:
        """Return the names of pieces: ``{record}_piece_{number from 1}``."""
        records = _owners(self.record_first_piece, pieces)
        numbers = pieces - self.record_first_piece[records] + 1
        names = zip(self.record_names(records), numbers.tolist(), strict=True)
        return [f"{name}_piece_{number}" for name, number in names]

    def piece_bounds(self, pieces: IntArray) -> tuple[IntArray, IntArray]:
        """Return start and end of pieces, half open, in bases from the start of the record."""
        lengths = self.record_lengths
        mates = lengths if self.mate_lengths is None else self.mate_lengths
        joints = joint_letters(lengths, mates)
        return piece_bounds(self.record_first_piece, lengths, pieces, mates, joints)

    @cached_property
    def input_names(self) -> list[str]:
        """Names of the input files as in all outputs: their paths, if two have equal names.

        If a path is given several times, ``#2`` and so on follow. All names are different. Standard
        input is ``stdin``.

        Unsafe characters are percent-encoded, see `encoded_file_name`.
        """
        return input_names([file.path for file in self.inputs])

    def record_origins(self, records: IntArray) -> tuple[IntArray, IntArray]:
        """Return the input file, from 0, and the number in this file, from 1, of each record."""
        counts = np.array([file.n_records for file in self.inputs], np.int64)
        ends = np.cumsum(counts)
        files = np.searchsorted(ends, records, side="right")
        return files, records - (ends - counts)[files] + 1

    def item_origins(self, items: IntArray) -> tuple[IntArray, IntArray]:
        """Return input file and number of the record of each item, as `record_origins`."""
        windows = _owners(self.window_first_item, items)
        return self.record_origins(_owners(self.record_first_window, windows))

    def record_sequence(self, record: int, start: int, end: int) -> bytes:
        """Return the letters ``start`` to ``end - 1`` of a record; none of one that is too long."""
        return self._bases.read(*self._stored(record, start, end))

    def record_sequences(self, first: int, last: int) -> list[bytes]:
        """Return the letters of the records ``first`` to ``last - 1``, read at once."""
        bounds = self._values["record_first_base"][first : last + 1]
        return _parts(self._bases, bounds[:-1], bounds[1:])

    def record_qualities(self, record: int, start: int, end: int) -> bytes:
        """Return the qualities of the letters ``start`` to ``end - 1`` of a record.

        Requires `has_qualities`.
        """
        return self._columns["qualities"].read(*self._stored(record, start, end))

    def _stored(self, record: int, start: int, end: int) -> tuple[int, int]:
        origin, limit = self._values["record_first_base"][record : record + 2].tolist()
        return min(origin + start, limit), min(origin + end, limit)

    def window_sequence(self, window: int) -> bytes:
        """Return the letters of a window."""
        (record,) = _owners(self.record_first_window, np.array([window]))
        origin = int(self._values["record_first_base"][record])
        start, end = int(self.window_starts[window]), int(self.window_ends[window])
        return self._bases.read(origin + start, origin + end)

    def sequences(self, rows: IntegerArray, view: Literal["nucleotide", "protein"]) -> list[bytes]:
        """Return the sequences of rows, as input for an encoder.

        Parameters
        ----------
        rows
            ``(n,)`` integers: rows, in any order.
        view
            ``nucleotide``: bases on the strand of the frame, three per residue, plus the next base
            if it is in the window; of a stretch, its own bases. ``protein``: residues of the frame
            or stretch. An index of whole sequences has only the view of its alphabet.

        Returns
        -------
        list of bytes
            In the order of `rows`.

        Raises
        ------
        UsageError
            When the index does not have this view.
        """
        kind = self.spec.alphabet.name.lower()
        if self.spec.kind in {"windows", "whole"} and view != kind:
            raise UsageError(
                f"an index of whole {kind} sequences has no {view} view: choose an encoder for "
                f"{kind} sequences"
            )
        try:
            span = self._values["row_span"][rows]
            if self.spec.genetic_code is None:
                return self._cut_out(rows, span)
            span = span - _OFFSETS[self._values["row_frame"][rows]]
            if view == "nucleotide":
                return self._cut_out(rows, np.minimum(3 * self.row_lengths[rows] + 1, span))
            codons = span // 3
            joined = b"".join(self._cut_out(rows, 3 * codons))
            residues = residues_by_codon(joined, genetic_code(self.spec.genetic_code))
            ends = np.cumsum(codons, dtype=np.int64)
            spans = zip((ends - codons).tolist(), ends.tolist(), strict=True)
            # Until here an unknown codon is "-", so each codon has one residue.
            return [residues[low:high].replace(b"-", b"") for low, high in spans]
        finally:
            for column in self._columns.values():
                column.release()

    def kinds(self, rows: IntegerArray) -> ByteArray:
        """Return the code of each row: a frame, `WINDOW_ITEM` or `PIECE_ITEM`, ``(n,)`` uint8."""
        kinds: ByteArray = self._values["row_frame"][rows]
        return kinds

    def without_vector(self, rows: IntegerArray) -> BoolArray:
        """Return whether another classifier than that of the items scores each row, ``(n,)``."""
        kinds = self.kinds(rows)
        others: BoolArray = (kinds == PIECE_ITEM) | ((kinds == WINDOW_ITEM) & self.spec.fallback)
        return others

    def _cut_out(self, rows: IntegerArray, letters: IntegerArray) -> list[bytes]:
        """Return the first ``letters[i]`` bases of the frame of ``rows[i]``, for each row."""
        values = self._values
        frame, first = values["row_frame"][rows], values["row_first_base"][rows]
        offset, forward = _OFFSETS[frame], _FORWARD[frame]
        low = first + np.where(forward, offset, values["row_span"][rows] - offset - letters)
        spans = zip(low.tolist(), (low + letters).tolist(), forward.tolist(), strict=True)
        read = self._bases.read
        # Rows are sorted by length: neighbours in a unit are far apart in the file.
        with self._bases.scattered_reads():
            return [
                read(a, b) if onward else reverse_complement(read(a, b)) for a, b, onward in spans
            ]


def index_in_memory(inputs: Sequence[Input], spec: IndexSpec, rules: InputRules) -> SequenceIndex:
    """Read all inputs and build their index in memory: about 2 bytes per base.

    Parameters and errors are those of `build_index`.
    """
    folder = MemoryFolder()
    return SequenceIndex(folder, write_columns(folder, inputs, spec, no_listener, rules))


def index_blocks(
    inputs: Sequence[Input],
    spec: IndexSpec,
    rules: InputRules,
    n_bytes: int,
    warn: Callable[[str], object],
) -> Iterator[SequenceIndex]:
    """Read all inputs; yield the index in memory of each block of consecutive records.

    Parameters
    ----------
    inputs, spec, rules
        As for `build_index`.
    n_bytes
        Approximate size of a block, in letters and names; a longer record is a block of its own.
    warn
        Called after the last block, with each warning about the inputs. Repeated names are not
        counted.

    Raises
    ------
    InputError
        When an input cannot be read, or is invalid; after the blocks of the records before.
    """
    for folder, header in column_blocks(inputs, spec, rules, n_bytes, warn):
        yield SequenceIndex(folder, header)


def build_index(
    folder: Path,
    inputs: Sequence[str],
    spec: IndexSpec,
    read: ReadListener = no_listener,
    *,
    rules: InputRules | None = None,
) -> SequenceIndex:
    """Read all inputs and build their index.

    The memory needed is that of the longest record, plus about 50 bytes per item. The folder is
    created atomically, and survives a power failure.

    Parameters
    ----------
    folder
        Folder of the index; must not exist.
    inputs
        Files for `virnucpro.sequences.records.read_records`, in the order of the records.
    spec
        Rules that divide records into items.
    read
        Called about once per MB with the numbers of records and letters that have been read.
    rules
        Which trouble in the inputs is refused; None for the default rules.

    Raises
    ------
    InputError
        When an input cannot be read, or is invalid.
    RunExistsError
        When `folder` exists.
    StoreError
        When the index cannot be written.
    UsageError
        When standard input is given twice.
    """
    if folder.exists():
        raise RunExistsError(f"{folder}: the folder exists; remove it or choose another folder")
    rules = rules or InputRules()
    try:
        with write_folder(folder) as temporary:
            write_header(temporary, write_columns(temporary, inputs, spec, read, rules))
    except OSError as error:
        raise StoreError(
            f"{folder}: the sequence index cannot be written ({error}); correct this error "
            "and rerun the command, or choose another output folder"
        ) from error
    return SequenceIndex.open(folder)


def input_names(given: Sequence[str]) -> list[str]:
    """Return the names of input files as in all outputs, see `SequenceIndex.input_names`."""
    paths = [*map(shown_path, given)]
    names = [Path(path).name or path for path in paths]
    shown = names if len({*names}) == len(names) else _numbered(paths)
    return list(map(encoded_file_name, shown))


def _numbered(paths: Sequence[str]) -> list[str]:
    """Return the paths; ``#2`` follows the second occurrence of a path, or the next free number."""
    taken, times = {*paths}, Counter[str]()
    found = []
    for path in paths:
        times[path] += 1
        name = path
        if times[path] > 1:
            while (name := f"{path}#{times[path]}") in taken:
                times[path] += 1
        taken.add(name)
        found.append(name)
    return found


def _parts(column: Column, low: IntArray, high: IntArray) -> list[bytes]:
    """Return parts of a column of bytes; those that follow each other are read at once."""
    if len(low) and (low[1:] == high[:-1]).all():
        text = column.read(int(low[0]), int(high[-1]))
        spans = zip((low - low[0]).tolist(), (high - low[0]).tolist(), strict=True)
        return [text[start:end] for start, end in spans]
    return [column.read(*span) for span in zip(low.tolist(), high.tolist(), strict=True)]


def _owners(first: IntArray, members: IntArray) -> IntArray:
    """Return the owner of each member, such as the window of an item.

    Owner ``i`` has the members ``first[i]`` to ``first[i + 1] - 1``.
    """
    return np.searchsorted(first, members, side="right") - 1
