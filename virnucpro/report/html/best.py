"""The best records of a run: rows of the table of records, and tracks of window scores."""

from collections import defaultdict
from collections.abc import Mapping
from itertools import compress
from typing import Any, Final

import numpy as np

from virnucpro.arrays import IntArray
from virnucpro.report.genes import gene_bounds, genes_of_record
from virnucpro.report.html.counts import SHOWN_CALLS
from virnucpro.report.reading.facts import REGION_COLUMNS, RunFacts
from virnucpro.report.reading.records import RecordTable, read_tracks
from virnucpro.sequences.index import SequenceIndex
from virnucpro.tables.cells import NA
from virnucpro.tables.columns import CALL_NAMES, Predictions, RegionTable
from virnucpro.tables.schema import Block, Column, Values
from virnucpro.tables.source import PROVIRUS

_POINTS: Final = 400
_ROW: Final = 500_000
_ROWS: Final = 12
_DRAWN: Final = 24 * _ROW
"""Bases of a row of a drawing, rows of a record, and bases of all drawings with genes of a run."""
_LONGEST: Final = 80
Regions = list[tuple[Any, ...]]
"""Start, end and state of the regions of a record, by place."""


def shown(name: str) -> str:
    """Return a name for the page: the middle of a name of more than 80 characters is left out."""
    return name if len(name) <= _LONGEST else f"{name[:50]}…{name[-29:]}"


def ranked_records(table: RecordTable) -> IntArray:
    """Return the numbers of all records: viral first, by probability, then by length."""
    order = np.array([SHOWN_CALLS.index(name) for name in CALL_NAMES])
    evidence = np.nan_to_num(table.evidence, nan=-1.0)
    keys = (-table.numbers["length"], -evidence, order[table.words["call"].codes])
    return np.lexsort(keys).astype(np.int64, copy=False)


