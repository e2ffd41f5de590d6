"""Write the outputs of a run from the segments of its blocks.

The first pass reads the scores of records, and calls all records. The second pass writes the rows
of one block after the other. A block without a segment is read from the inputs: its records are
missing.
"""

import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import numpy as np

from virnucpro.arrays import AnyArray, ByteArray, IntArray, large_array
from virnucpro.classifier.calibration import read_calibration
from virnucpro.classifier.call_options import CallOptions
from virnucpro.classifier.consensus import Call, RecordScores, Thresholds
from virnucpro.classifier.decision import RecordCalls, RecordQuality, call_records
from virnucpro.classifier.run_scores import run_windows
from virnucpro.compute.block import block_results
from virnucpro.report.extract import RecordIds, UniqueIds, extract_file, texts_of_call
from virnucpro.report.extract_options import ExtractOptions
from virnucpro.report.genes import gene_lines
from virnucpro.report.regions import BEDGRAPH, bed_lines, bedgraph_lines, gff3_lines
from virnucpro.run.manifest import Manifest
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.block import BlockIndex, index_block, stored_index
from virnucpro.sequences.index import input_names
from virnucpro.sequences.input_rules import InputNotes, InputRules
from virnucpro.sequences.scan import Scan
from virnucpro.sequences.spec import IndexSpec, InputFile
from virnucpro.store.block_segment import named_arrays, open_block
from virnucpro.store.coverage import Coverage, coverage_of_rows
from virnucpro.tables.columns import (
    CALL_NAMES,
    Missing,
    Predictions,
    Quarantine,
    RegionTable,
    Sequences,
    Windows,
)
from virnucpro.tables.published import PublishedConsensus, PublishedResults
from virnucpro.tables.schema import TableBlock
from virnucpro.tables.source import RunScores
from virnucpro.tables.write import header_line, table_lines

Columns = TypeVar("Columns", RecordScores, RecordQuality)
_RUN_JSON: Final = Path("run.json")
"""Origin of the calibration in messages."""


@dataclass(frozen=True, eq=False)
class StoredBlock:
    """Records of one block; `about` and `arrays` are those of its segment.

    Without a segment, `arrays` has no results of rows.
    """

    about: Mapping[str, Any]
    arrays: Mapping[str, AnyArray]
    _open: Callable[[], BlockIndex]

    @cached_property
    def index(self) -> BlockIndex:
        """Index of the records."""
        return self._open()

    @cached_property
    def coverage(self) -> Coverage:
        """States and scores of rows."""
        return coverage_of_rows(self.arrays, self.about["width"], dict(self.about["reasons"]))

    @property
    def missing(self) -> bool:
        """Whether the results of rows are missing."""
        return "row_state" not in self.arrays and len(self.arrays["row_lengths"]) > 0

    @property
    def records(self) -> RecordScores:
        """Scores of the records."""
        return RecordScores(**named_arrays(self.arrays, "record."))

    @property
    def quality(self) -> RecordQuality | None:
        """Composition of the records; None without a calibration."""
        columns = named_arrays(self.arrays, "quality.")
        return RecordQuality(**columns) if columns else None

    @property
    def item_state(self) -> ByteArray:
        """State of the row of each item."""
        return self.coverage.row_state[self.index.item_row]

    @property
    def item_names(self) -> list[str]:
        """Names of all items; a string of HDF5 cannot contain NUL: U+2400 replaces it."""
        names = self.index.item_names(np.arange(self.index.n_items))
        return [name.replace("\0", "\N{SYMBOL FOR NULL}") for name in names]


