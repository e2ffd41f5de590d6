"""Figures of all tools by length, kingdom and group, with intervals and paired differences.

The intervals are percentiles of a bootstrap that draws groups with replacement within each class.
All tools get the same draws, so that a difference of two tools is a difference in each draw.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, TypeAlias

import numpy as np

from virnucpro.arrays import BoolArray, FloatArray, IntArray
from virnucpro.lab.evaluation.answers import Answers, Tool, answers_of
from virnucpro.lab.evaluation.fragments import Fragment, group_key
from virnucpro.lab.evaluation.labels import CLASS_NAMES
from virnucpro.lab.evaluation.metrics import WITH_INTERVAL, figures, resampled
from virnucpro.lab.groups import Groups

ALL: Final = "all"
"""Name of the kingdom and of the group that stand for all."""
LEVEL: Final = 0.95
"""Confidence level of the intervals."""

Interval: TypeAlias = tuple[float, float]
_Draws: TypeAlias = Mapping[str, FloatArray]

_AT_ONCE: Final = 4_000_000
_TOO_FEW: Final = 2


@dataclass(frozen=True, slots=True)
class _Subset:
    """Fragments of one row: everything, or a kingdom or group and the whole other class.

    Attributes
    ----------
    kingdom, group
        Names; `ALL` for all.
    viral
        Class of the kingdom or group; None for everything.
    mask
        (n,) bool, the fragments of the length that belong to the subset.
    """

    kingdom: str
    group: str
    viral: bool | None
    mask: BoolArray


@dataclass(frozen=True, slots=True)
class Row:
    """Figures of one tool, length and subset.

    Attributes
    ----------
    label
        Class of the kingdom or group; `ALL` for everything.
    counts
        Numbers of fragments and groups by class, and of fragments with a row of the tool.
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
    unanswered: str
    counts: Mapping[str, int]
    values: Mapping[str, float]
    intervals: Mapping[str, Interval]
    note: str


@dataclass(frozen=True, slots=True)
class Difference:
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
    """All rows, all differences, and the answers that they were computed from.

    Attributes
    ----------
    answers
        Answers by length class and tool.
    """

    rows: list[Row] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    answers: dict[str, dict[str, Answers]] = field(default_factory=dict)


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
        present = [tool for tool in tools if length in tool.tables]
        result.answers[length] = _joined(present, members, prevalence)
        for number, subset in enumerate(_subsets(members, by_group=by_group)):
            dice = np.random.default_rng([seed, *length.encode(), number])
            _add_rows(result, present, length, members, subset, prevalence, n_resamples, dice)
    return result


def _joined(
    tools: Sequence[Tool], members: Sequence[Fragment], prevalence: float
) -> dict[str, Answers]:
    weights = Groups.of([*map(group_key, members)]).own_weights(prevalence)
    return {tool.name: answers_of(tool, members, weights) for tool in tools}


def _subsets(members: Sequence[Fragment], *, by_group: bool) -> Iterator[_Subset]:
    """Yield everything, each kingdom of a class with several, and each group if `by_group`."""
    viral = np.array([member.viral for member in members])
    yield _Subset(ALL, ALL, None, np.ones(len(members), bool))
    kingdom = np.array([member.kingdom for member in members])
    group = np.array([member.group for member in members])
    for label in (True, False):
        names = sorted(set(kingdom[viral == label].tolist()))
        for name in names:
            inside = (viral == label) & (kingdom == name)
            if len(names) > 1:
                yield _Subset(name, ALL, label, inside | (viral != label))
            for key in sorted(set(group[inside].tolist())) if by_group else ():
                yield _Subset(name, key, label, (inside & (group == key)) | (viral != label))


def _add_rows(
    result: Comparison,
    tools: Sequence[Tool],
    length: str,
    members: Sequence[Fragment],
    subset: _Subset,
    prevalence: float,
    n_resamples: int,
    dice: np.random.Generator,
) -> None:
    chosen = [member for member, inside in zip(members, subset.mask, strict=True) if inside]
    viral = np.array([member.viral for member in chosen])
    groups = Groups.of([*map(group_key, chosen)])
    weights = groups.own_weights(prevalence)
    note = _no_interval(groups, n_resamples)
    counts = groups.drawn(n_resamples, dice) if not note else None
    label = ALL if subset.viral is None else CLASS_NAMES[subset.viral]
    draws: dict[str, _Draws] = {}
    rows: dict[str, Row] = {}
    for tool in tools:
        answers = result.answers[length][tool.name].select(subset.mask)
        if counts is not None:
            draws[tool.name] = _drawn_figures(answers, viral, groups, counts, prevalence)
        rows[tool.name] = Row(
            tool=tool.name,
            length=length,
            label=label,
            kingdom=subset.kingdom,
            group=subset.group,
            unanswered=tool.unanswered,
            counts=_counts(viral, groups, answers),
            values=figures(answers, viral, weights),
            intervals={name: _interval(draw) for name, draw in draws.get(tool.name, {}).items()},
            note=note,
        )
    result.rows += rows.values()
    if subset.group != ALL:
        return
    for reference, tool in combinations(tools, 2):
        for name in WITH_INTERVAL:
            interval = None
            if counts is not None:
                interval = _interval(draws[tool.name][name] - draws[reference.name][name])
            value = rows[tool.name].values[name] - rows[reference.name].values[name]
            names = (tool.name, reference.name, length, label, subset.kingdom, name)
            result.differences.append(Difference(*names, value, interval, note))


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
        "n_without_row": int((~answers.has_row).sum()),
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
        resampled(answers, viral, groups.weights(counts[first : first + step], prevalence))
        for first in range(0, len(counts), step)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _interval(values: FloatArray) -> Interval:
    """Return the percentiles of the defined values; NaN if fewer than half are defined."""
    known = values[~np.isnan(values)]
    if 2 * len(known) < len(values):
        return float("nan"), float("nan")
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
