"""Predictions of one tool, read from a table, and joined with fragments by name."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from virnucpro.arrays import BoolArray, FloatArray
from virnucpro.console import shortened
from virnucpro.errors import InputError
from virnucpro.lab.evaluation.fragments import Fragment
from virnucpro.lab.evaluation.input_table import read_rows

COLUMNS: Final = ("name", "score", "label")
"""Columns of the table of another tool: sequence, score (higher: viral), and label of the call."""

_MISSING: Final = frozenset({"", "NA", "nan"})
_LABELS: Final = frozenset({"viral", "non-viral", "ambiguous", "not_scored", *_MISSING})
_SHOWN: Final = 3


class Prediction(NamedTuple):
    """Answer of a tool for one sequence; the score is NaN for an unanswered sequence."""

    score: float
    called_viral: bool


Predictions: TypeAlias = Mapping[str, Prediction]
"""Answers of a tool by name of the sequence."""


def read_predictions(path: Path, columns: tuple[str, str, str] = COLUMNS) -> dict[str, Prediction]:
    """Read a tab-separated table with the columns of names, scores and labels.

    A label is viral, non-viral, ambiguous or not_scored; a missing score or label is empty or NA.

    Raises
    ------
    InputError
        If the file cannot be read, a column is missing, a score is not a number, a label is
        unknown, or a sequence has two rows.
    """
    _, rows = read_rows(path, columns, "Give a tab-separated table with name, score and label.")
    predictions: dict[str, Prediction] = {}
    for number, row in rows:
        name, score, label = (row[column].strip() for column in columns)
        problem = "has two rows" if name in predictions else ""
        try:
            value = math.nan if score in _MISSING else float(score)
        except ValueError:
            value = math.inf
        if math.isinf(value):
            problem = f"has the score {shortened(score)!r}, which is not a number"
        if label not in _LABELS:
            problem = f"has the label {shortened(label)!r}; use viral, non-viral or ambiguous"
        if problem or not name:
            raise InputError(f"{path}, line {number}: {shortened(name)!r} {problem or 'is empty'}")
        predictions[name] = Prediction(value, label == "viral")
    return predictions


def read_run(path: Path) -> dict[str, Prediction]:
    """Read predictions.tsv of a run, ranked by calibrated probability, or by score without one."""
    calibrated = read_predictions(path, ("seq_name", "calibrated_probability", "call"))
    if all(math.isnan(prediction.score) for prediction in calibrated.values()):
        return read_predictions(path, ("seq_name", "score", "call"))
    return calibrated


@dataclass(frozen=True, slots=True)
class Tool:
    """A bundle or another tool, with its predictions by length class.

    Attributes
    ----------
    lowest
        Whether fragments without a score are below all others; otherwise they have the mean score.
    predictions
        Predictions of each length class; the tool is not evaluated at other lengths.
    """

    name: str
    lowest: bool
    predictions: Mapping[str, Predictions]


@dataclass(frozen=True, slots=True)
class Answers:
    """Arrays with one entry per fragment, in the order of the fragments.

    Attributes
    ----------
    score
        (n,) float64, score with the replaced values of unanswered fragments; never NaN.
    scored
        (n,) bool, whether the tool gave a score.
    probability
        (n,) float64, the score if all scores are between 0 and 1; NaN without one.
    called_viral
        (n,) bool.
    """

    score: FloatArray
    scored: BoolArray
    probability: FloatArray
    called_viral: BoolArray

    def select(self, mask: BoolArray) -> "Answers":
        """Return the entries of some fragments; `mask` is bool (n,)."""
        return Answers(*(getattr(self, name)[mask] for name in self.__slots__))


def answers_of(tool: Tool, fragments: Sequence[Fragment], weights: FloatArray) -> Answers:
    """Join the predictions of a tool with fragments of one length class.

    Parameters
    ----------
    weights
        (n,) weights of the fragments, for the mean score of scored fragments.
    """
    predictions = tool.predictions[fragments[0].length]
    absent = Prediction(math.nan, called_viral=False)
    rows = [predictions.get(fragment.name, absent) for fragment in fragments]
    score = np.array([row.score for row in rows], np.float64)
    scored = ~np.isnan(score)
    known = score[scored]
    replacement = 0.0
    if len(known):
        mean = np.average(known, weights=weights[scored])
        replacement = known.min() - 1.0 if tool.lowest else mean
    is_probability = ((known >= 0) & (known <= 1)).all()
    return Answers(
        score=np.where(scored, score, replacement),
        scored=scored,
        probability=score if is_probability else np.full(len(score), np.nan),
        called_viral=np.array([row.called_viral for row in rows], np.bool_),
    )


def check_names(source: str, predictions: Predictions, fragments: Sequence[Fragment]) -> str:
    """Return a warning if some names of a table are not the name of a fragment, else "".

    Raises
    ------
    InputError
        If none of the names of a table is that of a fragment.
    """
    expected = {fragment.name for fragment in fragments}
    foreign = [name for name in predictions if name not in expected]
    shown = ", ".join(map(shortened, foreign[:_SHOWN]))
    if len(foreign) == len(predictions):
        raise InputError(
            f"{source}: none of its {len(foreign):,} names is evaluated here ({shown}). Run the "
            "tool on the files of --fragments-only with the same options, or use --lengths whole "
            "to compare whole records."
        )
    if not foreign:
        return ""
    return (
        f"{source}: {len(foreign):,} of {len(predictions):,} names are not evaluated here and are "
        f"ignored: {shown}"
    )
