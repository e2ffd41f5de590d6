"""The tables of a run: each class is a table, each method a column; its docstring is the meaning.

The writer, the reader, the Python API, the report and docs/columns.md follow these declarations.
"""

from functools import cached_property
from typing import Final

import numpy as np

from virnucpro.arrays import BoolArray, FloatArray, IntArray
from virnucpro.classifier.call_options import PRESETS
from virnucpro.classifier.consensus import Call, Evidence, Status, WindowCalls
from virnucpro.classifier.decision import Flag, Reason
from virnucpro.classifier.regions import Regions
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.items import ITEM_NAMES
from virnucpro.store.schema import RowState
from virnucpro.tables.cells import NA, integers, named
from virnucpro.tables.schema import TableBlock, Values, column
from virnucpro.tables.source import TOPOLOGIES, RunScores

CALL_NAMES: Final = tuple(
    "non-viral" if call is Call.NON_VIRAL else call.name.lower() for call in Call
)
"""Output name of each `Call` code."""
STATUS_NAMES: Final = tuple(status.name.lower() for status in Status)
"""Output name of each `Status` code."""

_EVIDENCE_NAMES = tuple(
    NA if evidence is Evidence.NONE else evidence.name.lower() for evidence in Evidence
)
_REASON_NAMES = tuple(NA if reason is Reason.NONE else reason.name.lower() for reason in Reason)
_SOURCES: Final = {"shuffled": "random_sequence"}
"""What classes of the training are called in the table, where it is another name."""
_FLAG_NAMES = tuple(
    ",".join(flag.name.lower() for flag in Flag if flag.name and number & flag) or NA
    for number in range(1 << len(Flag))
)
"""Output names of each combination of flags."""
_STATES: Final = ("non-viral", "viral")
_EDGES: Final = ("boundary", "record")


class _InRecords(TableBlock):
    """Columns that several tables have; `records` are the records of the rows, ``(n,)``."""

    @property
    def records(self) -> IntArray:
        """Record of each row."""
        return self.rows

    @column("name", "report", "notebook")
    def seq_name(self) -> Values:
        """Header up to the first white space; names may repeat."""
        return self.run.index.record_names(self.records)

    @column("integer", "report", "notebook")
    def length(self) -> Values:
        """Bases, or letters of a protein; of paired reads, those of both mates."""
        return self.run.index.record_letters[self.records]

    @column("integer")
    def n_windows(self) -> Values:
        """Windows of the sequence."""
        return self.run.records.n_windows[self.records]

    @column("name", "report", "notebook")
    def status(self) -> Values:
        """How the row came about: see the values of `status` in `predictions.tsv`."""
        return named(STATUS_NAMES, self.run.records.status[self.records])

    @column("name", "report")
    def file(self) -> Values:
        """Input file: its name, or its path if two inputs have one name."""
        return input_files(self.run.index, self.records)

    @column("integer", "report")
    def record(self) -> Values:
        """Number of the record in the file, from 1."""
        return self.run.index.record_origins(self.records)[1]


