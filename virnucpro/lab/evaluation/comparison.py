"""Figures of all tools by length, kingdom and group, with intervals and paired differences.

The intervals are percentiles of a bootstrap that draws groups with replacement within each class.
All tools get the same draws, so that a difference of two tools is a difference in each draw.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from virnucpro.arrays import BoolArray, FloatArray, IntArray
from virnucpro.lab.evaluation.fragments import Fragment, group_key
from virnucpro.lab.evaluation.labels import CLASS_NAMES
from virnucpro.lab.evaluation.metrics import figures
from virnucpro.lab.evaluation.predictions import Answers, Tool, answers_of
from virnucpro.lab.groups import Groups

ALL: Final = "all"
"""Name of the kingdom and of the group that stand for all."""
LEVEL: Final = 0.95
"""Confidence level of the intervals."""

Interval: TypeAlias = tuple[float, float]
_Draws: TypeAlias = Mapping[str, FloatArray]

_AT_ONCE: Final = 4_000_000
_TOO_FEW: Final = 2


class _Subset(NamedTuple):
    """Fragments of one row: everything, or a kingdom or group and the whole other class.

    Attributes
    ----------
    label
        Class of the kingdom or group; `ALL` for everything.
    kingdom, group
        Names; `ALL` for all.
    mask
        (n,) bool, the fragments of the length that belong to the subset.
    """

    label: str
    kingdom: str
    group: str
    mask: BoolArray


class Row(NamedTuple):
    """Figures of one tool, length and subset.

    Attributes
    ----------
    label
        Class of the kingdom or group; `ALL` for everything.
    counts
        Numbers of fragments and groups by class, and of fragments without a score.
    values
        The figures; NaN if undefined.
    intervals
        95 % intervals, if both classes have at least two groups.
    note
        Reason why there are no intervals, or "".
    """

    tool: str
    length: str
    label: str
    kingdom: str
    group: str
    counts: Mapping[str, int]
    values: Mapping[str, float]
    intervals: Mapping[str, Interval]
    note: str


class Difference(NamedTuple):
    """Difference `tool` - `reference` of a figure, with its paired 95 % interval if it has one."""

    tool: str
    reference: str
    length: str
    label: str
    kingdom: str
    figure: str
    value: float
    interval: Interval | None
    note: str


@dataclass(slots=True)
class Comparison:
    """All rows and all differences."""

    rows: list[Row] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)


def compare(
    tools: Sequence[Tool],
    fragments: Mapping[str, Sequence[Fragment]],
    *,
    prevalence: float,
    n_resamples: int,
    seed: int,
    by_group: bool,
) -> Comparison:
    """Compute the figures of all tools.

    Parameters
    ----------
    fragments
        Fragments of each length class.
    prevalence
        Share of viral sequences that the weights stand for.
    n_resamples
        Number of bootstrap resamples; 0 for no intervals.
    by_group
        Whether to add a row for each group.
    """
    result = Comparison()
    for length, members in fragments.items():
        weights = Groups.of([*map(group_key, members)]).own_weights(prevalence)
        answers = {
            tool.name: answers_of(tool, members, weights)
            for tool in tools
            if length in tool.predictions
        }
        for number, subset in enumerate(_subsets(members, by_group=by_group)):
            dice = np.random.default_rng([seed, *length.encode(), number])
            _add_rows(result, answers, members, subset, prevalence, n_resamples, dice)
    return result


def _subsets(members: Sequence[Fragment], *, by_group: bool) -> Iterator[_Subset]:
    """Yield everything, each kingdom of a class with several, and each group if `by_group`."""
    viral = np.array([member.viral for member in members])
    yield _Subset(ALL, ALL, ALL, np.ones(len(members), bool))
    kingdom = np.array([member.kingdom for member in members])
    group = np.array([member.group for member in members])
    for side in (True, False):
        label = CLASS_NAMES[side]
        names = sorted(set(kingdom[viral == side].tolist()))
        for name in names:
            inside = (viral == side) & (kingdom == name)
            if len(names) > 1:
                yield _Subset(label, name, ALL, inside | (viral != side))
            for key in sorted(set(group[inside].tolist())) if by_group else ():
                yield _Subset(label, name, key, (inside & (group == key)) | (viral != side))


def _add_rows(
    result: Comparison,
    answers: Mapping[str, Answers],
    members: Sequence[Fragment],
    subset: _Subset,
    prevalence: float,
    n_resamples: int,
    dice: np.random.Generator,
) -> None:
    chosen = [member for member, inside in zip(members, subset.mask, strict=True) if inside]
    viral, length = np.array([member.viral for member in chosen]), chosen[0].length
    groups = Groups.of([*map(group_key, chosen)])
    note = _no_interval(groups, n_resamples)
    counts = groups.drawn(n_resamples, dice) if not note else None
    draws: dict[str, _Draws] = {}
    values: dict[str, dict[str, float]] = {}
    for tool, of_tool in answers.items():
        own = of_tool.select(subset.mask)
        point = figures(own, viral, groups.own_weights(prevalence)[None])
        values[tool] = {name: float(value[0]) for name, value in point.items()}
        if counts is not None:
            draws[tool] = _drawn_figures(own, viral, groups, counts, prevalence)
        intervals = {name: _interval(draw) for name, draw in draws.get(tool, {}).items()}
        numbers = _counts(viral, groups, own)
        names = (tool, length, subset.label, subset.kingdom, subset.group)
        result.rows.append(Row(*names, numbers, values[tool], intervals, note))
    if subset.group != ALL:
        return
    for reference, tool in combinations(answers, 2):
        for name, value in values[tool].items():
            interval = None
            if counts is not None:
                interval = _interval(draws[tool][name] - draws[reference][name])
            difference = value - values[reference][name]
            pair = (tool, reference, length, subset.label, subset.kingdom)
            result.differences.append(Difference(*pair, name, difference, interval, note))


def _no_interval(groups: Groups, n_resamples: int) -> str:
    if not n_resamples:
        return "no resamples requested"
    for label in (True, False):
        if np.count_nonzero(groups.viral == label) < _TOO_FEW:
            return f"only one {CLASS_NAMES[label]} group"
    return ""


def _counts(viral: BoolArray, groups: Groups, answers: Answers) -> dict[str, int]:
    return {
        "n_viral": int(viral.sum()),
        "n_non_viral": int((~viral).sum()),
        "groups_viral": int(groups.viral.sum()),
        "groups_non_viral": int((~groups.viral).sum()),
        "n_without_score": int((~answers.scored).sum()),
    }


def _drawn_figures(
    answers: Answers,
    viral: BoolArray,
    groups: Groups,
    counts: IntArray,
    prevalence: float,
) -> _Draws:
    step = max(1, _AT_ONCE // len(viral))
    parts = [
        figures(answers, viral, groups.weights(counts[first : first + step], prevalence))
        for first in range(0, len(counts), step)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _interval(values: FloatArray) -> Interval:
    """Return the percentiles of the defined values; NaN if fewer than half are defined."""
    defined = values[~np.isnan(values)]
    if 2 * len(defined) < len(values):
        return float("nan"), float("nan")
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
