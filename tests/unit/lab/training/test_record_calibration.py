import numpy as np
import pytest

from virnucpro.classifier.calibration import PlattLine
from virnucpro.classifier.prevalence import posterior
from virnucpro.lab.training.calibration import (
    Calibrated,
    LengthClass,
    fit_length,
    metagenome_weights,
    supported,
    tails_of,
)
from virnucpro.lab.training.cross_validation import Pieces

NO_ERRORS = np.zeros(20_000)


def pieces(n, seed=3):
    """Record logits are twice as far from 0 as window logits, and both have noise."""
    dice = np.random.default_rng(seed)
    viral = np.arange(n) % 2 == 0
    groups = [("virus" if v else "bacteria", f"g{i % 40}") for i, v in enumerate(viral)]
    side = np.where(viral, 1.0, -1.0)
    return 2 * side + dice.normal(0, 2, n), side + dice.normal(0, 1, n), groups, viral


def test_log_odds_are_calibrated_and_use_both_logits():
    record, windows, groups, viral = pieces(20_000)
    found = fit_length(1_000, record, windows, NO_ERRORS[: len(record)], groups, limit=20.0)
    # Log odds of a normal distribution with means +-m and deviation s are 2 m x / s ** 2.
    factors = (found.record[0], found.windows[0], found.offset[0])
    assert factors == pytest.approx((1.0, 2.0, 0.0), abs=0.15)
    shares = posterior(found.log_odds(record, windows, np.full(len(viral), 1_000)), 0.5)
    for low in (0.1, 0.3, 0.6, 0.8):
        chosen = (shares >= low) & (shares < low + 0.1)
        assert viral[chosen].mean() == pytest.approx(low + 0.05, abs=0.05)


def test_a_logit_that_contradicts_the_other_counts_nothing():
    record, windows, groups, _ = pieces(2_000)
    found = fit_length(500, record, -windows, NO_ERRORS[: len(record)], groups, limit=20.0)
    assert found.windows == (0.0,)
    assert found.record[0] > 0.5


def test_pieces_with_errors_have_factors_of_their_own():
    record, windows, groups, _ = pieces(20_000)
    errors = (np.arange(20_000) // 40 % 2).astype(float)
    weaker = np.where(errors > 0, 0.5, 1.0)
    found = fit_length(1_000, record * weaker, windows * weaker, errors, groups, limit=20.0)
    assert found.with_errors.record[0] == pytest.approx(2 * found.record[0], abs=0.3)
    assert found.with_errors.windows[0] == pytest.approx(2 * found.windows[0], abs=0.5)
    length = np.full(20_000, 1_000)
    clean = fit_length(1_000, record, windows, NO_ERRORS, groups, limit=20.0)
    expected = clean.log_odds(record, windows, length)
    odds = found.log_odds(record * weaker, windows * weaker, length, errors)
    assert np.abs(odds - expected).mean() < 0.2
    between = found.log_odds(record, windows, length, np.full(20_000, 0.5))
    ends = [found.log_odds(record, windows, length, np.full(20_000, end)) for end in (0.0, 1.0)]
    assert between == pytest.approx(np.mean(ends, axis=0))
    assert found.log_odds(record, windows, length).tolist() == ends[0].tolist()


def test_a_bundle_states_how_many_pieces_of_unseen_groups_reach_high_log_odds():
    record, _, groups, viral = pieces(4_000)
    log_odds = np.where(viral, np.abs(record), record)
    classes = [
        Calibrated(LengthClass(n, 1, 0), PlattLine(1, 0, 1.0, 0.0), record, log_odds, log_odds)
        for n in (500, 1_250)
    ]
    drawn = {n: Pieces(groups, record[:, None], np.arange(4_001)) for n in (500, 1_250)}
    found = tails_of(classes, drawn)
    assert found["lengths"] == [1_250]  # shorter records do not count
    assert found["viral"][0][found["thresholds"].index(0)] == 1
    above = (record[~viral] >= 3).mean()
    assert found["others"][0][found["thresholds"].index(3)] == pytest.approx(above, abs=0.01)
    assert tails_of(classes[:1], drawn) is None


def test_log_odds_beyond_the_evidence_are_cut():
    record, windows, groups, _ = pieces(2_000)
    found = fit_length(
        500, 50 * record, windows, NO_ERRORS[: len(record)], groups, limit=supported(1_000)
    )
    odds = found.log_odds(50 * record, windows, np.full(2_000, 500))
    assert np.abs(odds).max() == pytest.approx(np.log(1_000), abs=0.01)


def test_prokaryotes_have_their_share_of_a_metagenome_and_genera_count_equally():
    groups = [("virus", "v")] * 5 + [("bacteria", "a")] * 8 + [("archaea", "b")] * 2
    groups += [("plant", "c")] * 5
    weights = metagenome_weights(groups)
    assert weights[:5].sum() == pytest.approx(1)
    assert weights[5:13].sum() == pytest.approx(weights[13:15].sum())
    assert weights[5:15].sum() == pytest.approx(0.85 * weights[5:].sum())
    assert weights[5:].sum() == pytest.approx(1)
    cells = metagenome_weights(groups[:15])
    assert cells[5:13].sum() == pytest.approx(cells[13:].sum()) == pytest.approx(0.5)
    plants = metagenome_weights([*groups[:5], *groups[15:]])
    assert plants[5:] == pytest.approx(0.2)