class Predictions(_InRecords):
    """One row per record, in input order."""

    filename = "predictions.tsv"

    seq_name = _InRecords.seq_name
    length = _InRecords.length
    n_windows = _InRecords.n_windows

    @column("integer")
    def n_scored(self) -> Values:
        """Windows with a score."""
        return self.run.records.n_scored[self.rows]

    @column("number")
    def scored_fraction(self) -> Values:
        """`n_scored` divided by `n_windows`."""
        with np.errstate(invalid="ignore"):
            return self.run.records.n_scored[self.rows] / self.run.records.n_windows[self.rows]

    @column("number", "report", "notebook")
    def score(self) -> Values:
        """Mean score of the scored windows: 0 non-viral, 1 viral."""
        return self.run.records.score[self.rows]

    @column("name", "report", "notebook")
    def call(self) -> Values:
        """`viral`: keep; `non-viral`; `ambiguous`: see `reason`; `not_scored`: see `status`."""
        return named(CALL_NAMES, self.run.calls.call[self.rows])

    status = _InRecords.status

    @column("text", "report")
    def best_window(self) -> Values:
        """`start-end` of the highest-scoring window, 1-based, inclusive."""
        return _spans(self.run.index, self.run.records.best_window[self.rows])

    @column("number", "report", "notebook")
    def probability(self) -> Values:
        """Probability of a viral sequence, at the prevalence of the input (`--prevalence`)."""
        return self.run.calls.probability[self.rows]

    @column("number", "notebook")
    def fdr(self) -> Values:
        """Expected share of false calls, if this record and all more probable ones are called."""
        return self.run.calls.fdr[self.rows]

    @column("text", "report", "notebook")
    def tier(self) -> Values:
        """Strictest preset that calls it viral: `sensitive`, `default`, `conservative`, or `NA`."""
        return named((NA, *PRESETS), self.run.calls.tier[self.rows])

    @column("text")
    def evidence(self) -> Values:
        """Scored items: `frames` (frames or stretches), `composition` (windows), `both`."""
        return named(_EVIDENCE_NAMES, self.run.records.evidence[self.rows])

    @column("text", "report")
    def reason(self) -> Values:
        """Why a call is `ambiguous`, see below."""
        return named(_REASON_NAMES, self.run.calls.reason[self.rows])

    @column("text", "report")
    def flags(self) -> Values:
        """What makes the call less certain, see below; several are separated by commas."""
        return named(_FLAG_NAMES, self.run.calls.flags[self.rows])

    @column("text", "report")
    def likely_source(self) -> Values:
        """Most probable class, such as `rna_virus`; a hint, and `NA` if it contradicts `call`."""
        names = (_SOURCES.get(name, name) for name in self.run.classes)
        return named((NA, *names), self.run.sources[self.rows] + 1)

    file = _InRecords.file
    record = _InRecords.record

    @column("text", "report")
    def topology(self) -> Values:
        """`provirus_candidate`, or `DTR` or `ITR`: repeats at both ends of a virus, see below."""
        return named(TOPOLOGIES, self.run.topology[self.rows])

    @column("number")
    def calibrated_probability(self) -> Values:
        """Probability at a prevalence of one half, to compare sequences of different inputs."""
        return self.run.calls.calibrated[self.rows]

    @column("count", "report")
    def n_genes(self) -> Values:
        """Predicted genes; `NA`, as in the next columns, if the genes were not judged."""
        return self._fact("genes")

    @column("number", "report")
    def coding_density(self) -> Values:
        """Share of known bases in genes, without stop codons; overlaps count twice; at most 1."""
        return np.minimum(3 * self._ratio("gene codons", "known bases"), 1)

    @column("number")
    def strand_switches(self) -> Values:
        """Changes of the strand from one gene to the next, per gene; `NA` without a gene."""
        return self._ratio("strand switches", "genes")

    @column("number", "report")
    def viral_words(self) -> Values:
        """Share of protein words of genes known of viruses alone; above 0.05: of a known kind."""
        return self._ratio("known viral words", "words of genes")

    def _fact(self, name: str) -> FloatArray:
        return self.run.records.fact(name)[self.rows]

    def _ratio(self, name: str, of: str) -> FloatArray:
        whole = self._fact(of)
        return self._fact(name) / np.where(whole > 0, whole, np.nan)


class WindowRows(_InRecords):
    """A table whose rows are windows."""

    @cached_property
    def calls(self) -> WindowCalls:
        """Calls of these windows."""
        first, last = (int(self.rows[0]), int(self.rows[-1]) + 1) if len(self.rows) else (0, 0)
        return self.run.windows.block(first, last).select(self.rows - first)


class Windows(WindowRows):
    """One row per window, in input order."""

    filename = "windows.tsv"

    @classmethod
    def all_rows(cls, run: RunScores) -> int:
        """Return the number of windows."""
        return run.index.n_windows

    @cached_property
    def records(self) -> IntArray:
        """Record of each window."""
        return np.searchsorted(self.run.index.record_first_window, self.rows, side="right") - 1

    seq_name = _InRecords.seq_name

    @column("name")
    def window(self) -> Values:
        """Name of the window, as in the published tool."""
        return self.run.index.window_names(self.rows)

    @column("integer")
    def start(self) -> Values:
        """First base, from 1."""
        return self.run.index.window_starts[self.rows] + 1

    @column("integer")
    def end(self) -> Values:
        """Last base, inclusive."""
        return self.run.index.window_ends[self.rows]

    @column("integer")
    def n_items(self) -> Values:
        """Items of the window: stop-free frames, one stretch, or the whole window."""
        return self.calls.n_items

    @column("integer")
    def n_scored(self) -> Values:
        """Items with a score."""
        return self.calls.n_scored

    @column("number")
    def score(self) -> Values:
        """Score of the window."""
        return self.calls.score

    @column("name")
    def call(self) -> Values:
        """`viral` if virus scores at least as high as others, else `non-viral`; `not_scored`."""
        return named(CALL_NAMES, self.calls.call)

    @column("name")
    def status(self) -> Values:
        """As in `predictions.tsv`."""
        return named(STATUS_NAMES, self.calls.status)

    @column("text")
    def best_frame(self) -> Values:
        """Frame with the highest score: `F1` to `F3`, `R1` to `R3`, or `W`, a whole window."""
        return _frames(self.run.index, self.calls.best_item)

    @column("text")
    def evidence(self) -> Values:
        """`frames` or `composition`."""
        return named(_EVIDENCE_NAMES, self.calls.evidence)

    file = _InRecords.file
    record = _InRecords.record


