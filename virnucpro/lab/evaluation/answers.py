"""The answers of a tool to the fragments of one length, joined by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from virnucpro.arrays import BoolArray, FloatArray, IntArray
from virnucpro.console import shortened
from virnucpro.errors import InputError
from virnucpro.lab.evaluation.fragments import Fragment
from virnucpro.lab.evaluation.predictions import CALLS, Prediction, ToolTable

Unanswered: TypeAlias = Literal["mean", "lowest"]
"""Rank of fragments without a score: the mean score of the others, or below all others."""


_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Tool:
    """A bundle or another tool, with its predictions by length class.

    Attributes
    ----------
    unanswered
        Rank of fragments without a score.
    tables
        Table of each length class; the tool is not evaluated at other lengths.
    """

    name: str
    unanswered: Unanswered
    tables: Mapping[str, ToolTable]


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
        (n,) float64, probability of the viral class; NaN without one.
    call
        (n,) int64, index into `CALLS`.
    has_row
        (n,) bool, whether the table has a row for the fragment.
    """

    score: FloatArray
    scored: BoolArray
    probability: FloatArray
    call: IntArray
    has_row: BoolArray

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
    table = tool.tables[fragments[0].length]
    absent = Prediction(np.nan, np.nan, CALLS.index("non-viral" if table.only_viral else CALLS[0]))
    found = [table.rows.get(fragment.name, absent) for fragment in fragments]
    score = np.array([prediction.score for prediction in found], np.float64)
    scored = ~np.isnan(score)
    return Answers(
        score=np.where(scored, score, _replacement(tool.unanswered, score, weights, scored)),
        scored=scored,
        probability=np.array([prediction.probability for prediction in found], np.float64),
        call=np.array([prediction.call for prediction in found], np.int64),
        has_row=np.array([fragment.name in table.rows for fragment in fragments]),
    )


def _replacement(
    rule: Unanswered, score: FloatArray, weights: FloatArray, scored: BoolArray
) -> float:
    if not scored.any():
        return 0.0
    if rule == "lowest":
        return float(score[scored].min()) - 1.0
    return float(np.average(score[scored], weights=weights[scored]))


def check_names(source: str, table: ToolTable, fragments: Sequence[Fragment]) -> str:
    """Return a warning if some names of a table are not the name of a fragment, else "".

    Raises
    ------
    InputError
        If the table has rows and none of its names is that of a fragment.
    """
    wanted = {fragment.name for fragment in fragments}
    foreign = [name for name in table.rows if name not in wanted]
    if not foreign:
        return ""
    shown = ", ".join(map(shortened, foreign[:_SHOWN]))
    if len(foreign) == len(table.rows):
        known = ", ".join(fragment.name for fragment in fragments[:_SHOWN])
        raise InputError(
            f"{source}: none of its {len(foreign):,} names is evaluated here (its first ones: "
            f"{shown}; expected: {known}). Run the tool on the files of --fragments-only with the "
            "same options, or use --lengths whole to compare whole records."
        )
    return (
        f"{source}: {len(foreign):,} of {len(table.rows):,} names are not evaluated here and are "
        f"ignored: {shown}"
    )
