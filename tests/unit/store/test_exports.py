"""Copies of embeddings.h5 in other formats, read by the programs of these formats."""

import re
import sys

import h5py
import numpy as np
import pytest
import torch

from virnucpro.errors import UsageError
from virnucpro.store import exports
from virnucpro.store.exports import (
    file_name,
    open_stored,
    ordered_formats,
    require_formats,
    write_esm_files,
    write_h5ad,
    write_items,
    write_npy,
    write_parquet,
)

NAMES = ["a", "b/../c", "a", ".hidden", "missing", "naïve %2F\\"]
STATUS = [0, 0, 0, 0, 2, 0]
COUNTS = [3, 1, 2, 5, 0, 4]


@pytest.fixture(params=[False, True], ids=["pooled", "residues"])
def source(request, tmp_path, monkeypatch):
    """Write an embeddings.h5 of six items, which is read in several blocks; -> path, vectors."""
    monkeypatch.setattr(exports, "_BLOCK_BYTES", 24)
    values = np.random.default_rng(0).standard_normal((15 if request.param else 6, 4))
    values = values.astype(np.float16)
    with h5py.File(tmp_path / "embeddings.h5", "w") as file:
        file["sequence_ids"], file["files"] = NAMES, ["one.fa", "two.fa"]
        file["record"], file["file"] = [1, 2, 3, 1, 2, 3], np.array([0, 0, 0, 1, 1, 1], np.uint32)
        file["status"] = np.array(STATUS, np.uint8)
        file.attrs["layers"] = [2, 6]
        file.attrs["pooling"] = "none" if request.param else "mean"
        if request.param:
            file["residues"], file["offsets"] = values, np.cumsum([0, *COUNTS])
        else:
            values[4] = np.nan
            file["embeddings"] = values
    parts = np.split(values, np.cumsum(COUNTS)[:-1]) if request.param else list(values)
    return tmp_path / "embeddings.h5", values, parts


def test_numpy_and_the_table_of_items(source, tmp_path):
    path, values, parts = source
    with open_stored(path) as stored:
        assert len(list(stored.blocks())) > 1
        write_npy(tmp_path / "v.npy", stored)
        write_items(tmp_path / "items.tsv", stored)
    matrix = np.load(tmp_path / "v.npy", mmap_mode="r")
    assert matrix.dtype == np.float16
    np.testing.assert_array_equal(matrix, values)
    lines = [line.split("\t") for line in (tmp_path / "items.tsv").read_text().splitlines()]
    assert lines[0] == ["seq_name", "file", "record", "status", "start", "end"]
    assert [line[0] for line in lines[1:]] == NAMES
    assert lines[5][1:4] == ["two.fa", "2", "missing"]
    for line, part in zip(lines[1:], parts, strict=True):
        own = matrix[int(line[4]) : int(line[5])]
        np.testing.assert_array_equal(own, np.atleast_2d(part).reshape(-1, 4))


def test_parquet(source, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="install virnucpro[parquet]")
    path, _, parts = source
    with open_stored(path) as stored:
        write_parquet(tmp_path / "v.parquet", stored)
    # A thread of pyarrow may close a file that it has opened only after the end of the test.
    with (tmp_path / "v.parquet").open("rb") as stream:
        read = parquet.read_table(stream)
    table, about = read.to_pydict(), read.schema.metadata
    assert (about[b"layers"], b"outputs" in about) == (b"2,6", False)
    assert table["seq_name"] == NAMES
    assert table["file"] == ["one.fa"] * 3 + ["two.fa"] * 3
    assert table["status"] == [["done", "", "missing"][code] for code in STATUS]
    vectors = table["residues" if "residues" in table else "embedding"]
    for found, part in zip(vectors, parts, strict=True):
        np.testing.assert_array_equal(np.array(found, np.float32).ravel(), part.ravel())


