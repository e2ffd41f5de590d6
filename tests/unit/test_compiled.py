"""Compiled functions give the same bytes as those of NumPy."""

import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro import compiled as functions
from virnucpro.classifier import head, quality
from virnucpro.encoders.composition import features
from virnucpro.encoders.genes import words
from virnucpro.sequences.translation import genetic_code

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

motifs = ("ATG", "GTG", "TAA", "TAG", "TGA", "AGGAGG", "GCTGCAGAAAAA", "N", "NNN", "R", "a", "acg")
pieces = st.one_of(
    st.text("ACGT", max_size=40),
    st.sampled_from(motifs),
    st.builds(
        str.__mul__, st.sampled_from(("A", "GCA", "ATGGCA", "ACGTAC", "N")), st.integers(1, 99)
    ),
)
sequences = st.lists(pieces, max_size=60).map(lambda parts: "".join(parts).encode()[:4000])

repeats = st.builds(lambda part, times: (part * times).encode(), pieces, st.integers(1, 40))
"""Some of them just vary enough, or not."""

scores = np.random.default_rng(2).integers(-24, 40, (8, 128)).astype(np.int16)
scores[:, 64:] = 0


def by_numpy(module, function, *arguments):
    """Return the result of a function without the compiled ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "library", lambda: None)
        return function(*arguments)


def test_the_package_is_compiled_where_there_is_a_compiler():
    if shutil.which("cc") is not None:
        assert functions.library() is not None, "run pip install --editable ."


@needs_compiler
@given(st.lists(sequences, max_size=8), st.sampled_from((1, 4, 11)))
def test_features_of_windows(windows, number):
    code = genetic_code(number)
    expected = by_numpy(features, features.features, windows, code)
    assert features.features(windows, code).tobytes() == expected.tobytes()


@needs_compiler
@pytest.mark.parametrize("n_codons", [5_548, 6_000, 40_000])
def test_a_long_stretch_is_counted(n_codons):
    """The sum of its tie weights has no effect on the number of its codons."""
    windows = [b"ACG", b"GGC" * n_codons, b"TAAGGC"]
    found = features.features(windows, genetic_code(11))
    assert (
        found.tobytes()
        == by_numpy(features, features.features, windows, genetic_code(11)).tobytes()
    )
    place = features.NAMES.index("codons of the longest stretch of frame 0")
    assert found[1, place] == np.float32(n_codons / 100)


@needs_compiler
@given(st.lists(sequences, max_size=8))
def test_evidence_and_words_of_spans(spans):
    expected = by_numpy(words, words.scan, spans, scores)
    found = words.scan(spans, scores)
    assert np.array_equal(found.evidence, expected.evidence)
    pairs = [sorted(zip(one.owner, one.keys, strict=True)) for one in (found, expected)]
    assert pairs[0] == pairs[1]


@needs_compiler
def test_gelu():
    x = np.random.default_rng(1).normal(size=(300, 64)) * 4
    x[0, :5] = 0, -0.0, np.inf, -np.inf, np.nan
    with np.errstate(invalid="ignore"):
        assert head.gelu(x.copy()).tobytes() == by_numpy(head, head.gelu, x).tobytes()


@needs_compiler
def test_standardised_vectors():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(50, 33)).astype(np.float32) * 5
    x[0, :5] = 0, -0.0, np.inf, -np.inf, np.nan
    arguments = x, x[1].copy(), np.abs(x[2]) + np.float32(0.1)
    with np.errstate(invalid="ignore"):
        expected = by_numpy(head, head.standardised, *arguments)
        assert np.array_equal(head.standardised(*arguments), expected, equal_nan=True)


@needs_compiler
@given(st.lists(st.one_of(sequences, repeats), min_size=1, max_size=8))
def test_quality_of_records(samples):
    found, expected = quality._examine(samples), by_numpy(quality, quality._examine, samples)
    assert all(map(np.array_equal, found, expected))


@needs_compiler
def test_a_library_of_another_source_is_not_used(tmp_path, monkeypatch):
    (tmp_path / "other.c").write_text("int x;")
    monkeypatch.setattr(functions, "SOURCES", tmp_path)
    assert functions.library.__wrapped__() is None


@needs_compiler
@pytest.mark.parametrize("content", [None, b"", b"not a library", slice(20_000), slice(-1)])
def test_a_missing_or_damaged_library_is_not_used(tmp_path, monkeypatch, content):
    path = tmp_path / "functions.shared"
    if content is not None:
        path.write_bytes(
            content if isinstance(content, bytes) else functions.LIBRARY.read_bytes()[content]
        )
    monkeypatch.setattr(functions, "LIBRARY", path)
    assert functions.library.__wrapped__() is None
