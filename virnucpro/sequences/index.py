"""SequenceIndex: every record, window, item and row of a run, in memory-mapped columns on disk."""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from virnucpro.errors import UsageError
from virnucpro.sequences.builder import input_digests, write_index
from virnucpro.sequences.columns import COLUMNS, Column
from virnucpro.sequences.header import Header, changed_columns, read_header, verify_columns
from virnucpro.sequences.spec import IndexSpec, InputFile, RecordStatus, fingerprint
from virnucpro.sequences.translation import FRAMES, genetic_code
from virnucpro.sequences.views import FrameLocations, frame_bases, frame_peptides, whole_sequences
from virnucpro.sequences.windows import IntArray

__all__ = [
    "IndexSpec",
    "InputFile",
    "RecordStatus",
    "SequenceIndex",
    "build_index",
    "fingerprint",
    "input_digests",
]


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_NAMES_AT_ONCE = 1 << 14


class SequenceIndex:
    """Every record, window, item and row of a run.

    Columns are mapped into memory and read where they are touched, so that a process needs a few
    MB however large the index is. Make one with `build_index` or `open`.

    Attributes
    ----------
    spec
        How records became items.
    inputs
        The files read, by content.
    fingerprint
        Digest of the inputs' content, `spec` and the schema.
    record_lengths
        ``(n_records,)`` int64: bases, or residues of proteins.
    record_status
        ``(n_records,)`` uint8 of `RecordStatus`.
    record_first_window
        ``(n_records + 1,)`` int64: record ``i`` has windows ``[i]:[i + 1]``.
    window_starts, window_ends
        ``(n_windows,)`` int64, half open, in the record's own coordinates.
    window_first_item
        ``(n_windows + 1,)`` int64: window ``i`` has items ``[i]:[i + 1]``.
    item_frame
        ``(n_items,)`` uint8, see `virnucpro.sequences.translation.FRAMES`; 0 for whole sequences.
    item_row
        ``(n_items,)`` int64.
    row_lengths
        ``(n_rows,)`` int32, descending: residues of the frame, or letters of a whole sequence.
    """

    def __init__(self, folder: Path, header: Header) -> None:
        self.spec = header.spec
        self.inputs = header.inputs
        self.fingerprint = header.fingerprint
        self._folder = folder
        self._header = header
        self._columns = {name: Column(folder, name) for name in COLUMNS}
        column = {name: column.values for name, column in self._columns.items()}
        self.record_lengths: IntArray = column["record_lengths"]
        self.record_status: npt.NDArray[np.uint8] = column["record_status"]
        self.record_first_window: IntArray = column["record_first_window"]
        self.window_starts: IntArray = column["window_starts"]
        self.window_ends: IntArray = column["window_ends"]
        self.window_first_item: IntArray = column["window_first_item"]
        self.item_frame: npt.NDArray[np.uint8] = column["item_frame"]
        self.item_row: IntArray = column["item_row"]
        self.row_lengths: npt.NDArray[np.int32] = column["row_lengths"]
        self._row_first_base: IntArray = column["row_first_base"]
        self._row_span: npt.NDArray[np.int32] = column["row_span"]
        self._row_frame: npt.NDArray[np.uint8] = column["row_frame"]
        self._record_first_base: IntArray = column["record_first_base"]
        self._name_first: IntArray = column["name_first"]
        self._names = self._columns["names"]
        self._bases = self._columns["bases"]

    @classmethod
    def open(cls, folder: Path) -> "SequenceIndex":
        """Open an index on disk. Sizes are checked; see `verify` for more.

        Raises
        ------
        IndexFormatError
            When the folder holds no index, or one of an unknown version, or a damaged one.
        """
        return cls(folder, read_header(folder))

    def verify(self) -> None:
        """Read every file of the index once and compare its checksum.

        Raises
        ------
        IndexFormatError
            When a file was changed since it was written.
        """
        verify_columns(self._folder, self._header)

    def changed_files(self) -> list[tuple[Path, str]]:
        """Read every file of the index once; name all that were changed since, and how."""
        return list(changed_columns(self._folder, self._header))

    @property
    def n_records(self) -> int:
        """Number of records."""
        return len(self.record_lengths)

    @property
    def n_windows(self) -> int:
        """Number of windows."""
        return len(self.window_starts)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.item_row)

    @property
    def n_rows(self) -> int:
        """Number of distinct items."""
        return len(self.row_lengths)

    @property
    def name_bytes(self) -> int:
        """Length of all records' names together, in UTF-8."""
        return int(self._name_first[-1])

    def record_name(self, record: int) -> str:
        """Name a record as its header does."""
        return self.record_names(np.array([record]))[0]

    def record_names(self, records: IntArray) -> list[str]:
        """Return the names of records as all outputs spell them.

        Control characters, which a terminal could execute, are percent-encoded: ``%1B`` for the
        escape character. Any other character is as in the input.
        """
        distinct, which = np.unique(records, return_inverse=True)
        firsts, lasts = self._name_first[distinct].tolist(), self._name_first[distinct + 1].tolist()
        read = self._names.read
        names = [read(first, last).decode() for first, last in zip(firsts, lasts, strict=True)]
        if not "".join(names).isprintable():  # much faster than the regular expression
            names = [_CONTROL.sub(lambda match: quote(match[0]), name) for name in names]
        return [names[number] for number in which.tolist()]

    def count_encoded_names(self) -> int:
        """Count the records whose names contain control characters; see `record_names`."""
        count = 0
        for first in range(0, self.n_records, _NAMES_AT_ONCE):
            bounds = self._name_first[first : first + _NAMES_AT_ONCE + 1]
            text = self._names.read(int(bounds[0]), int(bounds[-1]))
            if not text.decode().isprintable():
                names = (text[a - bounds[0] : b - bounds[0]] for a, b in pairwise(bounds.tolist()))
                count += sum(_CONTROL.search(name.decode()) is not None for name in names)
        return count

    def window_name(self, window: int) -> str:
        """Name a window as the published tool does: ``{record}_chunk_{number from 1}``."""
        return self.window_names(np.array([window]))[0]

    def window_names(self, windows: IntArray) -> list[str]:
        """Name windows, in the order of `windows`; see `window_name`."""
        records = _owners(self.record_first_window, windows)
        numbers = windows - self.record_first_window[records] + 1
        names = zip(self.record_names(records), numbers.tolist(), strict=True)
        return [f"{name}_chunk_{number}" for name, number in names]

    def item_name(self, item: int) -> str:
        """Name an item: window and frame, or the record where it is a whole sequence."""
        return self.item_names(np.array([item]))[0]

    def item_names(self, items: IntArray) -> list[str]:
        """Name items, in the order of `items`; see `item_name`."""
        windows = _owners(self.window_first_item, items)
        if self.spec.kind == "whole":
            return self.record_names(_owners(self.record_first_window, windows))
        frames = self.item_frame[items].tolist()
        names = zip(self.window_names(windows), frames, strict=True)
        return [name + FRAMES[frame] for name, frame in names]

    def window_sequence(self, window: int) -> bytes:
        """Give the letters of a window."""
        (record,) = _owners(self.record_first_window, np.array([window]))
        origin = int(self._record_first_base[record])
        start, end = int(self.window_starts[window]), int(self.window_ends[window])
        return self._bases.read(origin + start, origin + end)

    def sequences(
        self, rows: npt.NDArray[np.integer], view: Literal["nucleotide", "protein"]
    ) -> list[bytes]:
        """Give what an encoder of a view gets.

        Parameters
        ----------
        rows
            ``(n,)`` integers: rows, in any order.
        view
            ``nucleotide``: the frame's bases, on its own strand. ``protein``: its residues. For an
            index of whole sequences, the view of its alphabet alone.

        Returns
        -------
        list of bytes
            In the order of `rows`.

        Raises
        ------
        UsageError
            When the index has no such view.
        """
        places = FrameLocations(
            self._row_first_base[rows],
            self._row_span[rows],
            self._row_frame[rows],
            self.row_lengths[rows],
        )
        try:
            if self.spec.genetic_code is None:
                return self._whole(places, view)
            if view == "nucleotide":
                return frame_bases(self._bases, places)
            return frame_peptides(self._bases, places, genetic_code(self.spec.genetic_code))
        finally:
            for column in self._columns.values():
                column.release()

    def _whole(self, places: FrameLocations, view: str) -> list[bytes]:
        kind = self.spec.alphabet.name.lower()
        if view != kind:
            raise UsageError(
                f"an index of whole {kind} sequences has no view {view}: choose an encoder of "
                f"{kind} sequences"
            )
        return whole_sequences(self._bases, places)


def build_index(folder: Path, inputs: Sequence[str], spec: IndexSpec) -> SequenceIndex:
    """Read all inputs and build their index.

    Memory does not grow with the number of bases beyond the longest record; it does by about 50
    bytes an item. The folder appears whole or not at all, and survives a power cut.

    Parameters
    ----------
    folder
        Where the index goes; nothing may be there yet.
    inputs
        Files as `virnucpro.sequences.records.read_records` takes them, in the order of records.
    spec
        How records become items.

    Raises
    ------
    InputError
        When an input cannot be read, or is not what it should be.
    RunExistsError
        When there is something under the name of `folder`.
    StoreError
        When the index cannot be written.
    UsageError
        When standard input is named twice.
    """
    write_index(folder, inputs, spec)
    return SequenceIndex.open(folder)


def _owners(first: IntArray, members: IntArray) -> IntArray:
    """Find the owner of each member; owner ``i`` has members ``first[i]:first[i + 1]``."""
    return np.searchsorted(first, members, side="right") - 1
