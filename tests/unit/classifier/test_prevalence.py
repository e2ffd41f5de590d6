from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.classifier.calibration import Tails
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


THRESHOLDS = tuple(range(-4, 9))
REACHED = [
    tuple(1 - NormalDist(mean, 6**0.5).cdf(limit) for limit in THRESHOLDS) for mean in (3, -3)
]
TAILS = Tails(THRESHOLDS, (1_250, 10_000), (REACHED[0],) * 2, (REACHED[1],) * 2)


def estimate(log_odds, **options):
    length = np.where(np.arange(len(log_odds)) % 3, 1_500, 20_000)
    return estimate_prevalence(np.asarray(log_odds, float), TAILS, length, **options)


def organism(mean, deviation, n=500):
    return np.random.default_rng(11).normal(mean, deviation, n)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.3, 0.7, 0.95])
def test_a_metagenome_has_the_same_estimate_with_tails(share):
    _, log_odds = metagenome(share, 5_000)
    likely, found = estimate_prevalence(log_odds), estimate(log_odds)
    assert (found.value, found.doubtful) == (likely.value, False)
    assert found.low <= likely.low
    assert found.high == likely.high


def test_the_genes_or_contigs_of_one_odd_organism_are_not_taken_for_viruses():
    odd = organism(-0.5, 1.6)
    assert estimate_prevalence(odd).value > 0.2
    found = estimate(odd)
    assert found.value < 0.01
    assert found.low == found.value
    assert found.high > 0.3
    assert "fit neither" in Expectation(found, 0, 0.0).warning


def test_viruses_unlike_those_of_the_training_are_believed_where_nothing_else_is():
    odd = organism(2, 1, 60)
    likely, found = estimate_prevalence(odd), estimate(odd)
    assert found.value == likely.value > 0.5
    assert found.doubtful
    assert found.low < 0.05
    # a set of genes of an organism looks the same
    assert estimate(odd, genes=True).value <= PRIOR


def test_a_doubt_that_changes_no_call_is_not_told():
    clones = np.full(11, 6.0)  # of one phage: none reaches 7
    found = estimate(clones)
    assert found.value == estimate_prevalence(clones).value
    assert not Expectation(found, 11, 0.1).warning


def test_the_interval_of_a_file_of_viruses_alone_reaches_all():
    for n in (1, 20, 300):
        found = estimate_prevalence(np.full(n, 7.0))
        assert found.high > 0.99
        assert found.value < 0.96


def test_a_given_prevalence_limits_the_expected_false_calls():
    given = Prevalence(0.9, 0.9, 0.9)
    assert Expectation.of(given, 3_446, 3_446, 595.0, 0).false == pytest.approx(344.6)
    assert Expectation.of(given, 3_446, 3_000, 20.0, 0).false == 20.0
    estimated = Prevalence(0.9, 0.8, 0.95, 3_446)
    assert Expectation.of(estimated, 3_446, 3_446, 595.0, 0).false == 595.0


def test_calls_that_rest_on_the_prevalence_are_counted_in_words():
    text = Expectation(Prevalence(0.98, 0.9, 0.999, 50), 51, 2.0, 12).text
    assert text.endswith("; 12 viral at this share only")


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
