"""Files of the stretches of records: regions.tsv, BED, GFF3, and a bedGraph of window scores.

BED, GFF3 and bedGraph name a sequence by the first word of its header, as samtools and IGV do.
Records with equal names cannot be told apart in them; regions.tsv has their file and number.
"""

from collections.abc import Iterator
from itertools import repeat, starmap
from pathlib import Path
from typing import Final
from urllib.parse import quote

import numpy as np

from virnucpro.classifier.consensus import Status
from virnucpro.classifier.regions import LEAST_WINDOWS, Regions, window_spans
from virnucpro.classifier.run_scores import WindowBlocks, record_blocks
from virnucpro.durable import write_file
from virnucpro.report.tables import origin_columns
from virnucpro.report.tsv import NA, blocks, codes, decimals, integers, write_tsv
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.windows import IntArray

__all__ = ["region_names", "write_bed", "write_bedgraph", "write_gff3", "write_regions"]

_STATES = ("non-viral", "viral")
_EDGES = ("boundary", "record")
_GFF3_SAFE: Final = "!$*+.:?@^_|-"
"""Characters of a sequence name that GFF3 does not escape, besides letters and digits."""
_ATTRIBUTE_SAFE: Final = "!$*+.:?@^_|-/()[]{}<> "


def write_regions(path: Path, index: SequenceIndex, regions: Regions) -> None:
    """Write regions.tsv: one row per stretch, in the order of the records.

    `start` and `end` are 1-based and inclusive. `score` is the mean score of the scored windows,
    `log_odds` their mean calibrated log-odds, `probability` that of a record with these windows.
    `start_edge` and `end_edge` are `record` at an end of the record, else `boundary`: the change
    lies within about one window of it. `file` and `record` are as in predictions.tsv.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file is unchanged.
    """
    at_end = regions.end == index.record_lengths[regions.record]
    write_tsv(
        path,
        len(regions.record),
        {
            "seq_name": lambda rows: index.record_names(regions.record[rows]),
            "start": integers(regions.start, 1),
            "end": integers(regions.end),
            "length": integers(regions.end - regions.start),
            "state": codes(regions.viral, _STATES),
            "n_windows": integers(regions.n_windows),
            "n_scored": integers(regions.n_scored),
            "score": decimals(regions.score),
            "log_odds": decimals(regions.log_odds),
            "probability": decimals(regions.probability),
            "start_edge": codes(regions.start == 0, _EDGES),
            "end_edge": codes(at_end, _EDGES),
        }
        | origin_columns(index, lambda rows: regions.record[rows]),
    )


def region_names(index: SequenceIndex, regions: Regions) -> list[str]:
    """Return ``name:start-end`` of each stretch, 1-based and inclusive, as for samtools faidx."""
    names = index.record_names(regions.record)
    spans = zip(names, (regions.start + 1).tolist(), regions.end.tolist(), strict=True)
    return [f"{name}:{start}-{end}" for name, start, end in spans]


def write_bed(path: Path, index: SequenceIndex, regions: Regions) -> None:
    """Write the viral stretches as BED (0-based, half open), without a header.

    The columns are those of BED6, the score being 1000 times the probability, then the windows, the
    scored windows, mean score and mean log-odds.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file is unchanged.
    """
    _write_lines(path, _bed_lines(index, regions.select(regions.viral)))


def _bed_lines(index: SequenceIndex, viral: Regions) -> Iterator[str]:
    for rows in blocks(len(viral.record)):
        part = viral.select(rows)
        cells = (
            index.record_names(part.record),
            map(str, part.start.tolist()),
            map(str, part.end.tolist()),
            region_names(index, part),
            (f"{1000 * share:.0f}" for share in np.nan_to_num(part.probability).tolist()),
            repeat(".", len(rows)),
            map(str, part.n_windows.tolist()),
            map(str, part.n_scored.tolist()),
            decimals(viral.score)(rows),
            decimals(viral.log_odds)(rows),
        )
        yield from map("\t".join, zip(*cells, strict=True))


def write_gff3(path: Path, index: SequenceIndex, regions: Regions) -> None:
    """Write the viral stretches as GFF3 (1-based, inclusive), score: the probability.

    A stretch of a record with both kinds is a `proviral_region`, any other a `viral_sequence`, as
    in the Sequence Ontology. Names and values are percent-encoded by the rules of GFF3 1.26. A name
    that several records have is declared once, with the largest length.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file is unchanged.
    """
    _write_lines(path, _gff3_lines(index, regions))


def _gff3_lines(index: SequenceIndex, regions: Regions) -> Iterator[str]:
    yield "##gff-version 3"
    inserted = regions.in_both(index.n_records)[regions.record][regions.viral]
    viral = regions.select(regions.viral)
    lengths: dict[str, int] = {}
    for rows in blocks(len(viral.record)):
        records = viral.record[rows]
        pairs = zip(_seqids(index, records), index.record_lengths[records].tolist(), strict=True)
        for name, length in pairs:
            lengths[name] = max(length, lengths.get(name, 0))
    yield from (f"##sequence-region {name} 1 {length}" for name, length in lengths.items())
    for rows in blocks(len(viral.record)):
        part = viral.select(rows)
        cells = (
            rows.tolist(),
            _seqids(index, part.record),
            codes(inserted, ("viral_sequence", "proviral_region"))(rows),
            (part.start + 1).tolist(),
            part.end.tolist(),
            decimals(viral.probability)(rows),
            region_names(index, part),
            part.n_windows.tolist(),
            part.n_scored.tolist(),
            decimals(viral.score)(rows),
            decimals(viral.log_odds)(rows),
        )
        yield from starmap(_gff3_line, zip(*cells, strict=True))


def _seqids(index: SequenceIndex, records: IntArray) -> list[str]:
    return [quote(name, safe=_GFF3_SAFE) for name in index.record_names(records)]


def _gff3_line(
    number: int,
    seqid: str,
    kind: str,
    start: int,
    end: int,
    probability: str,
    name: str,
    n_windows: int,
    n_scored: int,
    score: str,
    log_odds: str,
) -> str:
    chance = "." if probability == NA else probability
    attributes = (
        f"ID=region{number + 1};Name={quote(name, safe=_ATTRIBUTE_SAFE)};n_windows={n_windows};"
        f"n_scored={n_scored};score={score};log_odds={log_odds}"
    )
    return f"{seqid}\tvirnucpro\t{kind}\t{start}\t{end}\t{chance}\t.\t.\t{attributes}"


def write_bedgraph(path: Path, index: SequenceIndex, windows: WindowBlocks) -> None:
    """Write the score of each scored window of the records of at least 10 windows, as bedGraph.

    Neighbouring windows overlap by some bases, and a bedGraph must not: each overlap is cut in its
    middle. One block of windows is in memory.

    Raises
    ------
    OSError
        When the file cannot be written; an existing file is unchanged.
    """
    _write_lines(path, _bedgraph_lines(index, windows))


def _bedgraph_lines(index: SequenceIndex, windows: WindowBlocks) -> Iterator[str]:
    yield 'track type=bedGraph name="virnucpro score" viewLimits=0:1 autoScale=off'
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
            index.record_names(first + owner[rows]),
            *(cells(rows) for cells in (integers(starts), integers(ends), decimals(calls.score))),
        )
        yield "\n".join(map("\t".join, zip(*columns, strict=True)))


def _write_lines(path: Path, lines: Iterator[str]) -> None:
    with write_file(path) as stream:
        for line in lines:
            stream.write(f"{line}\n".encode())
