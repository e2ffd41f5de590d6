"""Files of the stretches of records: BED, GFF3, and a bedGraph of window scores.

BED, GFF3 and bedGraph name a sequence by its id, see `RecordIds`: the first word of its header, as
samtools and IGV do, if this word is unique.
"""

from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Final
from urllib.parse import quote

import numpy as np

from virnucpro.arrays import IntArray
from virnucpro.classifier.consensus import Status
from virnucpro.classifier.regions import LEAST_WINDOWS, Regions, window_spans
from virnucpro.classifier.run_scores import WindowBlocks, record_blocks
from virnucpro.durable import write_file
from virnucpro.report.extract import RecordIds
from virnucpro.tables.cells import NA, decimals, integers, named
from virnucpro.tables.write import blocks

_GFF3_SAFE: Final = "!$*+.:?@^_|-"
"""Characters of a sequence name that GFF3 does not escape, besides letters and digits."""
BEDGRAPH: Final = 'track type=bedGraph name="virnucpro score" viewLimits=0:1 autoScale=off'
"""First line of a bedGraph file."""
_ATTRIBUTE_SAFE: Final = "!$*+.:?@^_|-/()[]{}<> "


def region_names(ids: RecordIds, record: IntArray, start: IntArray, end: IntArray) -> list[str]:
    """Return ``id:start-end`` of each stretch, 1-based and inclusive, as for samtools faidx.

    `record`, `start` and `end` are as in `Regions`.
    """
    spans = zip(ids.of(record), (start + 1).tolist(), end.tolist(), strict=True)
    return [f"{name}:{start}-{end}" for name, start, end in spans]


def write_bed(path: Path, ids: RecordIds, regions: Regions) -> None:
    """Write the viral stretches as BED (0-based, half open), without a header.

    The columns are those of BED6, the score being 1000 times the probability, then the windows, the
    scored windows, mean score and mean log-odds.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file is unchanged.
    """
    write_lines(path, bed_lines(ids, regions.select(regions.viral)))


def bed_lines(ids: RecordIds, viral: Regions) -> Iterator[str]:
    """Yield the lines of a BED file, see `write_bed`."""
    for rows in blocks(len(viral.record)):
        part = viral.select(rows)
        cells = (
            ids.of(part.record),
            map(str, part.start.tolist()),
            map(str, part.end.tolist()),
            region_names(ids, part.record, part.start, part.end),
            (f"{1000 * share:.0f}" for share in np.nan_to_num(part.probability).tolist()),
            repeat(".", len(rows)),
            map(str, part.n_windows.tolist()),
            map(str, part.n_scored.tolist()),
            decimals(part.score),
            decimals(part.log_odds),
        )
        yield from map("\t".join, zip(*cells, strict=True))


def write_gff3(path: Path, ids: RecordIds, regions: Regions) -> None:
    """Write the viral stretches as GFF3 (1-based, inclusive), score: the probability.

    A stretch of a record with both kinds is a `proviral_region`, any other a `viral_sequence`, as
    in the Sequence Ontology. Names and values are percent-encoded by the rules of GFF3 1.26.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file is unchanged.
    """
    write_lines(path, gff3_lines(ids, regions))


def gff3_lines(ids: RecordIds, regions: Regions, n_before: int = 0) -> Iterator[str]:
    """Yield the lines of a GFF3 file, see `write_gff3`; `n_before` stretches have earlier IDs."""
    yield "##gff-version 3"
    inserted = regions.in_both(ids.index.n_records)[regions.record][regions.viral]
    viral = regions.select(regions.viral)
    records = np.unique(viral.record)
    for rows in blocks(len(records)):
        lengths = ids.index.record_lengths[records[rows]].tolist()
        for name, length in zip(sequence_ids(ids, records[rows]), lengths, strict=True):
            yield f"##sequence-region {name} 1 {length}"
    for rows in blocks(len(viral.record)):
        part = viral.select(rows)
        spans = region_names(ids, part.record, part.start, part.end)
        texts = (quote(name, safe=_ATTRIBUTE_SAFE) for name in spans)
        cells = (
            sequence_ids(ids, part.record),
            repeat("virnucpro"),
            named(("viral_sequence", "proviral_region"), inserted[rows]),
            integers(part.start + 1),
            integers(part.end),
            ("." if text == NA else text for text in decimals(part.probability)),
            repeat("."),
            repeat("."),
            (
                f"ID=region{number};Name={name};n_windows={n_windows};n_scored={n_scored};"
                f"score={score};log_odds={log_odds}"
                for number, name, n_windows, n_scored, score, log_odds in zip(
                    (n_before + rows + 1).tolist(),
                    texts,
                    integers(part.n_windows),
                    integers(part.n_scored),
                    decimals(part.score),
                    decimals(part.log_odds),
                    strict=True,
                )
            ),
        )
        yield from map("\t".join, zip(*cells, strict=False))  # repeat has no end


def sequence_ids(ids: RecordIds, records: IntArray) -> list[str]:
    """Return the ids of records by the rules of GFF3 for sequence names."""
    return [quote(name, safe=_GFF3_SAFE) for name in ids.of(records)]


def write_bedgraph(path: Path, ids: RecordIds, windows: WindowBlocks) -> None:
    """Write the score of each scored window of the records of at least 10 windows, as bedGraph.

    Neighbouring windows overlap by some bases, and a bedGraph must not: each overlap is cut in its
    middle. One block of windows is in memory.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file is unchanged.
    """
    write_lines(path, bedgraph_lines(ids, windows))


def bedgraph_lines(ids: RecordIds, windows: WindowBlocks) -> Iterator[str]:
    """Yield the lines of a bedGraph file, see `write_bedgraph`; several may be joined."""
    yield BEDGRAPH
    index = ids.index
    bounds = index.record_first_window
    for first, last in record_blocks(index):
        counts = np.diff(bounds[first : last + 1])
        if not (counts >= LEAST_WINDOWS).any():
            continue
        origin, after = int(bounds[first]), int(bounds[last])
        calls = windows.block(origin, after)
        owner = np.repeat(np.arange(last - first), counts)
        shown = (calls.status == Status.SCORED) & (counts[owner] >= LEAST_WINDOWS)
        if not shown.any():
            continue
        starts, ends = window_spans(
            index.window_starts[origin:after], index.window_ends[origin:after], owner
        )
        rows = np.flatnonzero(shown)
        columns = (
            ids.of(first + owner[rows]),
            integers(starts[rows]),
            integers(ends[rows]),
            decimals(calls.score[rows]),
        )
        yield "\n".join(map("\t".join, zip(*columns, strict=True)))


def write_lines(path: Path, lines: Iterator[str]) -> None:
    """Write lines, without their ends, as a text file; an existing file is replaced atomically."""
    with write_file(path) as stream:
        for line in lines:
            stream.write(f"{line}\n".encode())
