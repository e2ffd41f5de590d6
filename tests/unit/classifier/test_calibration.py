import copy
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from samples import CALIBRATION as CONTENT

from virnucpro import arrays
from virnucpro.classifier import calibration
from virnucpro.classifier.calibration import (
    Calibration,
    PlattLine,
    Preset,
    RecordCalibration,
    q_values,
    read_calibration,
    share_of_errors,
)
from virnucpro.classifier.prevalence import posterior
from virnucpro.errors import BundleError

LINES = (
    PlattLine(1, 0, 1.0, 0.0),
    PlattLine(1, 400, 2.0, 0.5),
    PlattLine(4, 1000, 3.0, -1.0),
)
PRESETS = {
    "sensitive": Preset(0.5, 0.3),
    "default": Preset(0.7, 0.4),
    "conservative": Preset(0.9, 0.5),
}
CALIBRATION = Calibration(LINES, 0.3, PRESETS, 100, 0.5, (0.2, 0.7))


def probability(logit, n_windows, n_bases, prevalence=0.3, calibration=CALIBRATION):
    values = (np.array([logit]), np.array([n_windows]), np.array([n_bases]))
    return float(posterior(calibration.log_odds(*values), prevalence)[0])


def logistic(value):
    return 1 / (1 + math.exp(-value))


@pytest.mark.parametrize(
    ("n_windows", "n_bases", "line"),
    [
        (1, 60, 0),
        (1, 399, 0),
        (1, 400, 1),
        (3, 1500, 1),
        (4, 999, 1),
        (4, 1000, 2),
        (700, 350_000, 2),
        (4, 300, 0),
    ],
)
def test_a_record_uses_the_last_line_whose_minima_it_reaches(n_windows, n_bases, line):
    expected = logistic(LINES[line].slope * 0.4 + LINES[line].intercept)
    assert probability(0.4, n_windows, n_bases) == pytest.approx(expected)


def test_each_record_has_its_own_line():
    found = CALIBRATION.log_odds(
        np.array([0.4, np.nan, 0.4]), np.array([1, 0, 9]), np.array([60, 0, 4000])
    )
    found = posterior(found, 0.3)
    assert found[[0, 2]] == pytest.approx([logistic(0.4), logistic(0.2)])
    assert np.isnan(found[1])


@given(
    st.floats(-5, 5),
    st.floats(0.001, 0.999),
    st.floats(0.001, 0.999),
)
def test_another_prevalence_follows_bayes_rule(logit, fitted, other):
    calibration = Calibration(LINES[:1], fitted, PRESETS, 100, 0.5, (0.2, 0.7))
    posterior = probability(logit, 1, 60, fitted, calibration)
    # P(virus | x) = P(x | virus) P(virus) / P(x); the likelihoods do not depend on the prevalence
    virus, others = posterior / fitted, (1 - posterior) / (1 - fitted)
    expected = virus * other / (virus * other + others * (1 - other))
    assert probability(logit, 1, 60, other, calibration) == pytest.approx(expected, rel=1e-6)


@given(
    st.floats(-30, 30),
    st.floats(-30, 30),
    st.floats(0.1, 8),
    st.floats(0.1, 8),
    st.booleans(),
)
def test_two_slopes_rise_with_the_logit(first, second, above, below, asinh):
    line = PlattLine(1, 0, above, -0.3, asinh=asinh, slope_below=below)
    low, high = line.logits(np.sort([first, second]))
    assert low <= high + 1e-9
    x = math.asinh(first) if asinh else first
    expected = above * math.log1p(math.exp(x)) - below * math.log1p(math.exp(-x)) - 0.3
    assert line.logits(np.array([first]))[0] == pytest.approx(expected)


def test_equal_slopes_are_a_line():
    x = np.array([-3.0, 0.0, 5.0])
    both = PlattLine(4, 0, 2.5, 0.1, slope_below=2.5).logits(x)
    np.testing.assert_array_equal(both, PlattLine(4, 0, 2.5, 0.1).logits(x))


def test_extreme_logits_give_finite_probabilities():
    assert probability(30.0, 9, 9000, 0.999) == pytest.approx(1)
    assert 0 <= probability(-30.0, 9, 9000, 0.001) < 1e-12