class RunBlocks:
    """The blocks of a run, opened one by one.

    Parameters
    ----------
    scan, spec, rules
        The inputs, and the rules by which they are read.
    manifest
        Parameters of the run.
    segments
        Path of the segment of each block that has a valid one.

    Attributes
    ----------
    first
        ``(n_blocks + 1,)``, number of all records before each block.
    n_records
        Number of all records.
    input_names
        Names of the input files, as in all outputs.
    calibration
        Calibration of the classifier; None if it has none.
    """

    def __init__(
        self,
        scan: Scan,
        spec: IndexSpec,
        rules: InputRules,
        manifest: Manifest,
        segments: Mapping[int, Path],
    ) -> None:
        self.scan, self.spec, self.rules = scan, spec, rules
        self._manifest, self._segments = manifest, segments
        counts = [block.n_records for block in scan.blocks]
        self.first: IntArray = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
        self.n_records = int(self.first[-1])
        self.input_names = input_names([file.path for file in scan.files])
        self.open = lru_cache(maxsize=1)(self._open)
        content = manifest.calibration
        self.calibration = read_calibration(content, _RUN_JSON) if content else None

    def place(self, number: int) -> slice:
        """Return the place of the records of a block among all."""
        return slice(int(self.first[number]), int(self.first[number + 1]))

    @cached_property
    def width(self) -> int:
        """Number of scores of a row."""
        for number, path in self._segments.items():
            segment = open_block(path, number, self._manifest.fingerprint)
            return int(segment.about["width"])
        return 2

    def numbers(self) -> range:
        """Return the numbers of all blocks."""
        return range(len(self.scan.blocks))

    def _open(self, number: int) -> StoredBlock:
        path = self._segments.get(number)
        if path is None:
            return self._missing(number)
        segment = open_block(path, number, self._manifest.fingerprint)
        place = self.scan.blocks[number], self.spec, self.input_names, self.scan, self.rules
        return StoredBlock(
            segment.about, segment.arrays, partial(stored_index, segment.arrays, *place)
        )

    def _missing(self, number: int) -> StoredBlock:
        index, notes = index_block(self.scan, number, self.spec, self.rules, self.input_names)
        results = block_results(
            index,
            index.columns(),
            notes,
            {},
            width=self.width,
            n_classes=len(self._manifest.classes),
            calibrated=self.calibration is not None,
        )
        return StoredBlock(*results, lambda: index)

    def record_names(self, records: IntArray) -> list[str]:
        """Return the names of records, as `SequenceIndex.record_names`."""
        blocks = np.searchsorted(self.first, records, side="right") - 1
        names = np.empty(len(records), object)
        for number in np.unique(blocks).tolist():
            here = blocks == number
            names[here] = self.open(number).index.record_names(records[here] - self.first[number])
        return list(names)

    def record_origins(self, records: IntArray) -> tuple[IntArray, IntArray]:
        """Return input file and number of records, as `SequenceIndex.record_origins`."""
        blocks = np.searchsorted(self.first, records, side="right") - 1
        places = [(block.spans[0].file, block.first_record) for block in self.scan.blocks]
        files, before = np.array(places, np.int64)[blocks].T
        return files, before + records - self.first[blocks] + 1


@dataclass(frozen=True, eq=False)
class CalledRun:
    """Calls of all records of a run.

    Attributes
    ----------
    records, calls
        Scores and calls of all records, in input order.
    notes
        Counts of the trouble in each block.
    fastq
        Whether all records have valid qualities.
    missing, quarantined
        Whether a block has no segment, and whether a row failed permanently.
    unique
        Unique ids of all records.
    """

    records: RecordScores
    calls: RecordCalls
    unique: UniqueIds
    notes: tuple[Mapping[str, Any], ...]
    fastq: bool
    missing: bool
    quarantined: bool


