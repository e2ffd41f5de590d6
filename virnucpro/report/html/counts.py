"""Numbers of the report: calls by sample, file and length, distribution of scores."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from virnucpro.arrays import IntegerArray
from virnucpro.report.html.wording import REASONS, STATUSES
from virnucpro.report.reading.facts import RunFacts
from virnucpro.report.reading.records import RecordTable
from virnucpro.tables.cells import NA
from virnucpro.tables.columns import CALL_NAMES
from virnucpro.tables.source import LENGTH_CLASSES, PROVIRUS, length_class

COLOURS: Final = {
    "viral": "#c8334f",
    "ambiguous": "#d99b1c",
    "non-viral": "#4f8fbd",
    "not_scored": "#a4adba",
}
"""Colour of each call, in the order of the report."""

SHOWN_CALLS: Final = tuple(COLOURS)

BINS: Final = 40
"""Number of equal bins of a score from 0 to 1."""

_FILES_SHOWN: Final = 200


def sample_counts(facts: RunFacts) -> dict[str, Any]:
    """Return the numbers of one run for the comparison of samples."""
    table, lengths = facts.records, facts.records.numbers["length"]
    viral = table.called("viral")
    expected = facts.expectation()
    return {
        "sample": facts.sample,
        "records": len(table),
        "bases": facts.bases,
        "viral": int(viral.sum()),
        "viral_bases": int(lengths[viral].sum()),
        "ambiguous": int(table.called("ambiguous").sum()),
        "non_viral": int(table.called("non-viral").sum()),
        "not_scored": int(table.called("not_scored").sum()),
        "prevalence": expected and expected.prevalence.value,
        "expected_false": expected and round(expected.false, 1),
        "expected": expected.text if expected else "",
        "warning": expected.warning if expected else "",
        "provirus": int(table.having("topology", PROVIRUS).sum()),
        "bundle": str(facts.manifest["parameters"].get("bundle", NA)),
        "partial": bool(any(facts.gaps().values()) or facts.working),
    }


def length_counts(table: RecordTable) -> dict[str, dict[str, int]]:
    """Return the number of records of each length class, by call."""
    classes = length_class(table.numbers["length"])
    return _by_call(table, classes, list(LENGTH_CLASSES))


def file_counts(table: RecordTable) -> dict[str, Any]:
    """Return the number of records of each input file, by call; of the first 200 files."""
    return _by_call(table, table.words["file"].codes, table.words["file"].names)


def _by_call(
    table: RecordTable, groups: IntegerArray, names: Sequence[str]
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
    values = table.numbers[column]
    known = np.isfinite(values)
    if not known.any():
        return None
    return {
        call: np.histogram(values[known & table.called(call)], BINS, (0, 1))[0].tolist()
        for call in SHOWN_CALLS
        if call != "not_scored"
    }


def no_clear_call(table: RecordTable) -> dict[str, list[dict[str, Any]]]:
    """Return the records without a score, by status, and the ambiguous ones, by reason."""
    lengths = table.numbers["length"]
    groups: dict[str, list[dict[str, Any]]] = {"not_scored": [], "ambiguous": []}
    for call, column, texts in (
        ("not_scored", "status", STATUSES),
        ("ambiguous", "reason", REASONS),
    ):
        among = table.called(call)
        words = table.words[column]
        for name, number in sorted(words.counts(among).items(), key=lambda pair: -pair[1]):
            chosen = among & (words.codes == words.code(name))
            entry = {"name": name, "n": number, "bases": int(lengths[chosen].sum())}
            groups[call].append(entry | {"why": texts.get(name, "")})
    return groups
