from dataclasses import replace

import numpy as np
import pytest

from virnucpro.classifier.calibration import PlattLine
from virnucpro.classifier.prevalence import posterior
from virnucpro.lab.metrics import calibration_error
from virnucpro.lab.training.calibration import LENGTH_CLASSES, fit, held_out
from virnucpro.lab.training.weights import equal_weights

MANY = next(one for one in LENGTH_CLASSES if one.bases == 10_000)
SINGLE = next(one for one in LENGTH_CLASSES if one.bases == 500)


def drawn(n, seed=5):
    """Others have a longer tail on the low side than on the high side."""
    dice = np.random.default_rng(seed)
    viral = np.arange(n) % 2 == 0
    logits = np.where(viral, dice.normal(1.0, 0.6, n), -dice.exponential(1.5, n) + 0.5)
    return logits, viral, np.full(n, 2 / n)


def probability(line, logits):
    return posterior(line.logits(logits), 0.5)


def loss(length_class, logits, viral, weights):
    p = probability(fit(length_class, logits, viral, weights), logits)
    return -float(np.sum(weights * np.log(np.where(viral, p, 1 - p))))


def test_two_slopes_are_recovered_for_records_of_many_windows():
    dice = np.random.default_rng(7)
    logits = np.sinh(dice.uniform(-3, 3, 20_000))
    line = PlattLine(16, 0, 3.0, -0.5, asinh=True, slope_below=1.0)
    viral = dice.random(20_000) < probability(line, logits)
    found = fit(MANY, logits, viral, np.full(20_000, 1 / 10_000))
    assert (found.min_windows, found.min_bases, found.asinh) == (16, 0, True)
    fitted = (found.slope, found.intercept, found.slope_below)
    assert fitted == pytest.approx((3.0, -0.5, 1.0), abs=0.2)
    assert calibration_error(probability(found, logits), viral, np.ones(20_000)) < 0.01


def test_single_windows_have_one_slope():
    assert fit(SINGLE, *drawn(500)).slope_below is None


@pytest.mark.parametrize("length_class", [MANY, SINGLE])
def test_the_fit_is_a_minimum(length_class):
    """No small change of a coefficient has a smaller loss, up to the small penalty."""
    logits, viral, weights = drawn(500)
    line = fit(length_class, logits, viral, weights)
    best = loss(length_class, logits, viral, weights)
    for name in ("slope", "intercept", "slope_below"):
        for step in (-0.1, 0.1):
            if getattr(line, name) is not None:
                p = probability(replace(line, **{name: getattr(line, name) + step}), logits)
                other = -float(np.sum(weights * np.log(np.where(viral, p, 1 - p))))
                assert other > best - 1e-4


def test_logits_that_fall_have_no_line():
    logits, viral, weights = drawn(500)
    for length_class in (MANY, SINGLE):
        assert fit(length_class, -logits, viral, weights) is None


def test_a_fold_has_no_influence_on_its_own_log_odds():
    logits, viral, _ = drawn(200)
    names = [f"g{number // 20}" for number in range(200)]
    groups = [("virus" if v else "plant", name) for v, name in zip(viral, names, strict=True)]
    folds = np.array([int(name[1:]) % 4 for name in names])
    before = held_out(MANY, logits, groups, folds)
    mine = folds == 3
    after = held_out(MANY, logits + 0.5 * mine, groups, folds)
    line = fit(MANY, logits[~mine], viral[~mine], balanced(groups, viral, mine))
    np.testing.assert_allclose(after[mine], line.logits(logits[mine] + 0.5), rtol=1e-6)
    assert np.abs(before[~mine] - after[~mine]).max() > 1e-4


def balanced(groups, viral, left_out):
    weights, sides = equal_weights(groups)[~left_out], viral[~left_out]
    return weights / np.where(sides, weights[sides].sum(), weights[~sides].sum())