class RegionTable(_InRecords):
    """One row per stretch of a long record, in the order of the records."""

    filename = "regions.tsv"

    @classmethod
    def all_rows(cls, run: RunScores) -> int:
        """Return the number of stretches."""
        return 0 if run.regions is None else len(run.regions.record)

    @cached_property
    def regions(self) -> Regions:
        """These stretches."""
        assert self.run.regions is not None
        return self.run.regions.select(self.rows)

    @property
    def records(self) -> IntArray:
        """Record of each stretch."""
        return self.regions.record

    seq_name = _InRecords.seq_name

    @column("integer")
    def start(self) -> Values:
        """First base, from 1."""
        return self.regions.start + 1

    @column("integer")
    def end(self) -> Values:
        """Last base, inclusive."""
        return self.regions.end

    @column("integer")
    def length(self) -> Values:
        """Bases."""
        return self.regions.end - self.regions.start

    @column("name")
    def state(self) -> Values:
        """`viral` or `non-viral`."""
        return named(_STATES, self.regions.viral)

    @column("integer")
    def n_windows(self) -> Values:
        """Windows."""
        return self.regions.n_windows

    @column("integer")
    def n_scored(self) -> Values:
        """Windows with a score."""
        return self.regions.n_scored

    @column("number")
    def score(self) -> Values:
        """Mean score of the scored windows."""
        return self.regions.score

    @column("number")
    def log_odds(self) -> Values:
        """Their mean calibrated log-odds, at a prevalence of 0.5."""
        return self.regions.log_odds

    @column("number")
    def probability(self) -> Values:
        """Of the stretch by itself; of an undivided sequence, as in `predictions.tsv`."""
        return self.regions.probability

    @column("name")
    def start_edge(self) -> Values:
        """`record`: end of the sequence, or of its windows; `boundary`: a change of the state."""
        return named(_EDGES, self._other_record(self.rows - 1))

    @column("name")
    def end_edge(self) -> Values:
        """As `start_edge`."""
        return named(_EDGES, self._other_record(self.rows + 1))

    def _other_record(self, rows: IntArray) -> BoolArray:
        """Return whether each row has another record than this one, or does not exist."""
        assert self.run.regions is not None
        records = np.pad(self.run.regions.record, 1, constant_values=-1)
        other: BoolArray = records[rows + 1] != self.records
        return other

    file = _InRecords.file
    record = _InRecords.record


class Missing(_InRecords):
    """One row per record with windows that have no result yet."""

    filename = "missing.tsv"

    @classmethod
    def all_rows(cls, run: RunScores) -> IntArray:
        """Return the records with missing windows."""
        return np.flatnonzero(run.records.status == Status.MISSING)

    seq_name = _InRecords.seq_name
    length = _InRecords.length
    n_windows = _InRecords.n_windows

    @column("integer")
    def n_missing(self) -> Values:
        """Windows and pieces without a result."""
        return self.run.records.n_missing[self.rows]