@pytest.mark.parametrize("about", [{}, {"outputs": "pseudo_perplexity"}])
def test_vectors_of_no_layer_are_not_called_those_of_one(about, source, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="install virnucpro[parquet]")
    path, *_ = source
    with h5py.File(path, "r+") as file:
        del file.attrs["layers"], file.attrs["pooling"]
        file.attrs.update(about)
    with open_stored(path) as stored:
        write_parquet(tmp_path / "v.parquet", stored)
        with (tmp_path / "v.parquet").open("rb") as stream:
            found = parquet.read_schema(stream).metadata or {}
        assert {key.decode(): text.decode() for key, text in found.items()} == about
        if about and not stored.per_residue:
            write_h5ad(tmp_path / "v.h5ad", stored)
            with h5py.File(tmp_path / "v.h5ad") as file:
                names = file["var/_index"].asstr()[:].tolist()
            assert names == [f"pseudo_perplexity_{at}" for at in range(4)]


def test_anndata(source, tmp_path):
    path, values, _ = source
    with open_stored(path) as stored:
        if stored.per_residue:
            with pytest.raises(UsageError, match="one vector per sequence"):
                require_formats(["h5ad"], per_token=True)
            return
        write_h5ad(tmp_path / "v.h5ad", stored)
    with h5py.File(tmp_path / "v.h5ad") as file:
        assert file.attrs["encoding-type"] == "anndata"
        np.testing.assert_array_equal(file["X"][:], values.astype(np.float32))
        assert file["obs/_index"].asstr()[:].tolist() == NAMES
        assert file["var/_index"].asstr()[:].tolist() == [
            f"layer{n}_{i}" for n in (2, 6) for i in (0, 1)
        ]
    anndata = pytest.importorskip("anndata", reason="install anndata to read the file with it")
    with pytest.warns(UserWarning, match="names are not unique"):
        read = anndata.read_h5ad(tmp_path / "v.h5ad")
    assert read.obs_names.tolist() == NAMES
    assert read.obs["status"].tolist() == [["done", "", "missing"][code] for code in STATUS]
    np.testing.assert_array_equal(read.X, values.astype(np.float32))


def test_files_of_esm_extract(source, tmp_path):
    path, _, parts = source
    folder = tmp_path / "pt"
    folder.mkdir()
    (folder / "old.pt").touch()
    with open_stored(path) as stored:
        write_esm_files(folder, stored)
        key = "representations" if stored.per_residue else "mean_representations"
    names = ["a.pt", "b%2F..%2Fc.pt", "a%#2.pt", "%2Ehidden.pt", None, "na%C3%AFve %252F%5C.pt"]
    assert sorted(path.name for path in folder.iterdir()) == sorted(name for name in names if name)
    for name, label, part in zip(names, NAMES, parts, strict=True):
        if name is None:
            continue
        content = torch.load(folder / name, weights_only=True)
        assert content.keys() == {"label", key}
        assert content["label"] == label
        assert list(content[key]) == [2, 6]
        joined = torch.cat(list(content[key].values()), -1)
        assert joined.dtype == torch.float32
        np.testing.assert_array_equal(joined.numpy(), part.astype(np.float32))


def test_different_names_have_different_files():
    names = ["a", "a/b", "a%2Fb", "a%#1", ".a", "%2Ea", "x" * 300, "x" * 301, "é" * 100]
    files = [file_name(name) for name in names] + [file_name("a", 1)]
    assert len({*files}) == len(files)
    assert max(len(one.encode()) for one in files) < 255
    assert not any("/" in one or one.startswith(".") for one in files)


def test_formats_are_a_list():
    assert ordered_formats(["pt", "npy", "h5", "npy"]) == ("npy", "pt")
    with pytest.raises(UsageError, match="'csv': give h5, npy"):
        ordered_formats(["npy", "csv"])


@pytest.mark.parametrize(
    ("name", "package", "extra"), [("parquet", "pyarrow", "parquet"), ("pt", "torch", "models")]
)
def test_without_its_package_a_format_names_the_extra(monkeypatch, name, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    message = f"--format {name} needs {package}: pip install 'virnucpro[{extra}]'"
    with pytest.raises(UsageError, match=re.escape(message)):
        require_formats([name], per_token=False)