def call_blocks(blocks: RunBlocks, manifest: Manifest) -> CalledRun:
    """Read all segments; return the calls of all records by the rule of the run.

    Raises
    ------
    InputError
        If a block without a segment cannot be read from the inputs.
    """
    first = blocks.open(0)
    records = _room(first.records, blocks.n_records)
    quality = first.quality and _room(first.quality, blocks.n_records)
    hashes, starts = np.empty(blocks.n_records, np.int64), dict[int, int]()
    notes, fastq, missing, quarantined = [], blocks.n_records > 0, False, False
    for number in blocks.numbers():
        block, place = blocks.open(number), blocks.place(number)
        _fill(records, block.records, place)
        if quality is not None and block.quality is not None:
            _fill(quality, block.quality, place)
        hashes[place] = block.arrays["name_hash"]
        starts |= {place.start + record: start for record, start in block.about["starts"]}
        notes.append(block.about["notes"])
        fastq &= block.about["qualities"]
        missing |= block.missing
        quarantined |= bool(block.about["reasons"])
    calls = call_records(
        records,
        Thresholds(**manifest.thresholds),
        blocks.calibration,
        CallOptions(**manifest.calls),
        quality,
        other_window=manifest.has_other_window,
    )
    unique = UniqueIds(blocks, hashes, starts)
    return CalledRun(records, calls, unique, tuple(notes), fastq, missing, quarantined)


def _room(part: Columns, n: int) -> Columns:
    """Return columns of `n` entries, without values, as those of a part."""
    columns: list[AnyArray] = []
    for field in fields(part):
        values: AnyArray = getattr(part, field.name)
        columns.append(large_array((n, *values.shape[1:]), values.dtype))
    return type(part)(*columns)


def _fill(whole: Columns, part: Columns, place: slice) -> None:
    for field in fields(part):
        getattr(whole, field.name)[place] = getattr(part, field.name)


def input_warnings(blocks: RunBlocks, called: CalledRun) -> list[str]:
    """Return the warnings about the inputs.

    Raises
    ------
    InputError
        If most records of a file are invalid.
    """
    scan, spec, unique = blocks.scan, blocks.spec, called.unique
    notes = InputNotes(spec.alphabet, blocks.rules, judged=False, pieces=spec.piece is not None)
    second = {span.file for block in scan.blocks for span in block.spans[1:]}
    counts: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for block, of_block in zip(scan.blocks, called.notes, strict=True):
        counts[block.spans[0].file].append(of_block)
    for number, file in enumerate(scan.files):
        if number not in second:
            notes.begin(file.path)
            for of_block in counts[number]:
                notes.add_block(of_block)
            notes.end()
    files = [InputFile(file.path, file.sha256, 0, file.n_bytes) for file in scan.files]
    name = blocks.record_names(np.array([unique.repeated]))[0] if unique.n_repeats else ""
    return [*notes.warnings(files, unique.n_repeats, name)]


def write_blocks(
    target: RunDirectory, blocks: RunBlocks, manifest: Manifest, called: CalledRun
) -> None:
    """Write the tables of a run, the rows of one block after the other.

    Each file is replaced atomically at the end.

    Raises
    ------
    OSError
        If an output cannot be written.
    """
    outputs = _Outputs(target, manifest, called)
    if outputs.predicts:
        target.tracks.mkdir(exist_ok=True)
    with ExitStack() as stack, tempfile.TemporaryFile() as features:
        streams: dict[Path, IO[bytes]] = {_FEATURES: features}
        for path, first_line in outputs.files():
            streams[path] = stack.enter_context(extract_file(path))
            streams[path].write(first_line)
        n_items = n_features = 0
        for number in blocks.numbers():
            scores = _block_scores(blocks, number, manifest, called)
            scores.index.items_before, n_items = n_items, n_items + scores.index.n_items
            ids = RecordIds(scores.index, called.unique, blocks.place(number).start)
            for path, texts in outputs.of_block(scores, ids, n_features):
                streams[path].writelines(texts)
            n_features += 0 if scores.regions is None else int(scores.regions.viral.sum())
        if target.regions_gff3 in streams:  # all names of sequences come before all features
            features.seek(0)
            shutil.copyfileobj(features, streams[target.regions_gff3])


