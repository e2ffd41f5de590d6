"""Vectors of items, windows and sequences."""

import sys

import numpy as np
import pytest

import virnucpro

PROTEINS = [("p1", "MKV" * 20), ("p2", ""), ("p1", "MAAAW" * 9), ("p3", "MK")]


@pytest.fixture(scope="module")
def proteins(tmp_path_factory):
    outdir = tmp_path_factory.mktemp("embed") / "run"
    with pytest.warns(UserWarning, match="with the name of an earlier sequence: 1"):
        return virnucpro.embed(PROTEINS, "mini-deep/protein", outdir=outdir, threads=1)


def test_a_row_per_sequence_in_input_order(proteins):
    assert proteins.ids == ["p1", "p2", "p1", "p3"]
    assert proteins.matrix.shape == (4, proteins.views["protein"])
    assert proteins.matrix.dtype == np.float32
    assert proteins.found.tolist() == [True, False, True, True]
    assert np.isnan(proteins.matrix[1]).all()
    assert np.isfinite(proteins.matrix[proteins.found]).all()
    np.testing.assert_array_equal(np.asarray(proteins, np.float64), proteins.matrix)
    assert proteins[:2].ids == ["p1", "p2"]
    np.testing.assert_array_equal(np.asarray(proteins[:2]), proteins.matrix[:2])
    alone = virnucpro.embed([PROTEINS[2]], "mini-deep/protein", threads=1)
    np.testing.assert_allclose(alone.matrix[0], proteins.matrix[2], atol=1e-5)
    assert repr(proteins) == (
        f"<virnucpro.Embeddings: 4 x {proteins.matrix.shape[1]} float32, one per sequence, "
        "1 without a vector>"
    )
    alone.close()


def test_a_vector_per_residue():
    source = {"a": "MKVLAW", "empty": "", "b": "MK"}
    options = {"encoder": "mini-deep/protein", "threads": 1}
    with virnucpro.embed(source, **options, pooling="none") as each:
        items = virnucpro.read_embeddings(each)
    assert each.offsets.tolist() == [0, 6, 6, 8]
    assert each.found.tolist() == [True, False, True]
    assert [len(each[row]) for row in range(3)] == [6, 0, 2]
    assert items.ids == ["a", "b"]
    assert items.offsets.tolist() == [0, 6, 8]
    assert "3 x (residues x " in repr(each)
    np.testing.assert_array_equal(items[-1], each[2])
    for some, rows in ((each[1:], [1, 2]), (each[::-2], [2, 0])):
        assert some.ids == [each.ids[row] for row in rows]
        assert [len(one) for one in some] == [len(each[row]) for row in rows]
        np.testing.assert_array_equal(some[0], each[rows[0]])
        np.testing.assert_array_equal(some[1], each[rows[1]])
    assert len(each[3:]) == 0
    with pytest.raises(virnucpro.UsageError, match=r"use matrix, .* and offsets"):
        np.asarray(each)
    with virnucpro.embed(source, **options) as means:
        np.testing.assert_allclose(means[0], each[0].mean(axis=0), atol=1e-5)
    with virnucpro.embed(source, **options, layer=[0, -1], max_length=4, long="truncate") as layers:
        assert layers.matrix.shape[1] == 2 * means.matrix.shape[1]
    with pytest.raises(virnucpro.UsageError, match="one vector per row"):
        each.to_anndata()


def test_levels_are_means_over_items(run, pairs):
    items = virnucpro.read_embeddings(run)
    windows = virnucpro.read_embeddings(run.outdir, level="window")
    sequences = virnucpro.read_embeddings(run, level="sequence")
    assert windows.ids == list(virnucpro.read_windows(run)["window"])
    assert sequences.ids == [name for name, _ in pairs]
    for number, name in enumerate(sequences.ids):
        own = [row for row, item in enumerate(items.ids) if item.startswith(f"{name}_chunk_")]
        assert sequences.found[number] == bool(own)
        expected = items.matrix[own].mean(axis=0) if own else np.nan
        np.testing.assert_allclose(sequences.matrix[number], expected, rtol=1e-5)


@pytest.mark.parametrize("folder", ["run", None])
def test_items_of_frames_have_no_vector_of_whole_windows(folder, tmp_path):
    """The fallback scores a window without an open frame; its vector is of another model."""
    stops = "TAATTAATTAA" * 60
    source = [("stops", stops), ("open", "GCT" * 200)]
    outdir = folder and tmp_path / folder
    with virnucpro.classify(
        source, bundle="mini-deep", outdir=outdir, embeddings="fp32", threads=1
    ) as result:
        items = virnucpro.read_embeddings(result)
        sequences = virnucpro.read_embeddings(result, "sequence")
    whole = [name.endswith("W") for name in items.ids]
    assert any(whole)
    assert (items.found == ~np.array(whole)).all()
    assert (np.isnan(items.matrix).all(axis=1) == whole).all()
    assert sequences.found.tolist() == [False, True]
    assert {*items.views} == {"nucleotide", "protein"}


def test_large_matrices_are_mapped(proteins, monkeypatch):
    monkeypatch.setattr("virnucpro.api.embeddings._MAPPED_BYTES", 0)
    mapped = virnucpro.read_embeddings(proteins.outdir)
    assert isinstance(mapped.matrix, np.memmap)
    assert mapped.ids == ["p1", "p1", "p3"]
    np.testing.assert_array_equal(mapped.matrix, proteins.matrix[proteins.found])
    with pytest.raises(ValueError, match="read-only"):
        mapped.matrix[0] = 0
    temporary = virnucpro.embed(PROTEINS[:2], "mini-deep/protein", threads=1)
    temporary.close()
    assert np.isfinite(temporary.matrix[0]).all()


def test_anndata(proteins, needs):
    needs("anndata")
    table = proteins.to_anndata()
    assert table.X.shape == (3, proteins.matrix.shape[1])
    assert list(table.obs_names) == ["p1", "p1-1", "p3"]
    assert list(table.obs["name"]) == ["p1", "p1", "p3"]
    assert table.uns["virnucpro"]["level"] == "sequence"


def test_without_anndata_the_error_names_the_extra(proteins, monkeypatch):
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(virnucpro.UsageError, match=r"pip install 'virnucpro\[anndata\]'"):
        proteins.to_anndata()


def test_what_has_no_vectors_is_refused(tmp_path, run):
    with pytest.raises(virnucpro.UsageError, match="unknown level 'rows': give item, window"):
        virnucpro.read_embeddings(run, "rows")
    with pytest.raises(virnucpro.NotARunError):
        virnucpro.read_embeddings(tmp_path)
    with (
        virnucpro.classify([("a", "ACGT" * 30)], threads=1) as result,
        pytest.raises(virnucpro.RunError, match='classify again with embeddings="fp16"'),
    ):
        virnucpro.read_embeddings(result)


def test_options_of_the_pooling_are_checked_before_the_work(tmp_path):
    source, outdir = {"a": "MKVLAW"}, tmp_path / "run"
    for option in ({"pooling": "median"}, {"long": "chunk_mean"}, {"max_length": 2.5}):
        with pytest.raises(virnucpro.UsageError, match="give"):
            virnucpro.embed(source, "mini-deep/protein", outdir=outdir, **option)
    for layer in ("1", None, -2.0, True, [1.0]):
        with pytest.raises(virnucpro.UsageError, match=r"layer.*: give a whole number"):
            virnucpro.embed(source, "mini-deep/protein", outdir=outdir, layer=layer)
    assert not outdir.exists()
    with virnucpro.embed(source, "mini-deep/protein", layer=np.int64(0), threads=1) as first:
        assert first.found.all()
