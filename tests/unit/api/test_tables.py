"""Tables as DataFrames and as structured arrays."""

import math
from pathlib import Path

import numpy as np
import pytest

import virnucpro
from virnucpro.errors import NotARunError, RunError
from virnucpro.tables.columns import TABLES

EXAMPLE = Path(__file__).parents[2] / "data" / "example.fa"


def missing(value):
    return value is None or (isinstance(value, float) and math.isnan(value))


def test_a_table_has_the_cells_of_the_file(run, pairs, tables):
    table = virnucpro.read_predictions(run.outdir)
    assert len(table) == len(pairs)
    assert list(table["seq_name"]) == [name for name, _ in pairs]
    assert list(table["length"]) == [len(letters) for _, letters in pairs]
    assert table["length"].dtype == np.int64
    assert table["score"].dtype == np.float64
    assert table["call"][2] == "not_scored"
    assert math.isnan(table["score"][2])
    assert missing(table["best_window"][2])
    assert table["best_window"][0].startswith(("1-", "5", "8"))
    assert isinstance(table, np.ndarray) == (tables == "numpy")


@pytest.mark.parametrize("kind", ["predictions", "windows", "regions"])
def test_the_type_of_a_column_is_as_declared(kind, tables):
    with virnucpro.classify({"empty": "ACGT", "contig": "ACGTTGCAGG" * 90}, threads=1) as result:
        table = getattr(result, kind)
    (declared,) = (table for table in TABLES if table.filename == f"{kind}.tsv")
    types = {"integer": np.int64, "count": np.float64, "number": np.float64}
    for column in declared.columns.values():
        assert table[column.name].dtype == types.get(column.kind, object), column.name


def test_windows_are_in_input_order(run, tables):
    table = virnucpro.read_windows(run)
    assert list(table["window"])[:3] == ["NA_chunk_1", "NA_chunk_2", "NA_chunk_3"]
    assert table["start"][0] == 1


def test_regions_are_stretches_of_long_sequences(tables):
    with virnucpro.classify(EXAMPLE, threads=1) as result:
        regions = result.regions
    assert {*regions["seq_name"]} >= {"NC_045512.2"}
    assert {*regions["state"]} == {"viral", "non-viral"}
    assert regions["start"].dtype == np.int64
    assert regions["log_odds"].dtype == np.float64


def test_both_libraries_read_equal_cells(run, monkeypatch, needs):
    needs("pandas")
    frame = virnucpro.read_windows(run)
    monkeypatch.setattr("virnucpro.api.tables.find_spec", lambda _: None)
    array = virnucpro.read_windows(run)
    assert list(frame.columns) == list(array.dtype.names)
    for name in array.dtype.names:
        for one, other in zip(frame[name], array[name], strict=True):
            assert one == other or (missing(one) and missing(other))


def test_an_empty_file_gives_an_empty_table(tmp_path, tables):
    (tmp_path / "empty.fa").touch()
    with pytest.warns(UserWarning, match="inputs without sequences"):
        result = virnucpro.classify(tmp_path / "empty.fa", threads=1)
    with result:
        assert len(result.predictions) == len(result.windows) == len(result) == 0
        assert len(result.regions) == 0
        assert len(result.viral()) == 0
        assert "0 sequences: none" in result._repr_html_()


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(NotARunError, match="is not a run of virnucpro"):
        virnucpro.read_predictions(tmp_path)
    virnucpro.embed([("a", "ACGT" * 9)], "mini/nucleotide", outdir=tmp_path / "run", threads=1)
    with pytest.raises(RunError, match=r"read them with virnucpro.read_embeddings"):
        virnucpro.read_predictions(tmp_path / "run")


def test_a_file_in_a_missing_folder_is_refused(run, tmp_path):
    for write in (run.report, run.to_fasta):
        with pytest.raises(virnucpro.UsageError, match=f"there is no folder {tmp_path}/none"):
            write(tmp_path / "none" / "file")
