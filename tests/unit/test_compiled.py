"""Compiled functions give the same bytes as those of NumPy."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro import compiled as functions
from virnucpro.classifier import integer_network, quality
from virnucpro.encoders.composition import features
from virnucpro.encoders.genes import evidence
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


WITHOUT = {"plain": ("PLAIN",), "avx2": ("NO_VNNI",), "any": ()}


@pytest.fixture(scope="module", params=WITHOUT)
def products(request, tmp_path_factory):
    """The library, or a copy without instructions of certain processors."""
    without = WITHOUT[request.param]
    if not without:
        return functions.library()
    path = tmp_path_factory.mktemp("copy") / "functions.shared"
    source = functions.SOURCES / "classifier.c"
    flags = ("-O1", *(f"-D{name}" for name in without), "-shared", "-fPIC", "-ffp-contract=off")
    subprocess.run(["cc", *flags, source, "-o", path, "-lm"], check=True)
    found = ctypes.CDLL(path)
    found.virnucpro_products.argtypes = functions.library().virnucpro_products.argtypes
    found.virnucpro_products.restype = None
    return found


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
    expected = by_numpy(evidence, evidence.scan, spans, scores)
    found = evidence.scan(spans, scores)
    assert np.array_equal(found.evidence, expected.evidence)
    pairs = [sorted(zip(one.owner, one.keys, strict=True)) for one in (found, expected)]
    assert pairs[0] == pairs[1]


@needs_compiler
@pytest.mark.parametrize("n_known", [1, 2, 5000])
def test_words_are_found_in_a_table(n_known):
    rng = np.random.default_rng(5)
    ends = [0, 1, 2**14 - 1, 2**14, 2**32 - 2**14, 2**32 - 1]
    known = np.concatenate((ends, rng.integers(0, 2**32, 5000)))[-n_known:]
    keys = np.unique(known.astype(np.uint32))
    table = evidence.WordTable(keys, rng.integers(0, 12, len(keys)).astype(np.uint8))
    found = np.concatenate((ends, keys, keys ^ 1, rng.integers(0, 2**32, 90))).astype(np.uint32)
    owner = np.sort(rng.integers(0, 7, len(found)))
    counts = table.count(owner, found, 7)
    assert np.array_equal(counts, by_numpy(evidence, table.count, owner, found, 7))
    assert counts[:, 1:].sum() >= len(keys)


@needs_compiler
@pytest.mark.parametrize("width", [64, 33])
def test_standardised_vectors(width):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(50, width)).astype(np.float32) * 5
    mean, scale = x[1].copy(), np.abs(x[2]) + np.float32(0.1)
    for n_nan in (0, 1):
        x[0, : 4 + n_nan] = [0, -0.0, np.inf, -np.inf, np.nan][: 4 + n_nan]
        with np.errstate(invalid="ignore"):
            expected = by_numpy(integer_network, integer_network.standardised, x, mean, scale, 6.0)
            found = integer_network.standardised(x, mean, scale, 6.0)
        assert np.array_equal(found[0], expected[0])
        assert found[1] is expected[1] is bool(n_nan)


@needs_compiler
@pytest.mark.parametrize("width", [64, 33])
def test_hidden_layers(width):
    rng = np.random.default_rng(1)
    sums = rng.integers(-(2**31), 2**31, (300, width)).astype(np.int32)
    sums[0, :4] = 0, 1, 2**31 - 1, -(2**31)
    factor, bias = rng.normal(size=(2, width)) * [[6e-9], [2]]
    factor[:2] = 1e-7, -1
    expected = by_numpy(integer_network, integer_network.hidden, sums, factor, bias)
    found = integer_network.hidden(sums, factor, bias)
    assert found.tobytes() == expected.tobytes()
    assert found.max() == 16_383


@needs_compiler
@pytest.mark.parametrize("n_rows", [1, 2, 5, 8, 99])
@pytest.mark.parametrize(
    ("n_blocks", "n_inputs", "n_outputs"), [(1, 5, 3), (1, 904, 20), (2, 8, 16), (3, 2, 48)]
)
def test_sums_of_products(n_rows, n_blocks, n_inputs, n_outputs, products, monkeypatch):
    """Equal for numbers as large as can be."""
    monkeypatch.setattr(integer_network, "library", lambda: products)
    rng = np.random.default_rng(4)
    size = n_blocks * n_inputs
    matrix = np.zeros((size, n_blocks * n_outputs))
    for block in np.arange(n_blocks):
        rows, columns = (slice(block * n, (block + 1) * n) for n in (n_inputs, n_outputs))
        matrix[rows, columns] = rng.normal(size=(n_inputs, n_outputs))
    layer = integer_network._Layer.of(matrix, np.zeros(matrix.shape[1]), 16_383)
    assert len(layer.weight) == n_blocks
    x = np.zeros((n_rows, size + size % 2), np.int16)
    x[:, :size] = rng.integers(-16_383, 16_384, (n_rows, size))
    x[0, :size] = np.where(matrix[:, 0] > 0, 16_383, -16_383)
    found = layer.sums(x)
    assert np.array_equal(found, by_numpy(integer_network, layer.sums, x))
    assert found[0, 0] > 0


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