def simple_q_values(values):
    found = []
    for value in values:
        listed = [1 - other for other in values if other >= value]
        found.append(sum(listed) / len(listed) if listed else math.nan)
    return found


@given(
    st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0, math.nan]) | st.floats(0, 1)),
)
@example([0.5, 0.99, math.nan, 0.9, 0.9])
def test_q_values_equal_a_simple_loop(values):
    found = q_values(np.array(values, float))
    np.testing.assert_allclose(found, simple_q_values(values), rtol=1e-9, atol=1e-12)
    known = [(value, q) for value, q in zip(values, found, strict=True) if not math.isnan(value)]
    assert all(len({q for other, q in known if other == value}) == 1 for value, _ in known)


def test_a_calibration_is_read_from_json():
    found = read_calibration(CONTENT, "bundle.json")
    assert found.lines == (PlattLine(1, 0, 1.0, 0.0), PlattLine(2, 600, 1.5, 0.1))
    assert found.presets == PRESETS
    assert (found.prevalence, found.min_bases, found.min_scored) == (0.5, 100, 0.5)
    assert found.gc == (0.2, 0.75)


def changed(*path, value):
    content = copy.deepcopy(CONTENT)
    place = content
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return content


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("lines",), None, "'lines'"),
        (("lines",), [], "has no line"),
        (("lines", 1, "slope"), None, "'slope'"),
        (("lines", 1, "slope"), 0.0, "slope of 0 or less"),
        (("lines", 0, "slope"), -1.0, "slope of 0 or less"),
        (("lines", 0, "intercept"), math.nan, "not finite"),
        (("lines", 0, "slope_below"), 0.0, "slope of 0 or less"),
        (("lines", 0, "slope_below"), math.inf, "not finite"),
        (("lines", 0, "slope_below"), "steep", "steep"),
        (("lines", 0, "slope"), math.inf, "not finite"),
        (("lines", 0, "min_windows"), "many", "many"),
        (("prevalence",), 0, r"prevalence 0\.0"),
        (("prevalence",), 1.0, r"prevalence 1\.0"),
        (("prevalence",), math.nan, "prevalence nan"),
        (("presets", "default"), None, "'default'"),
        (("presets", "default", "viral"), None, "viral"),
        (("presets", "default", "other"), 0.5, "other"),
        (("presets", "default", "viral"), 0.39, "non_viral <= viral"),
        (("presets", "sensitive", "non_viral"), -0.1, "0 <= non_viral"),
        (("presets", "conservative", "viral"), 1.1, "viral <= 1"),
        (("min_bases",), None, "min_bases"),
        (("min_scored",), None, "min_scored"),
        (("gc",), [0.2], "invalid field"),
        (("gc",), None, "'gc'"),
    ],
)
def test_an_invalid_calibration_is_refused(path, value, told):
    with pytest.raises(BundleError, match=rf"^x\.json: the calibration .*{told}.*bundle again"):
        read_calibration(changed(*path, value=value), "x.json")


@pytest.mark.parametrize("content", [None, 5, "text", [], {"lines": 3}])
def test_a_calibration_that_is_no_object_is_refused(content):
    with pytest.raises(BundleError, match="the calibration has a missing or invalid field"):
        read_calibration(content, "x.json")


RECORDS = RecordCalibration((500.0, 5_000.0), (0.5, 1.0), (0.5, 0.0), (0.0, -1.0), 4.0)
RECORDS_CONTENT = {
    "lengths": [500, 5_000],
    "record": [0.5, 1],
    "windows": [0.5, 0],
    "offset": [0, -1],
    "limit": 4,
}


@pytest.mark.parametrize(
    ("record", "windows", "length", "odds"),
    [
        (2.0, 1.0, 500, 1.5),
        (2.0, 1.0, 60, 1.5),
        (2.0, 1.0, 5_000, 1.0),
        (2.0, 1.0, 900_000, 1.0),
        (2.0, 1.0, 500 * 10**0.5, 0.75 * 2 + 0.25 - 0.5),
        (30.0, 1.0, 5_000, 4.0),
        (-30.0, 1.0, 5_000, -4.0),
        (math.nan, 1.0, 500, 0.5),
        (2.0, math.nan, 500, 1.0),
        (math.nan, math.nan, 500, math.nan),
    ],
)
def test_log_odds_of_a_record_join_pieces_and_windows_by_length(record, windows, length, odds):
    found = RECORDS.log_odds(np.array([record]), np.array([windows]), np.array([length]))
    assert found.tolist() == pytest.approx([odds], nan_ok=True)


