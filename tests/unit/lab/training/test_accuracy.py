import numpy as np
import pytest

from virnucpro.lab.training.calibration import LENGTH_CLASSES, calibrate
from virnucpro.lab.training.cross_validation import Pieces
from virnucpro.lab.training.fit import accuracy_figures


@pytest.fixture(scope="module")
def everything():
    dice = np.random.default_rng(4)
    groups = [("virus", f"v{n % 8}") for n in range(160)]
    groups += [("plant", f"p{n % 5}") for n in range(100)] + [("fungi", "alone")] * 60
    viral = np.array([kingdom == "virus" for kingdom, _ in groups])
    pieces = Pieces(groups, np.zeros((0, 1), np.float32), np.zeros(1, np.int64))
    logits = {
        500: np.where(viral, 0.3, -0.3) + dice.normal(0, 1, len(groups)),
        10_000: np.where(viral, 3.0, -3.0) + dice.normal(0, 1, len(groups)),
    }
    both = dict.fromkeys(logits, pieces)
    names = sorted({name for _, name in groups})
    folds = dict.fromkeys(logits, np.array([names.index(name) % 5 for _, name in groups]))
    near = {bases: values + 20 * viral for bases, values in logits.items()}
    calibrated = calibrate(logits, near, both, LENGTH_CLASSES, folds, pytest.fail)
    return accuracy_figures(calibrated, both, 0.5, 1)


@pytest.fixture(scope="module")
def figures(everything):
    return everything["cross_validation"]


def test_relatives_that_score_higher_have_higher_figures(everything, figures):
    assert everything["relatives"]["500"]["auroc"] > figures["500"]["auroc"] + 0.1
    families = everything["families"]
    assert sorted(families) == [f"v{number}" for number in range(8)]
    seen = [one["relatives"]["500"] - one["unseen"]["500"] for one in families.values()]
    assert np.mean(seen) > 0.2


def test_each_figure_lies_in_its_interval(figures):
    for one in figures.values():
        low, high = one["auroc_interval"]
        assert low <= one["auroc"] <= high
    low, high = figures["500"]["auroc_interval"]
    assert 0.02 < high - low < 0.3
    assert figures["10000"]["auroc"] > 0.99
    low, high = figures["10000"]["realised_fdr"]["0.5"]["recall_interval"]
    assert low <= figures["10000"]["realised_fdr"]["0.5"]["recall"] <= high


def test_a_rate_without_a_call_is_none(figures):
    assert figures["500"]["realised_fdr"]["0.1"] is None
    assert figures["10000"]["realised_fdr"]["0.1"]["recall"] > 0.9


def test_a_kingdom_of_one_group_has_no_interval(figures):
    kingdoms = figures["500"]["auroc_of_kingdom"]
    assert set(kingdoms) == {"plant", "fungi"}
    assert "auroc_interval" in kingdoms["plant"]
    assert "auroc_interval" not in kingdoms["fungi"]
    assert (kingdoms["plant"]["groups"], kingdoms["fungi"]["groups"]) == (5, 1)
