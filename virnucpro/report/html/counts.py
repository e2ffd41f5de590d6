"""Numbers of the report: calls by sample, file and length, distribution of scores."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from virnucpro.report.html.wording import REASONS, STATUSES
from virnucpro.report.lengths import LENGTH_CLASSES, length_class
from virnucpro.report.reading.facts import RunFacts
from virnucpro.report.reading.records import RecordTable
from virnucpro.report.tables import CALL_NAMES
from virnucpro.report.tsv import NA

__all__ = [
    "BINS",
    "SHOWN_CALLS",
    "file_counts",
    "histogram",
    "length_counts",
    "sample_counts",
    "unanswered",
]

SHOWN_CALLS: Final = ("viral", "ambiguous", "non-viral", "not_scored")
"""Calls in the order of the report."""

BINS: Final = 40
"""Number of equal bins of a score from 0 to 1."""

_FILES_SHOWN: Final = 200


def sample_counts(facts: RunFacts) -> dict[str, Any]:
    """Return the numbers of one run for the comparison of samples."""
    table, lengths = facts.records, facts.records.numbers["length"]
    viral = table.called("viral")
    return {
        "sample": facts.sample,
        "records": len(table),
        "bases": facts.bases,
        "viral": int(viral.sum()),
        "viral_bases": int(lengths[viral].sum()),
        "ambiguous": int(table.called("ambiguous").sum()),
        "non_viral": int(table.called("non-viral").sum()),
        "not_scored": int(table.called("not_scored").sum()),
        "expected_false": facts.expected_false(),
        "provirus": _provirus_candidates(table),
        "bundle": str(facts.manifest["parameters"].get("bundle", NA)),
        "partial": bool(any(facts.gaps().values()) or facts.working),
    }


def _provirus_candidates(table: RecordTable) -> int:
    topology = table.words.get("topology")
    return 0 if topology is None else topology.counts().get("provirus_candidate", 0)


def length_counts(table: RecordTable) -> dict[str, dict[str, int]]:
    """Return the number of records of each length class, by call."""
    classes = length_class(table.numbers["length"])
    return _by_call(table, classes, list(LENGTH_CLASSES))


def file_counts(table: RecordTable, inputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the number of records of each input file, by call; of the first 200 files.

    Tables of earlier versions do not name the file: their records are in input order.
    """
    column = table.words.get("file")
    if column is not None:
        codes, names = column.codes, list(column.names)
    else:
        numbers = np.array([file["n_records"] for file in inputs], np.int64)
        names = [Path(file["path"]).name for file in inputs]
        codes = np.repeat(np.arange(len(names), dtype=np.int32), numbers)[: len(table)]
    return _by_call(table, codes, names)


def _by_call(
    table: RecordTable, groups: npt.NDArray[np.integer], names: Sequence[str]
) -> dict[str, dict[str, int]]:
    calls = len(CALL_NAMES)
    joined = groups.astype(np.int64) * calls + table.words["call"].codes
    numbers = np.bincount(joined, minlength=len(names) * calls).reshape(-1, calls)
    return {
        name: {call: int(numbers[group, CALL_NAMES.index(call)]) for call in SHOWN_CALLS}
        for group, name in enumerate(names[:_FILES_SHOWN])
    }


def histogram(table: RecordTable, column: str) -> dict[str, list[int]] | None:
    """Return the number of records in each of `BINS` bins from 0 to 1, by call.

    Returns None if no record has a value.
    """
    values = table.numbers.get(column)
    if values is None or not np.isfinite(values).any():
        return None
    known = np.isfinite(values)
    return {
        call: np.histogram(values[known & table.called(call)], BINS, (0, 1))[0].tolist()
        for call in SHOWN_CALLS
        if call != "not_scored"
    }


def unanswered(table: RecordTable) -> dict[str, list[dict[str, Any]]]:
    """Return the records without a score, by status, and the ambiguous ones, by reason."""
    lengths = table.numbers["length"]
    found: dict[str, list[dict[str, Any]]] = {"not_scored": [], "ambiguous": []}
    for call, column, texts in (
        ("not_scored", "status", STATUSES),
        ("ambiguous", "reason", REASONS),
    ):
        among = table.called(call)
        words = table.words.get(column)
        if words is None:
            continue
        for name, number in sorted(words.counts(among).items(), key=lambda pair: -pair[1]):
            chosen = among & (words.codes == words.code(name))
            entry = {"name": name, "n": number, "bases": int(lengths[chosen].sum())}
            found[call].append(entry | {"why": texts.get(name, "")})
    return found
