"""What the tables and reports of a run are made from: index, scores and calls; length classes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from virnucpro.arrays import (
    AnyArray,
    BoolArray,
    ByteArray,
    FloatArray,
    IntArray,
    large_array,
    slices,
)
from virnucpro.classifier.calibration import Calibration
from virnucpro.classifier.consensus import Call, RecordScores, Status
from virnucpro.classifier.decision import RecordCalls
from virnucpro.classifier.regions import Regions, find_regions
from virnucpro.classifier.run_scores import WindowBlocks, record_blocks
from virnucpro.classifier.spans import SpanScores
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.terminal_repeats import terminal_repeat
from virnucpro.store.coverage import Coverage
from virnucpro.store.schema import RowState
from virnucpro.tables.cells import NA

LENGTH_CLASSES: Final[Mapping[str, int]] = {
    "under 500": 0,
    "500 to 999": 500,
    "1 to 3 kb": 1_000,
    "3 to 10 kb": 3_000,
    "10 to 50 kb": 10_000,
    "50 kb or more": 50_000,
}
"""Least number of bases of each class, by which reports and launches count sequences."""
PROVIRUS: Final = "provirus_candidate"
"""Topology of a record with viral and non-viral stretches."""
TOPOLOGIES: Final = (NA, PROVIRUS, "DTR", "ITR")
_LEAST_COMPLETE: Final = 1_000
_MOST_COMPLETE: Final = 3_000_000
"""Bases of records that are searched for terminal repeats."""
_RNA: Final = "rna_virus"
"""Class of viruses that are in no genome of a host."""


@dataclass(frozen=True, eq=False)
class RunScores:
    """Scores and calls of a run.

    Attributes
    ----------
    index, coverage
        Names and lengths of records, windows and items; states and scores of rows.
    windows, records, calls
        Calls of windows, in blocks; scores and calls of records.
    calibration
        Calibration of the bundle; None if it has none.
    classes, viral_classes, labels
        Names of the classes of the classifier, of the viral ones among them, and of the two classes
        of the scores.
    """

    index: SequenceIndex
    coverage: Coverage
    windows: WindowBlocks
    records: RecordScores
    calls: RecordCalls
    calibration: Calibration | None = None
    classes: Sequence[str] = ()
    viral_classes: Sequence[str] = ()
    labels: Sequence[str] = ()

    @cached_property
    def sources(self) -> IntArray:
        """Most probable class of each record, ``(n_records,)``: a position in `classes`, or -1.

        -1 also if the class contradicts the call.
        """
        found = likely_sources(self.index, self.windows, self.coverage, len(self.classes))
        viral = np.isin(self.classes, self.viral_classes)
        return agreeing(found, viral, self.calls.call) if viral.any() else found

    @cached_property
    def regions(self) -> Regions | None:
        """Stretches of long records; None without a calibration."""
        if self.calibration is None:
            return None
        spans = SpanScores.of(self.index, self.coverage, len(self.classes))
        given = self.windows, self.records, self.calls, self.calibration, spans
        rna = np.append(np.isin(self.classes, _RNA), False)  # the source may be -1
        return find_regions(self.index, *given, whole=rna[self.sources])

    @cached_property
    def provirus(self) -> BoolArray:
        """Whether each record, ``(n_records,)``, has viral and non-viral stretches."""
        if self.regions is None:
            return np.zeros(self.index.n_records, np.bool_)
        return self.regions.in_both(self.index.n_records)

    @cached_property
    def topology(self) -> ByteArray:
        """Position in `TOPOLOGIES` of each record, ``(n_records,)``.

        Viral records that are not paired reads have those of terminal repeats.
        """
        topology, index = self.provirus.astype(np.uint8), self.index
        for part in slices(index.n_records):
            length = index.record_lengths[part]
            searched = (self.calls.call[part] == Call.VIRAL) & (topology[part] == 0)
            searched &= (length >= _LEAST_COMPLETE) & (length <= _MOST_COMPLETE)
            if index.mate_lengths is not None:
                searched &= index.mate_lengths[part] >= length
            for record in (part.start + np.flatnonzero(searched)).tolist():
                bases = index.record_sequence(record, 0, int(index.record_lengths[record]))
                if repeat := terminal_repeat(bases):
                    topology[record] = TOPOLOGIES.index(repeat)
        return topology

    @property
    def inserted(self) -> Regions:
        """Viral stretches of the records of `provirus`; none without a calibration."""
        regions = self.regions or Regions(*np.zeros((9, 0), np.int64))
        return regions.select(np.flatnonzero(regions.viral & self.provirus[regions.record]))


def likely_sources(
    index: SequenceIndex, windows: WindowBlocks, coverage: Coverage, n_classes: int
) -> IntArray:
    """Return the position of the class with the largest mean probability over scored pieces.

    Pieces are weighted by length. A record without a scored piece has the mean over its scored
    windows; a window has the probabilities of its item with the highest virus score.

    Returns
    -------
    ``(n_records,)`` int64
        -1 for a record without a scored window, and for a classifier of two classes.
    """
    classes = coverage.scores[:, 2 : 2 + n_classes]
    sources: IntArray = large_array((index.n_records,), np.int64)
    for part in slices(index.n_records):
        sources[part] = -1
    for first, last in record_blocks(index) if classes.shape[1] else ():
        first_piece = index.record_first_piece[first : last + 1]
        rows = index.piece_row[int(first_piece[0]) : int(first_piece[-1])]
        done = coverage.row_state[rows] == RowState.DONE
        weighted = classes[rows[done]] * index.row_lengths[rows[done], None]
        totals = _totals(_owners(first_piece)[done], weighted, last - first)
        lacking = np.invert(totals.any(axis=1))
        if lacking.any():
            first_window = index.record_first_window[first : last + 1]
            calls = windows.block(int(first_window[0]), int(first_window[-1]))
            owner = _owners(first_window)
            scored = (calls.status == Status.SCORED) & lacking[owner]
            rows = index.item_row[calls.best_item[scored]]
            totals += _totals(owner[scored], classes[rows], last - first)
        sources[first:last] = np.where(totals.any(axis=1), totals.argmax(axis=1), -1)
    return sources


def agreeing(sources: IntArray, viral: BoolArray, call: ByteArray) -> IntArray:
    """Return the source of each record, or -1 where it contradicts the call.

    Parameters
    ----------
    sources, call
        ``(n_records,)``: the class, or -1, and the code of the `Call`.
    viral
        ``(n_classes,)``, which classes are viral.
    """
    agreed: IntArray = large_array(sources.shape, np.int64)
    for part in slices(len(sources)):
        opposite = np.where(viral[sources[part]], Call.NON_VIRAL, Call.VIRAL)
        agreed[part] = np.where(call[part] == opposite, -1, sources[part])
    return agreed


def length_class(lengths: AnyArray) -> npt.NDArray[np.intp]:
    """Return the position of each length (n,) in `LENGTH_CLASSES`."""
    classes: npt.NDArray[np.intp] = np.digitize(lengths, list(LENGTH_CLASSES.values())[1:])
    return classes


def _owners(first: IntArray) -> IntArray:
    """Return the record, from 0, of each of its windows or pieces."""
    return np.repeat(np.arange(len(first) - 1), np.diff(first))


def _totals(owner: IntArray, values: FloatArray, n_records: int) -> FloatArray:
    """Return the sums of the values of each record, ``(n_records, n_classes)``."""
    n_classes = values.shape[1]
    cells = owner[:, None] * n_classes + np.arange(n_classes)
    totals = np.bincount(cells.ravel(), values.ravel(), n_records * n_classes)
    return totals.reshape(n_records, n_classes).astype(np.float64, copy=False)
