"""The best records of a run: rows of the table of records, and tracks of window scores."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from virnucpro.errors import StoreError
from virnucpro.report.html.counts import SHOWN_CALLS
from virnucpro.report.reading.facts import RunFacts
from virnucpro.report.reading.records import RecordTable
from virnucpro.report.reading.regions import Region
from virnucpro.report.reading.windows import Track, read_tracks
from virnucpro.report.tables import CALL_NAMES
from virnucpro.report.tsv import NA

__all__ = [
    "RECORD_COLUMNS",
    "best_records",
    "record_rank",
    "record_rows",
    "record_tracks",
    "region_rank",
    "region_rows",
    "shown",
    "track_rank",
]

RECORD_COLUMNS: Final = (
    *("seq_name", "length", "probability", "score", "call", "tier", "status", "reason", "flags"),
    *("likely_source", "topology", "best_window", "file", "record"),
)
"""Columns of predictions.tsv in the table of records, where the run has them."""
_NUMBERS: Final = {"length", "probability", "score", "record"}
_CANDIDATE: Final = "provirus_candidate"
_POINTS: Final = 400
_LONGEST: Final = 80


def shown(name: str) -> str:
    """Return a name for the page: the middle of a name of more than 80 characters is left out."""
    return name if len(name) <= _LONGEST else f"{name[:50]}…{name[-29:]}"


def best_records(table: RecordTable, number: int) -> npt.NDArray[np.int64]:
    """Return the numbers of the first records: viral first, by probability, then by length."""
    order = np.array([SHOWN_CALLS.index(name) for name in CALL_NAMES])
    evidence = np.nan_to_num(table.evidence, nan=-1.0)
    keys = (-table.numbers["length"], -evidence, order[table.words["call"].codes])
    return np.lexsort(keys)[:number].astype(np.int64)


def record_rank(row: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the place of a row of `record_rows` among those of all runs, as in `best_records`."""
    values = (row["probability"], row["score"], -1.0)
    evidence = next(value for value in values if value is not None)
    return SHOWN_CALLS.index(row["call"]), -evidence, -row["length"]