@pytest.mark.parametrize(
    ("shifts", "codons", "odds"),
    [
        (0.0, 1_000.0, 1.0),
        (10.0, 1_000.0, 1.0),
        (20.0, 1_000.0, 0.0),
        (30.0, 1_000.0, -1.0),
        (90.0, 1_000.0, -1.0),
        (0.0, 0.0, 1.0),
        (math.nan, math.nan, 1.0),
    ],
)
def test_frame_shifts_choose_between_the_calibrations(shifts, codons, odds):
    own = {**RECORDS_CONTENT, "with_errors": {**RECORDS_CONTENT, "record": [0.5, 0]}}
    records = read_calibration({**CONTENT, "records": own}, "here").records
    errors = share_of_errors(np.array([shifts]), np.array([codons]))
    found = records.log_odds(np.array([2.0]), np.array([1.0]), np.array([5_000]), errors)
    assert found == pytest.approx([odds])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, ""),
        ({"record": [1]}, "one value of each factor"),
        ({name: [] for name in ("lengths", "record", "windows", "offset")}, "one value of each"),
        ({"lengths": [5_000, 500]}, "ascending lengths"),
        ({"lengths": [0, 500]}, "ascending lengths"),
        ({"offset": [0, math.inf]}, "finite factors"),
        ({"limit": 0}, "not positive"),
        ({"with_errors": {**RECORDS_CONTENT, "limit": -1}}, "not positive"),
        ({"with_errors": {"lengths": [1]}}, "missing or invalid field"),
        ({"limit": None}, "missing or invalid field"),
        ({"windows": 1}, "missing or invalid field"),
    ],
)
def test_a_calibration_of_records_is_checked(change, problem):
    content = {**CONTENT, "records": {**RECORDS_CONTENT, **change}}
    if not problem:
        assert read_calibration(content, "here").records == RECORDS
        return
    with pytest.raises(BundleError, match=problem):
        read_calibration(content, "here")


TAILS = {"thresholds": [0, 3], "lengths": [1_250, 5_000], "viral": [[0.9, 0.5], [1, 0.7]]}
TAILS["others"] = [[0.1, 0.01], [0.05, 0]]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, ""),
        ({"thresholds": [3, 0]}, "ascending lengths and thresholds"),
        ({"lengths": []}, "ascending lengths and thresholds"),
        ({"viral": [[0.9, 0.5]]}, "one share for each"),
        ({"others": [[0.1], [0.2]]}, "one share for each"),
        ({"viral": [[0.9, 0.5], [1.1, 0.7]]}, "needs shares"),
        ({"viral": [[0.9, math.nan], [1, 0.7]]}, "needs shares"),
        ({"others": None}, "missing or invalid field"),
    ],
)
def test_the_tails_of_a_calibration_are_checked(change, problem):
    content = {**CONTENT, "tails": {**TAILS, **change}}
    if not problem:
        tails = read_calibration(content, "here").tails
        assert tails.nearest(np.array([100, 2_400, 2_600, 10**6])).tolist() == [0, 0, 1, 1]
        return
    with pytest.raises(BundleError, match=problem):
        read_calibration(content, "here")


@pytest.mark.parametrize("n_values", [1, 7, 3_000])
def test_q_values_of_many_records_are_too_high_by_less_than_a_step(n_values, monkeypatch):
    dice = np.random.default_rng(n_values)
    values = dice.beta(0.2, 0.8, n_values)
    values[dice.random(n_values) < 0.3] = 0.25  # ties over several blocks
    values[dice.random(n_values) < 0.1] = np.nan
    exact = q_values(values)
    monkeypatch.setattr(arrays, "_AT_ONCE", 64)
    monkeypatch.setattr(calibration, "_RANKED_AT_ONCE", 0)
    for step in (1e-6, 1e-2):
        monkeypatch.setattr(calibration, "_STEP", step)
        found = q_values(values)
        known = np.isfinite(values)
        assert np.isnan(found[~known]).all()
        excess = found[known] - exact[known]
        assert ((excess > -1e-12) & (excess < step)).all()
        assert len({*found[values == 0.25].tolist()}) <= 1
