import math

import numpy as np
import pytest

from virnucpro.lab.evaluation.comparison import ALL, compare
from virnucpro.lab.evaluation.predictions import Prediction, Tool, answers_of


def tool(name, scores, *, lowest=False):
    rows = {
        f"s{i}": Prediction(score, score >= 0.5)
        for i, score in enumerate(scores)
        if score is not None
    }
    return Tool(name, lowest, {"500": rows})


@pytest.fixture
def members(fragments_of):
    labels = [(True, "viral", group) for group in "ABCDEF" for _ in range(4)]
    hosts = [(False, kingdom, f"{kingdom}{i}") for kingdom in ("fungi", "plant") for i in range(3)]
    return {"500": fragments_of(labels + [host for host in hosts for _ in range(4)])}


@pytest.fixture
def scores(members):
    dice = np.random.default_rng(4)
    return [
        float(np.clip(dice.normal(0.35 + 0.3 * one.viral, 0.2), 0, 1)) for one in members["500"]
    ]


def compared(tools, members, n_resamples=200, by_group=True):
    options = {"prevalence": 0.5, "n_resamples": n_resamples, "seed": 7, "by_group": by_group}
    return compare(tools, members, **options)


def test_rows_stand_for_everything_for_kingdoms_and_for_groups(members, scores):
    rows = compared([tool("one", scores)], members).rows
    names = [(row.label, row.kingdom, row.group) for row in rows]
    assert names[0] == (ALL, ALL, ALL)
    assert ("non-viral", "fungi", ALL) in names
    assert ("viral", "viral", "A") in names
    assert ("viral", "viral", ALL) not in names
    assert len(names) == 1 + 6 + 2 + 6
    assert [row.group for row in compared([tool("one", scores)], members, by_group=False).rows] == [
        ALL
    ] * 3


def test_the_interval_contains_the_estimate_and_single_groups_have_none(members, scores):
    rows = {(row.kingdom, row.group): row for row in compared([tool("x", scores)], members).rows}
    everything = rows[ALL, ALL]
    low, high = everything.intervals["auroc"]
    assert low < everything.values["auroc"] < high
    assert everything.note == ""
    assert rows["fungi", ALL].intervals
    assert rows["viral", "A"].note == "only one viral group"
    assert not rows["viral", "A"].intervals
    assert rows["plant", "plant1"].note == "only one non-viral group"


def test_equal_tools_have_a_paired_difference_of_zero(members, scores):
    """Unpaired draws of the two tools would give an interval as wide as that of one tool."""
    result = compared([tool("one", scores), tool("two", scores)], members)
    assert result.differences
    for one in result.differences:
        assert one.value == 0
        assert one.interval in {(0.0, 0.0), None} or math.isnan(one.interval[0])


def test_the_paired_interval_is_that_of_the_difference_in_each_draw(members, scores):
    """A tool that is worse by a monotone loss in every group is worse in every draw."""
    dice = np.random.default_rng(5)
    worse = [0.5 * score + 0.5 * float(dice.random()) for score in scores]
    result = compared([tool("good", scores), tool("bad", worse)], members, n_resamples=500)
    rows = {row.tool: row for row in result.rows if row.kingdom == ALL}
    one = next(d for d in result.differences if d.figure == "auroc" and d.kingdom == ALL)
    assert (one.tool, one.reference) == ("bad", "good")
    assert one.value == pytest.approx(rows["bad"].values["auroc"] - rows["good"].values["auroc"])
    low, high = one.interval
    assert low < one.value < high
    widths = [rows[name].intervals["auroc"] for name in rows]
    assert high - low < sum(top - bottom for bottom, top in widths)


def test_equal_seeds_give_equal_results_and_no_resamples_no_intervals(members, scores):
    tools = [tool("one", scores)]
    assert compared(tools, members).rows == compared(tools, members).rows
    rows = compared(tools, members, n_resamples=0).rows
    assert {row.note for row in rows} == {"no resamples requested"}


def test_unanswered_fragments_are_ranked_by_the_rule_of_the_tool(members, scores):
    partly = [score if i % 2 else None for i, score in enumerate(scores)]
    tools = [tool("mean", partly), tool("low", partly, lowest=True)]
    weights = np.ones(len(scores))
    mean, low = (answers_of(one, members["500"], weights) for one in tools)
    scored = mean.score[mean.scored]
    assert scored.min() < mean.score[0] < scored.max()
    assert low.score[0] < scored.min()
    assert compared(tools, members).rows[0].counts["n_without_score"] == len(partly) / 2