def _block_scores(
    blocks: RunBlocks, number: int, manifest: Manifest, called: CalledRun
) -> RunScores:
    """Return scores and calls of one block."""
    block, place = blocks.open(number), blocks.place(number)
    calls = {field.name: getattr(called.calls, field.name) for field in fields(RecordCalls)}
    columns = {name: calls[name][place] for name in calls.keys() - {"prevalence", "limits"}}
    return RunScores(
        block.index,
        block.coverage,
        run_windows(block.index, block.coverage),
        block.records,
        RecordCalls(**{**calls, **columns}),
        calibration=blocks.calibration,
        classes=manifest.classes,
        viral_classes=manifest.viral_classes,
        labels=manifest.labels,
    )


_FEATURES: Final = Path("features")
"""In place of the path of the lines of regions.gff3 that follow those of all blocks."""
_GFF3: Final = b"##gff-version 3\n"


@dataclass(frozen=True)
class _Outputs:
    """The outputs of a run: paths, first lines, and the texts of each block."""

    target: RunDirectory
    manifest: Manifest
    called: CalledRun

    @property
    def predicts(self) -> bool:
        """Return whether the records of the run are called."""
        return self.manifest.command == "predict"

    def files(self) -> Iterator[tuple[Path, bytes]]:
        """Yield the path and the first line of each output."""
        target = self.target
        yield from ((path, header_line(table)) for path, table in self._tables())
        if not self.predicts:
            return
        yield target.scores_bedgraph, f"{BEDGRAPH}\n".encode()
        if self.manifest.calibration:
            yield from ((target.regions_bed, b""), (target.regions_gff3, _GFF3))
        yield from ((path, b"") for _, path in self._extracts())
        if self.manifest.outputs.get("genes"):
            yield target.genes, _GFF3

    def of_block(
        self, scores: RunScores, ids: RecordIds, n_features: int
    ) -> Iterator[tuple[Path, Iterable[bytes]]]:
        """Yield the path and the texts of one block for each output."""
        for path, table in self._tables():
            yield path, table_lines(table, scores)
        if not self.predicts:
            return
        for path, lines in self._lines(scores, ids, n_features):
            yield path, (f"{line}\n".encode() for line in lines)
        for number, path in self._extracts():
            yield path, texts_of_call(ids, scores, number, fastq=self.called.fastq)

    def _lines(
        self, scores: RunScores, ids: RecordIds, n_features: int
    ) -> Iterator[tuple[Path, Iterable[str]]]:
        """Yield the path and the lines of the outputs that are neither tables nor sequences."""
        target, regions = self.target, scores.regions
        yield target.scores_bedgraph, islice(bedgraph_lines(ids, scores.windows), 1, None)
        if regions is not None:
            yield target.regions_bed, bed_lines(ids, regions.select(regions.viral))
            _, *lines = gff3_lines(ids, regions, n_features)
            yield target.regions_gff3, (line for line in lines if line.startswith("##"))
            yield _FEATURES, (line for line in lines if not line.startswith("##"))
        if self.manifest.outputs.get("genes"):
            viral = (scores.calls.call == Call.VIRAL) | scores.provirus
            yield target.genes, islice(gene_lines(ids, np.flatnonzero(viral)), 1, None)

    def _tables(self) -> Iterator[tuple[Path, type[TableBlock]]]:
        target = self.target
        if self.predicts:
            yield from ((target.predictions, Predictions), (target.windows, Windows))
            if self.manifest.calibration:
                yield target.regions, RegionTable
            if self.manifest.outputs.get("published_files"):
                yield target.published_results, PublishedResults
                yield target.published_consensus, PublishedConsensus
        else:
            yield target.sequences, Sequences
        if self.called.missing:
            yield target.missing, Missing
        if self.called.quarantined:
            yield target.quarantine, Quarantine

    def _extracts(self) -> Iterator[tuple[int, Path]]:
        """Yield the code of each call whose records are written, and the path."""
        options, fastq = ExtractOptions(**self.manifest.extracts), self.called.fastq
        for number, call in enumerate(CALL_NAMES if self.predicts else ()):
            if call in options.calls:
                yield number, self.target.extract(call, fastq=fastq, compressed=options.compress)
