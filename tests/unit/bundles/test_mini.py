import numpy as np
import pytest

from virnucpro.bundles.bundle import describe_bundle, open_bundle
from virnucpro.classifier.call_options import PRESETS
from virnucpro.classifier.head import load_head
from virnucpro.encoders.registry import load_encoder
from virnucpro.run.predict_job import FALLBACK

MAX_BYTES = 16_000_000


@pytest.fixture(scope="module")
def mini():
    return open_bundle("mini")


def test_mini_is_small(mini):
    assert sum(file.stat().st_size for file in mini.path.iterdir()) <= MAX_BYTES


def test_mini_scores_whole_windows_by_their_composition(mini):
    assert mini.name == FALLBACK
    assert mini.items == "window"
    assert [spec.architecture for spec in mini.encoders] == ["composition"]
    assert (mini.window, mini.tiling) == (500, "even")


def test_the_description_of_mini_has_the_thresholds_of_all_presets(mini):
    text = describe_bundle(mini)
    for name in PRESETS:
        viral = mini.calibration["presets"][name]["viral"]
        assert f"preset {name}: viral from a probability of {viral:.3f}" in text


@pytest.mark.parametrize("length", [60, 301, 500])
def test_scores_of_mini_are_probabilities_that_depend_on_the_window(mini, length):
    rng = np.random.default_rng(length)
    windows = [bytes(row) for row in rng.choice(list(b"ACGT"), size=(20, length)).astype(np.uint8)]
    (spec,) = mini.encoders
    encoder = load_encoder(spec)
    vectors = encoder.vectors(encoder.tokenise(windows))
    scores = load_head(mini.head).scores(vectors)
    assert vectors.shape == (20, spec.dim)
    assert len(np.unique(scores, axis=0)) == 20
    pairs, classes = scores[:, :2], scores[:, 2:]
    assert classes.shape[1] == len(mini.classes)
    np.testing.assert_allclose(pairs.sum(1), 1, rtol=1e-6)
    np.testing.assert_allclose(classes.sum(1), 1, rtol=1e-6)
    assert ((scores >= 0) & (scores <= 1)).all()
