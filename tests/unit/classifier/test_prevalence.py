import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.classifier.prevalence import (
    PRIOR,
    Expectation,
    Prevalence,
    estimate_prevalence,
    posterior,
)


def metagenome(share, n=20_000, seed=7):
    """Return labels and log odds: two normal distributions whose log likelihood ratio they are."""
    rng = np.random.default_rng(seed)
    viral = rng.random(n) < share
    return viral, rng.normal(np.where(viral, 3, -3), np.sqrt(6))


@pytest.mark.parametrize("share", [0.01, 0.05, 0.3, 0.7, 0.95])
def test_the_share_of_viral_records_is_estimated(share):
    viral, log_odds = metagenome(share)
    found = estimate_prevalence(np.append(log_odds, [np.nan] * 300))
    assert share / 1.5 < found.value < share * 1.5
    assert found.low < viral.mean() < found.high
    stated = posterior(log_odds, found.value)
    called = stated >= 0.5
    assert (1 - stated[called]).mean() == pytest.approx((~viral[called]).mean(), abs=0.05)


def test_the_estimate_is_that_of_expectation_maximisation():
    _, log_odds = metagenome(0.05, 500)
    share = PRIOR
    for _ in range(500):
        share = float((posterior(log_odds, share).sum() + 20 * PRIOR) / (500 + 20))
    assert estimate_prevalence(log_odds).value == pytest.approx(share, rel=0.01)


@pytest.mark.parametrize(
    ("log_odds", "least", "most"),
    [
        ([], 0.05, 0.05),
        ([np.nan], 0.05, 0.05),
        ([6.0], 0.08, 0.1),  # one virus
        ([-6.0], 0.045, 0.05),
        ([6.0] * 20, 0.5, 0.53),
        ([500.0] * 10_000, 0.99, 0.9995),
        ([-500.0] * 10_000, 0.0001, 0.001),
    ],
)
def test_few_records_move_the_estimate_little(log_odds, least, most):
    found = estimate_prevalence(np.array(log_odds, float))
    assert least <= found.value <= most
    assert 0 < found.low <= found.value < found.high < 1


@given(st.lists(st.floats(-40, 40) | st.just(np.nan), max_size=60), st.randoms())
def test_the_order_of_the_records_has_no_influence(log_odds, dice):
    shuffled = log_odds.copy()
    dice.shuffle(shuffled)
    found, other = (estimate_prevalence(np.array(one, float)) for one in (log_odds, shuffled))
    assert found == other


@given(st.floats(-300, 300), st.floats(0.001, 0.999))
def test_the_posterior_follows_bayes_rule(log_odds, prevalence):
    ratio = np.exp(log_odds)
    expected = ratio * prevalence / (ratio * prevalence + 1 - prevalence)
    assert posterior(np.array([log_odds]), prevalence)[0] == pytest.approx(expected)


_NONE = "not estimated: no sequence of 1,000 bases can be called"


@pytest.mark.parametrize(
    ("values", "called", "false", "share", "told", "warns"),
    [
        ((0.0512, 0.0298, 0.0801, 500), 96, 12.4, "5.1 % viral (3.0 to 8.0 %)", "12", False),
        ((0.3, 0.3, 0.3), 1_000, 500.0, "30 % viral (given)", "500", False),
        ((0.0004, 0.0001, 0.002, 90), 3, 2.1, "0.04 % viral (0.01 to 0.2 %)", "2.1", True),
        ((0.05, 0.01, 0.2, 1), 0, 0.0, "5.0 % viral (1.0 to 20 %)", "0.0", False),
        ((0.05, 0.01, 0.2, 0), 2, 0.9, f"5.0 % viral ({_NONE})", "0.9", False),
    ],
)
def test_what_is_expected_is_told_in_words(values, called, false, share, told, warns):
    expected = Expectation(Prevalence(*values), called, false)
    assert expected.text == f"assumed {share}; {called:,} called; expected false: {told}"
    assert bool(expected.warning) == warns
