import numpy as np
import pytest

from virnucpro.bundles.bundle import describe_bundle, find_bundle, open_bundle
from virnucpro.classifier.call_options import PRESETS
from virnucpro.classifier.head import load_head
from virnucpro.encoders.registry import load_encoder
from virnucpro.run.predict_job import FALLBACK
from virnucpro.sequences.translation import genetic_code, peptide

MAX_BYTES = 16_000_000


@pytest.fixture(scope="module")
def mini():
    return open_bundle("mini")


@pytest.mark.parametrize("name", ["mini", "mini-deep"])
def test_embedded_bundles_are_small_enough_for_the_wheel(name):
    assert sum(file.stat().st_size for file in find_bundle(name).iterdir()) <= MAX_BYTES


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


@pytest.fixture(scope="module")
def deep():
    return open_bundle("mini-deep")


@pytest.fixture(scope="module")
def frames():
    rng = np.random.default_rng(0)
    # ACC and GGT codons alone: no stop in this frame, whatever the order
    codons = rng.choice([b"ACC", b"GGT", b"GAA", b"AAA"], size=(20, 166))
    return [b"".join(row) + b"A" for row in codons]


def test_mini_deep_has_two_encoders_and_windows_of_500(deep):
    assert [encoder.view for encoder in deep.encoders] == ["nucleotide", "protein"]
    assert (deep.window, deep.tiling) == (500, "even")


@pytest.mark.parametrize("length", [301, 499])
def test_vectors_and_scores_of_mini_deep_are_finite(deep, frames, length):
    bases = [frame[:length] for frame in frames]
    code = genetic_code(deep.genetic_code)
    views = {"nucleotide": bases, "protein": [peptide(frame, code) for frame in bases]}
    vectors = []
    for spec in deep.encoders:
        encoder = load_encoder(spec)
        vectors.append(encoder.vectors(encoder.tokenise(views[spec.view])))
        assert vectors[-1].shape == (len(bases), spec.dim)
    joined = np.concatenate(vectors, axis=1)
    scores = load_head(deep.head).scores(joined)
    assert np.isfinite(joined).all()
    assert np.isfinite(scores).all()
    assert len(np.unique(scores, axis=0)) == len(bases)


@pytest.mark.parametrize("length", ["300", "500"])
def test_mini_deep_beats_the_kmer_regression_on_unseen_families(deep, length):
    rated = deep.metrics["windows"][length]
    assert rated["auroc"] >= rated["kmer_auroc"]
    assert rated["auroc"] >= {"300": 0.73, "500": 0.77}[length]


def test_the_card_of_mini_deep_contains_the_figures_of_its_manifest(deep):
    card = (deep.path / "CARD.md").read_text()
    for rated in deep.metrics["windows"].values():
        for name in ("auroc", "f1", "scored", "kmer_auroc"):
            assert f"{rated[name]:.3f}" in card
    for rated in deep.metrics["records"].values():
        assert f"{rated['viral_right']:.3f}" in card
    assert f"seed: {deep.provenance['seed']}" in card
    assert deep.provenance["command"] in card


def test_the_family_of_the_demonstration_is_held_out(deep):
    assert deep.provenance["held_out_family"] == "Microviridae"