def track_rank(entry: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the place of a track among those of all runs: that of its record in its own run."""
    return entry["topology"] != _CANDIDATE, entry["windows"] < 2, *record_rank(entry)


def region_rank(row: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the place of a row of `region_rows` among those of all runs.

    Regions of provirus candidates are first, then viral ones, by score, then by length.
    """
    score = -1.0 if row["score"] is None else row["score"]
    return _region_rank(row["topology"], row["state"], score, row["length"])


def _region_rank(topology: str | None, state: str, score: float, length: int) -> tuple[float, ...]:
    evidence = -1.0 if np.isnan(score) else score
    return topology != _CANDIDATE, state != "viral", -evidence, -length


def record_rows(facts: RunFacts, numbers: Sequence[int]) -> dict[str, list[Any]]:
    """Return the columns of the table of records; numbers as numbers, NA as None."""
    rows = facts.records.rows(numbers)
    columns: dict[str, list[Any]] = {"sample": [facts.sample] * len(rows)}
    for name in RECORD_COLUMNS:
        cells = [row.get(name, NA) for row in rows]
        columns[name] = [_number(cell) for cell in cells] if name in _NUMBERS else cells
        columns[name] = [None if cell == NA else cell for cell in columns[name]]
    columns["seq_name"] = [shown(row["seq_name"]) for row in rows]
    return columns


def _number(cell: str) -> float | int | None:
    if cell == NA:
        return None
    return float(cell) if "." in cell else int(cell)


def record_tracks(facts: RunFacts, number: int) -> tuple[list[dict[str, Any]], str]:
    """Return tracks of window scores of the best records, and why there is none.

    Records with both kinds of regions come first, on half of the tracks at most, then those with
    more than one window. A long record is averaged over 400 stretches.
    """
    table = facts.records
    best = best_records(table, len(table))
    windows, known = table.numbers["n_windows"][best], np.isfinite(table.evidence[best])
    candidates = _candidates(table)[best]
    candidates &= np.cumsum(candidates) <= max(1, number // 2)
    first = np.lexsort((np.arange(len(best)), windows < 2, ~candidates))[:number]
    chosen = [int(one) for one in best[first[known[first]]]]
    if not chosen:
        return [], "No sequence has a score." if len(table) else ""
    try:
        tracks = read_tracks(facts.run.windows, table, chosen)
    except StoreError as error:
        return [], f"The scores of the windows cannot be shown: {error}"
    regions = _regions_by_record(facts.regions or ())
    entries = []
    for row, track in zip(table.rows(chosen), tracks, strict=True):
        key = (row.get("file", NA), row.get("record", NA), row["seq_name"])
        own = [(one.start, one.end, one.state) for one in regions.get(key, ())]
        entries.append(
            {
                "sample": facts.sample,
                "name": shown(row["seq_name"]),
                "file": row.get("file", ""),
                "record": row.get("record", ""),
                "length": int(row["length"]),
                "call": row["call"],
                "probability": _number(row.get("probability", NA)),
                "score": _number(row["score"]),
                "source": row.get("likely_source", NA),
                "topology": row.get("topology", NA),
                "windows": len(track.starts),
                "regions": own[:_POINTS],
                **_points(track),
            }
        )
    return entries, ""


def _candidates(table: RecordTable) -> npt.NDArray[np.bool_]:
    topology = table.words.get("topology")
    if topology is None:
        return np.zeros(len(table), np.bool_)
    found: npt.NDArray[np.bool_] = topology.codes == topology.code(_CANDIDATE)
    return found


def _topologies(facts: RunFacts) -> Mapping[tuple[str, str, str], str]:
    """Return the records with regions of both kinds, as keys of their regions."""
    numbers = np.flatnonzero(_candidates(facts.records)).tolist() if facts.regions else []
    rows = facts.records.rows(numbers)
    return {
        (row.get("file", NA), row.get("record", NA), row["seq_name"]): _CANDIDATE for row in rows
    }


def _regions_by_record(
    regions: Sequence[Region],
) -> Mapping[tuple[str, str, str], Sequence[Region]]:
    found: dict[tuple[str, str, str], list[Region]] = {}
    for one in regions:
        found.setdefault(one.key, []).append(one)
    return found


def _points(track: Track) -> dict[str, list[Any]]:
    """Return first and last base and mean score of each window, or of stretches of windows."""
    n = len(track.starts)
    edges = np.unique(np.linspace(0, n, min(n, _POINTS) + 1).astype(np.int64))
    known = np.isfinite(track.scores)
    sums = np.add.reduceat(np.where(known, track.scores, 0.0), edges[:-1])
    counts = np.add.reduceat(known.astype(np.int64), edges[:-1])
    means = [
        round(total / count, 3) if count else None
        for total, count in zip(sums.tolist(), counts.tolist(), strict=True)
    ]
    starts = track.starts[edges[:-1]].tolist()
    return {"starts": starts, "ends": track.ends[edges[1:] - 1].tolist(), "scores": means}


def region_rows(facts: RunFacts, number: int) -> dict[str, list[Any]]:
    """Return the columns of the table of regions: the first ones in the order of `region_rank`."""
    topology = _topologies(facts)
    rows = [(one, topology.get(one.key)) for one in facts.regions or ()]
    rows.sort(key=lambda row: _region_rank(row[1], row[0].state, row[0].score, row[0].length))
    regions = [one for one, _ in rows[:number]]
    return {
        "sample": [facts.sample] * len(regions),
        "seq_name": [shown(one.name) for one in regions],
        "start": [one.start for one in regions],
        "end": [one.end for one in regions],
        "length": [one.length for one in regions],
        "state": [one.state for one in regions],
        "topology": [name for _, name in rows[:number]],
        "score": [None if np.isnan(one.score) else round(one.score, 4) for one in regions],
        "file": [one.file for one in regions],
        "record": [one.record for one in regions],
    }
