"""Tables with scores per sequence: of virnucpro, other tools, and plain ones.

===================================  =============  =======================  ==============
table                                sequence       score                    viral if
===================================  =============  =======================  ==============
virnucpro ``predictions.tsv``        ``seq_name``   calibrated probability   ``call``
plain TSV or CSV                     ``seq_name``   ``score``                ``call``
geNomad ``*_virus_summary.tsv``      ``seq_name``   ``virus_score``          listed
geNomad ``*_classification.tsv``     ``seq_name``   ``virus_score``          >= 0.7
DeepVirFinder ``*_dvfpred.txt``      ``name``       ``score``                >= 0.5
Seeker ``predict-metagenome``        ``name``       ``score``                ``prediction``
Jaeger ``*_jaeger.tsv``              ``contig_id``  softmax of class scores  ``prediction``
Jaeger ``*_phages_jaeger.tsv``       ``contig_id``  softmax of class scores  listed
===================================  =============  =======================  ==============

A run without a calibration is ranked by its score. A table without a ``call`` is compared with a
threshold. geNomad's default filter is 0.7; without other information the threshold is 0.5. Names
end at the first white space. geNomad's proviruses (``NAME|provirus_START_END``) count for their
sequence.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from virnucpro.console import shortened
from virnucpro.errors import InputError, UsageError
from virnucpro.lab.evaluation.input_table import read_rows

CALLS: Final = ("not_called", "viral", "non-viral", "ambiguous")
"""Output name of each call code."""

_NOT_CALLED, _VIRAL, _NON_VIRAL, _AMBIGUOUS = range(4)
_CALL_CODES: Final = {
    **dict.fromkeys(("viral", "virus", "phage", "1", "true"), _VIRAL),
    **dict.fromkeys(("non-viral", "nonviral", "non_viral", "0", "false", "bacteria"), _NON_VIRAL),
    "ambiguous": _AMBIGUOUS,
}
_MISSING: Final = frozenset({"", "na", "n/a", "nan", "null", "none", "not_scored"})
_PROVIRUS: Final = re.compile(r"\|provirus_\d+_\d+$")
_VIRAL_CLASSES: Final = frozenset({"phage", "virus", "viral"})
_JAEGER_PHAGES: Final = "_phages_jaeger.tsv"
_CALL_COLUMNS: Final = {"plain table": "call", "Seeker": "prediction"}
_CALIBRATED: Final = "calibrated_probability"
_SHOWN: Final = 12
_LEAST_SUM, _LARGEST_SUM = 0.98, 1.02


class Prediction(NamedTuple):
    """Answer of a tool for one sequence; NaN for a missing score or probability."""

    score: float
    probability: float
    call: int


_Row: TypeAlias = Mapping[str, str]
_Reader: TypeAlias = Callable[[_Row], Prediction]


@dataclass(frozen=True, slots=True)
class ToolTable:
    """Predictions of one tool.

    Attributes
    ----------
    format
        Name of the recognised format.
    name_column, score_column
        Columns with names and scores.
    called_by
        The rule of the calls, such as ``virus_score >= 0.7``.
    only_viral
        True: the table lists viral sequences only; a sequence without a row is non-viral.
    """

    format: str
    name_column: str
    score_column: str
    called_by: str
    only_viral: bool
    rows: Mapping[str, Prediction]


def read_table(
    path: Path, *, score_column: str | None = None, threshold: float | None = None
) -> ToolTable:
    """Read a table of predictions; the columns decide about its format.

    Parameters
    ----------
    score_column
        Column with the score, instead of the column of the format; higher means viral.
    threshold
        Least score of a viral call, instead of the calls or the threshold of the format.

    Raises
    ------
    UsageError
        If the table has no such score column.
    InputError
        If the file cannot be read, its format is unknown, a score is not a number, or a sequence
        has two rows.
    """
    columns, rows = read_rows(path)
    if score_column is None and any(
        (row.get(_CALIBRATED) or "").strip().lower() not in _MISSING for _, row in rows
    ):
        score_column = _CALIBRATED
    format_name, name_column, column, only_viral = _format(path, columns, score_column)
    if format_name.startswith("Jaeger") and score_column is None:
        read, scored_by, called_by = _jaeger(path, columns, threshold)
    else:
        read, scored_by, called_by = _reader(format_name, columns, column, threshold)
    found: dict[str, Prediction] = {}
    for number, row in rows:
        words = (row[name_column] or "").split(maxsplit=1)
        if not words:
            raise InputError(f"{path}, line {number}: the cell of column {name_column!r} is empty")
        name = _PROVIRUS.sub("", words[0])
        try:
            answer = read(row)
        except ValueError as error:
            raise InputError(f"{path}, line {number}, {shortened(name)}: {error}") from None
        former = found.get(name)
        if former is not None and name == words[0] and format_name != "geNomad virus summary":
            raise InputError(
                f"{path}, line {number}: {shortened(name)} has two rows; give each sequence a "
                "name of its own"
            )
        found[name] = answer if former is None else max(former, answer)
    if not found and not only_viral:
        raise InputError(f"{path}: the table has no rows; run the tool again")
    found = _with_probabilities(found)
    return ToolTable(format_name, name_column, scored_by, called_by, only_viral, found)


def merged(tables: Sequence[tuple[Path, ToolTable]]) -> ToolTable:
    """Join several tables of one tool.

    Raises
    ------
    InputError
        If the formats differ or a sequence is in two tables.
    """
    (first_path, first), *others = tables
    rows = dict(first.rows)
    for path, table in others:
        if table.format != first.format:
            raise InputError(
                f"{path} is a table of {table.format}, and {first_path} is one of {first.format}; "
                "give them different names"
            )
        if both := sorted(rows.keys() & table.rows.keys()):
            raise InputError(
                f"{path}: {shortened(both[0])} is in an earlier table of the same tool, too; give "
                "each table once"
            )
        rows |= table.rows
    return replace(first, rows=rows)


def _format(
    path: Path, columns: Sequence[str], score_column: str | None
) -> tuple[str, str, str, bool]:
    """Return name of the format, column of names, column of scores, and `only_viral`."""
    known = set(columns)
    if score_column is not None and score_column not in known:
        raise UsageError(
            f"{path} has no column {score_column!r}; its columns: {', '.join(columns[:_SHOWN])}"
        )
    if {"seq_name", "virus_score"} <= known:
        summary = "n_hallmarks" in known or "topology" in known
        name = "geNomad virus summary" if summary else "geNomad classification"
        return name, "seq_name", score_column or "virus_score", summary
    if {"name", "len", "score", "pvalue"} <= known:
        return "DeepVirFinder", "name", score_column or "score", False
    if {"name", "prediction", "score"} <= known:
        return "Seeker", "name", score_column or "score", False
    if {"contig_id", "prediction"} <= known:
        listed = path.name.endswith(_JAEGER_PHAGES)
        name = "Jaeger phages" if listed else "Jaeger"
        return name, "contig_id", score_column or "", listed
    if {"seq_name", "score"} <= known:
        return "plain table", "seq_name", score_column or "score", False
    if score_column is not None:
        return "plain table", "seq_name" if "seq_name" in known else columns[0], score_column, False
    shown = shortened(", ".join(columns[:_SHOWN])) or "without names"
    raise InputError(
        f"{path}: unknown table, with the columns {shown}. Give a table of geNomad, "
        "DeepVirFinder, Seeker or Jaeger, or one with the columns seq_name and score, or name the "
        "column with --score-column TOOL=COLUMN."
    )


def _reader(
    format_name: str, columns: Sequence[str], column: str, threshold: float | None
) -> tuple[_Reader, str, str]:
    """Return the function that reads a row, and the descriptions of score and call."""
    listed = format_name == "geNomad virus summary"
    called = _CALL_COLUMNS.get(format_name, "")
    has_call = called in columns
    shown = _CALIBRATED if column == _CALIBRATED else "probability"
    has_probability = shown in columns and format_name == "plain table"
    limit = threshold
    assumed = limit is None and not listed and not has_call
    if assumed:
        limit = 0.7 if format_name == "geNomad classification" else 0.5

    def read(row: _Row) -> Prediction:
        score = _number(row[column], column)
        if assumed and (score < 0 or score > 1):
            raise ValueError(
                f"the score {score:g} is not between 0 and 1, and there is no column of calls; "
                "give the least score of a viral call with --call-threshold TOOL=X"
            )
        probability = _number(row[shown], shown) if has_probability else math.nan
        if limit is not None:
            call = _against(score, limit)
        else:
            call = _VIRAL if listed else _call(row[called])
        return Prediction(score, probability, call)

    called_by = f"{column} >= {limit:g}" if limit is not None else "listed" if listed else called
    return read, column, called_by


def _jaeger(
    path: Path, columns: Sequence[str], threshold: float | None
) -> tuple[_Reader, str, str]:
    classes = [
        name
        for name in columns
        if name.lower().endswith("_score") and not name.lower().startswith("reliability")
    ]
    viral = [name for name in classes if name.lower().removesuffix("_score") in _VIRAL_CLASSES]
    if not viral or len(viral) == len(classes):
        raise InputError(
            f"{path}: the table of Jaeger has no scores of viral and other classes (its columns: "
            f"{', '.join(columns[:_SHOWN])}); name the column with --score-column TOOL=COLUMN"
        )

    def read(row: _Row) -> Prediction:
        values = {name: _number(row[name], name) for name in classes}
        if any(map(math.isnan, values.values())):
            return Prediction(math.nan, math.nan, _NOT_CALLED)
        shares = _softmax(values)
        score = sum(shares[name] for name in viral)
        if threshold is not None:
            return Prediction(score, score, _against(score, threshold))
        said = row["prediction"].strip().lower()
        return Prediction(score, score, _VIRAL if said in _VIRAL_CLASSES else _NON_VIRAL)

    called_by = "prediction" if threshold is None else f"score >= {threshold:g}"
    return read, f"{' + '.join(viral)} after softmax over {', '.join(classes)}", called_by


def _softmax(values: Mapping[str, float]) -> dict[str, float]:
    """Return class probabilities; values that are probabilities already are unchanged."""
    if min(values.values()) >= 0 and _LEAST_SUM <= sum(values.values()) <= _LARGEST_SUM:
        return dict(values)
    highest = max(values.values())
    powers = {name: math.exp(value - highest) for name, value in values.items()}
    total = sum(powers.values())
    return {name: power / total for name, power in powers.items()}


def _number(text: str, column: str) -> float:
    text = text.strip()
    if text.lower() in _MISSING:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = math.inf
    if math.isinf(value):
        raise ValueError(f"{shortened(text)!r} in column {column!r} is not a number")
    return value


def _call(text: str) -> int:
    said = text.strip().lower()
    if said in _MISSING:
        return _NOT_CALLED
    if said not in _CALL_CODES:
        raise ValueError(
            f"unknown call {shortened(text)!r}; use viral, non-viral, ambiguous or not_scored"
        )
    return _CALL_CODES[said]


def _against(score: float, limit: float) -> int:
    if math.isnan(score):
        return _NOT_CALLED
    return _VIRAL if score >= limit else _NON_VIRAL


def _with_probabilities(rows: Mapping[str, Prediction]) -> dict[str, Prediction]:
    """Use scores as missing probabilities, if all scores of the table are between 0 and 1."""
    scores = [row.score for row in rows.values() if not math.isnan(row.score)]
    if not all(0 <= score <= 1 for score in scores):
        return dict(rows)
    return {
        name: row._replace(probability=row.score) if math.isnan(row.probability) else row
        for name, row in rows.items()
    }