class Quarantine(_InRecords):
    """One row per item or piece that failed permanently."""

    filename = "quarantine.tsv"

    @classmethod
    def all_rows(cls, run: RunScores) -> IntArray:
        """Return the quarantined items, then the quarantined pieces, which follow all items."""
        quarantined = run.coverage.row_state == RowState.QUARANTINED
        items = np.flatnonzero(quarantined[run.index.item_row])
        pieces = np.flatnonzero(quarantined[run.index.piece_row])
        return np.concatenate((items, run.index.n_items + pieces))

    @cached_property
    def items(self) -> IntArray:
        """The rows of this block that are items."""
        return self.rows[self.rows < self.run.index.n_items]

    @cached_property
    def pieces(self) -> IntArray:
        """The pieces of this block; they follow the items."""
        return self.rows[len(self.items) :] - self.run.index.n_items

    @cached_property
    def windows(self) -> IntArray:
        """Window of each item."""
        return np.searchsorted(self.run.index.window_first_item, self.items, side="right") - 1

    @cached_property
    def records(self) -> IntArray:
        """Record of each item and piece."""
        index = self.run.index
        of_items = np.searchsorted(index.record_first_window, self.windows, side="right") - 1
        of_pieces = np.searchsorted(index.record_first_piece, self.pieces, side="right") - 1
        return np.concatenate((of_items, of_pieces))

    @cached_property
    def spans(self) -> tuple[IntArray, IntArray]:
        """First base, from 0, and last base, exclusive, of each item's window and each piece."""
        index = self.run.index
        starts, ends = index.piece_bounds(self.pieces)
        return (
            np.concatenate((index.window_starts[self.windows], starts)),
            np.concatenate((index.window_ends[self.windows], ends)),
        )

    @cached_property
    def numbers(self) -> IntArray:
        """Row number of each item and piece."""
        index = self.run.index
        return np.concatenate((index.item_row[self.items], index.piece_row[self.pieces]))

    @cached_property
    def failures(self) -> list[tuple[str, str, str]]:
        """Reason of each item in one word, a colon, and the description."""
        reasons = self.run.coverage.reasons
        return [reasons.get(row, NA).partition(": ") for row in self.numbers.tolist()]

    seq_name = _InRecords.seq_name

    @column("name")
    def item(self) -> Values:
        """Name of the frame, window or piece."""
        index = self.run.index
        return index.item_names(self.items) + index.piece_names(self.pieces)

    @column("integer")
    def row(self) -> Values:
        """Row number in segments and logs."""
        return self.numbers

    @column("integer")
    def start(self) -> Values:
        """First base of the window or piece, from 1."""
        return self.spans[0] + 1

    @column("integer")
    def end(self) -> Values:
        """Last base of the window or piece, inclusive."""
        return self.spans[1]

    @column("text")
    def reason(self) -> Values:
        """One word, such as `kills_process` or `overflow`."""
        return [word for word, _, _ in self.failures]

    @column("text")
    def evidence(self) -> Values:
        """Description of the failure."""
        return [text or NA for _, _, text in self.failures]


class Sequences(_InRecords):
    """The table of ``virnucpro embed``: one row per record, in input order."""

    filename = "sequences.tsv"

    seq_name = _InRecords.seq_name
    length = _InRecords.length
    status = _InRecords.status

    @column("text")
    def embedding(self) -> Values:
        """Number of the vector in `embeddings.h5`, from 0; `NA` for an empty sequence."""
        index = self.run.index
        first, after = (
            (
                index.items_before + index.window_first_item[index.record_first_window[records]]
            ).tolist()
            for records in (self.rows, self.rows + 1)
        )
        return [str(a) if b > a else NA for a, b in zip(first, after, strict=True)]


TABLES: Final = (Predictions, Windows, RegionTable, Missing, Quarantine, Sequences)
"""All tables, in the order of docs/columns.md."""


def input_files(index: SequenceIndex, records: IntArray) -> list[str]:
    """Return the input file of each record: its name, or its path if two files have one name."""
    return named(index.input_names, index.record_origins(records)[0])


def _spans(index: SequenceIndex, windows: IntArray) -> list[str]:
    """Return ``start-end`` of each window (1-based, inclusive); `NA` for window number -1."""
    if not index.n_windows:
        return [NA] * len(windows)
    starts, ends = index.window_starts[windows] + 1, index.window_ends[windows]
    spans = list(map("-".join, zip(integers(starts), integers(ends), strict=True)))
    for row in np.flatnonzero(windows < 0).tolist():
        spans[row] = NA
    return spans


def _frames(index: SequenceIndex, items: IntArray) -> list[str]:
    """Return the frame name of each item, W for a whole window; `NA` for item number -1."""
    if not index.n_items:
        return [NA] * len(items)
    return named((NA, *ITEM_NAMES), np.where(items < 0, 0, index.item_frame[items] + 1))
