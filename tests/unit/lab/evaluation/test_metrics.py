import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.lab.evaluation.metrics import figures
from virnucpro.lab.evaluation.predictions import Answers
from virnucpro.lab.metrics import bin_of, ranked

SCORES = st.integers(0, 12).map(lambda value: value / 12)


@st.composite
def cases(draw):
    n = draw(st.integers(2, 25))
    viral = np.array([True, False, *draw(st.lists(st.booleans(), min_size=n - 2, max_size=n - 2))])
    lists = {"min_size": n, "max_size": n}
    score = np.array(draw(st.lists(SCORES, **lists)))
    scored = np.array(draw(st.lists(st.booleans(), **lists)))
    called = np.array(draw(st.lists(st.booleans(), **lists)))
    weights = np.array(draw(st.lists(st.integers(1, 9), **lists)), float)
    probability = np.where(scored, score, np.nan)
    return Answers(score, scored, probability, called), viral, weights / weights.sum()


def figures_once(answers, viral, weights=None):
    weights = np.full(len(viral), 1 / len(viral)) if weights is None else weights
    return {name: values[0] for name, values in figures(answers, viral, weights[None]).items()}


def test_figures_of_a_small_case_computed_by_hand(answers):
    """Three viral at .9, .8, .3 and two non-viral at .6, .1."""
    viral = np.array([True, True, True, False, False])
    result = figures_once(answers([0.9, 0.8, 0.3, 0.6, 0.1]), viral)
    assert result["auroc"] == pytest.approx(5 / 6)
    assert result["auprc"] == pytest.approx((1 + 1 + 3 / 4) / 3)
    assert result["recall_at_fpr_5"] == pytest.approx(2 / 3)
    assert result["mcc"] == pytest.approx((2 * 1 - 1 * 1) / np.sqrt(3 * 3 * 2 * 2))
    assert result["fdr"] == pytest.approx(1 / 3)
    assert result["viral_as_viral"] == pytest.approx(2 / 3)
    assert result["non_viral_as_viral"] == pytest.approx(1 / 2)
    assert result["ece"] == pytest.approx((0.1 + 0.2 + 0.7 + 0.6 + 0.1) / 5)


def test_unanswered_fragments_count(answers):
    viral = np.array([True, True, False, False])
    result = figures_once(answers([0.9, np.nan, 0.1, np.nan]), viral)
    assert result["auroc"] == pytest.approx(3.5 / 4)
    assert result["viral_as_viral"] == 0.5


def test_figures_that_are_undefined_are_nan(answers):
    viral = np.array([True, False])
    result = figures_once(answers([np.nan, np.nan]), viral)
    assert result["auroc"] == 0.5
    assert all(np.isnan(result[name]) for name in ("fdr", "ece"))
    assert result["mcc"] == 0


def test_a_score_that_is_no_probability_has_no_calibration(answers):
    case = answers([3.0, -2.0])
    assert np.isnan(figures_once(case, np.array([True, False]))["ece"])


@given(cases())
def test_figures_of_many_weights_equal_those_of_scikit_learn(case):
    from sklearn import metrics as reference

    answers, viral, weights = case
    called = answers.called_viral
    how = {"sample_weight": weights}
    false, recall, _ = reference.roc_curve(viral, answers.score, drop_intermediate=False, **how)
    expected = figures_once(answers, viral, weights) | {
        "auroc": reference.roc_auc_score(viral, answers.score, **how),
        "auprc": reference.average_precision_score(viral, answers.score, **how),
        "recall_at_fpr_5": recall[false <= 0.05 + 1e-9].max(),
        "mcc": reference.matthews_corrcoef(viral, called, **how),
    }
    for name, values in figures(answers, viral, np.stack([weights, weights])).items():
        assert values == pytest.approx([expected[name]] * 2, nan_ok=True, abs=1e-9), name


@given(cases())
def test_curves_equal_those_of_scikit_learn(case):
    from sklearn import metrics as reference

    answers, viral, weights = case
    curve = ranked(answers.score, viral, weights)
    false, recall, _ = reference.roc_curve(
        viral, answers.score, sample_weight=weights, drop_intermediate=False
    )
    assert curve.false_positives == pytest.approx(false)
    assert curve.recall == pytest.approx(recall)
    precision, recall, _ = reference.precision_recall_curve(
        viral, answers.score, sample_weight=weights
    )
    assert curve.precision == pytest.approx(precision[::-1])
    assert curve.recall == pytest.approx(recall[::-1])


@given(cases(), st.data())
def test_a_weight_of_zero_equals_absence(case, data):
    answers, viral, weights = case
    kept = np.array(data.draw(st.lists(st.booleans(), min_size=len(viral), max_size=len(viral))))
    kept[:2] = True
    part = Answers(
        answers.score[kept],
        answers.scored[kept],
        answers.probability[kept],
        answers.called_viral[kept],
    )
    zeroed = figures(answers, viral, np.where(kept, weights, 0)[None])
    absent = figures(part, viral[kept], weights[kept][None])
    for name, values in zeroed.items():
        assert values == pytest.approx(absent[name], nan_ok=True, abs=1e-9), name


def test_bins_cover_zero_to_one():
    assert bin_of(np.array([0, 0.0999, 0.1, 0.95, 1.0, np.nan])).tolist() == [0, 0, 1, 9, 9, -1]