def record_rank(row: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the place of a row of `record_rows` among those of all runs: `ranked_records`."""
    values = (row["probability"], row["score"], -1.0)
    evidence = next(value for value in values if value is not None)
    return SHOWN_CALLS.index(row["call"]), -evidence, -row["length"]


def track_rank(entry: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the place of a track among those of all runs: that of its record in its own run."""
    return entry["topology"] != PROVIRUS, entry["windows"] < 2, *record_rank(entry)


def region_rank(row: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the place of a row of `region_rows` among those of all runs, which are in order."""
    return (row["topology"] != PROVIRUS,)


def record_rows(facts: RunFacts, numbers: IntArray) -> dict[str, list[Any]]:
    """Return the columns of the table of records; numbers as numbers, missing values as None."""
    columns = Predictions.shown("report")
    block = facts.records.table.rows(numbers, [column.name for column in columns])
    return {
        "sample": [facts.sample] * len(numbers),
        **{column.name: _plain(column, block[column.name]) for column in columns},
        "seq_name": [shown(str(name)) for name in block["seq_name"]],
    }


def _plain(column: Column, values: Values) -> list[Any]:
    """Return values for JSON, with None for missing ones."""
    plain = values if isinstance(values, list) else values.tolist()
    missing = (NA,) if column.kind == "text" else ()
    return [None if value in missing or value != value else value for value in plain]  # noqa: PLR0124 - NaN


def record_tracks(
    facts: RunFacts, ranking: IntArray, number: int
) -> tuple[list[dict[str, Any]], str]:
    """Return tracks of window scores of the best records, and why there is none.

    `ranking` is the result of `ranked_records`.

    Records with both kinds of regions come first, on half of the tracks at most, then those with
    more than one window. A row of a drawing is averaged over 400 stretches.
    """
    table = facts.records
    windows, known = table.numbers["n_windows"][ranking], np.isfinite(table.evidence[ranking])
    candidates = table.having("topology", PROVIRUS)[ranking]
    candidates &= np.cumsum(candidates) <= max(1, number // 2)
    first = np.lexsort((np.arange(len(ranking)), windows < 2, ~candidates))[:number]
    chosen = ranking[first[known[first]]]
    if not len(chosen):
        return [], "No sequence has a score." if len(table) else ""
    tracks = read_tracks(facts.windows, table, chosen)
    regions = regions_by_record(facts.regions)
    rows = record_rows(facts, chosen)
    entries, room = [], _DRAWN
    cells_of = zip(*rows.values(), strict=True)
    for record, row, track in zip(chosen.tolist(), cells_of, tracks, strict=True):
        cells = dict(zip(rows, row, strict=True))
        own = regions.get((cells["file"], cells["record"]), [])
        parts = _parts(cells["length"], own, room)
        room -= sum(end - start for start, end in parts if end - start <= _ROW)
        entries.append(
            {
                "sample": facts.sample,
                "name": cells["seq_name"],
                "file": cells["file"],
                "record": str(cells["record"]),
                **{name: cells[name] for name in ("length", "call", "probability", "score")},
                "source": cells["likely_source"] or NA,
                "topology": cells["topology"] or NA,
                "windows": len(track["start"]),
                "rows": [_row(facts.index, record, *part, own, track) for part in parts],
            }
        )
    return entries, ""


def _parts(length: int, regions: Regions, room: int) -> list[tuple[int, int]]:
    """Return start and end of the rows in which a record is drawn; one if they exceed `room`."""
    parts = [(start, min(start + _ROW, length)) for start in range(0, length, _ROW)]
    if len(parts) > _ROWS:
        viral = [(start, end) for start, end, state in regions if state == "viral"]
        hits = [any(a <= end and b > start for a, b in viral) for start, end in parts]
        parts = [*compress(parts, hits)][:_ROWS]
    return parts if 0 < len(parts) * _ROW <= max(room, _ROW) else [(0, length)]


def _row(
    index: SequenceIndex, record: int, start: int, end: int, regions: Regions, track: Block
) -> dict[str, Any]:
    """Return windows, regions and genes of a part of a record; genes of one row only."""
    inside = (np.asarray(track["start"]) <= end) & (np.asarray(track["end"]) > start)
    shown_regions = [
        (max(a, start + 1), min(b, end), state) for a, b, state in regions if a <= end and b > start
    ]
    return {
        "start": start,
        "end": end,
        "regions": shown_regions[:_POINTS],
        "genes": _gene_map(index, record, start, end) if end - start <= _ROW else [],
        **_points({name: np.asarray(track[name])[inside] for name in ("start", "end", "score")}),
    }


def _gene_map(
    index: SequenceIndex, record: int, start: int, end: int
) -> list[tuple[int, int, int]]:
    """Return first and last base (1-based) and strand (1 or -1) of the genes in a part."""
    found: list[tuple[int, int, int]] = []
    for offset, genes in genes_of_record(index, record, start, end):
        starts, ends = gene_bounds(genes)
        strands = np.where(genes.reverse, -1, 1)
        columns = (starts + offset + 1, ends + offset, strands)
        found += zip(*(column.tolist() for column in columns), strict=True)
    return found


def regions_by_record(regions: Block | None) -> dict[tuple[str, int], Regions]:
    """Return start, end and state of the regions of each record, by its file and number."""
    grouped: dict[tuple[str, int], Regions] = defaultdict(list)
    names = ("file", "record", "start", "end", "state")
    columns = (np.asarray(regions[name], object).tolist() for name in names) if regions else ()
    for file, record, *region in zip(*columns, strict=True):
        grouped[file, record].append(tuple(region))
    return grouped


def _points(track: Block) -> dict[str, list[Any]]:
    """Return first and last base and mean score of each window, or of stretches of windows."""
    starts, ends, scores = (np.asarray(track[name]) for name in ("start", "end", "score"))
    n = len(starts)
    edges = np.linspace(0, n, min(n, _POINTS) + 1).astype(np.int64)  # ascending: steps of >= 1
    known = np.isfinite(scores)
    sums = np.add.reduceat(np.where(known, scores, 0.0), edges[:-1])
    counts = np.add.reduceat(known.astype(np.int64), edges[:-1])
    means = [
        round(total / count, 3) if count else None
        for total, count in zip(sums.tolist(), counts.tolist(), strict=True)
    ]
    return {
        "starts": starts[edges[:-1]].tolist(),
        "ends": ends[edges[1:] - 1].tolist(),
        "scores": means,
    }


def region_rows(facts: RunFacts, number: int) -> dict[str, list[Any]]:
    """Return the columns of the table of regions, by place; those of provirus candidates first.

    If there are more than `number`, then viral ones, by score and length, are chosen.
    """
    regions = facts.regions or dict.fromkeys(REGION_COLUMNS, np.empty(0))
    candidates = np.flatnonzero(facts.records.having("topology", PROVIRUS))
    named = facts.records.table.rows(candidates, ("file", "record"))
    keys = {*zip(named["file"], named["record"], strict=True)}
    origins = zip(regions["file"], regions["record"], strict=True)
    both = np.array([origin in keys for origin in origins], np.bool_)
    state = np.asarray(regions["state"], object)
    order = (
        -np.asarray(regions["length"], np.int64),
        -np.nan_to_num(np.asarray(regions["score"], np.float64), nan=-1.0),
        state != "viral",
        ~both,
    )
    first = np.sort(np.lexsort(order)[:number])
    first = first[np.argsort(~both[first], kind="stable")]
    columns = {
        name: _plain(RegionTable.columns[name], np.asarray(values, object)[first])
        for name, values in regions.items()
    }
    return {
        **columns,
        "sample": [facts.sample] * len(first),
        "seq_name": [*map(shown, columns["seq_name"])],
        "topology": [PROVIRUS if found else None for found in both[first]],
        "record": [*map(str, columns["record"])],
    }
