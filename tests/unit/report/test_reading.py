"""Tables of a run, read in blocks, by rows and by columns: equal to their files."""

import csv

import numpy as np
import pytest

from virnucpro.errors import UsageError
from virnucpro.report.reading.records import find_record, read_records, read_tracks
from virnucpro.tables import read, write
from virnucpro.tables.columns import Predictions, Windows
from virnucpro.tables.read import RunTable, joined
from virnucpro.tables.write import write_table

LENGTHS = (400, 40, 0, 1_000, 200, 7)


@pytest.fixture(scope="module")
def run(index_records, cover, scores_of):
    """Scores of records of one and several windows, and of none."""
    index = index_records([(f"r{number}", "ACG" * n) for number, n in enumerate(LENGTHS)])
    scores = np.random.default_rng(0).random(index.n_items).tolist()
    scores[index.n_items // 2] = None
    return scores_of(index, cover(index, scores))


@pytest.fixture(params=[2, 1 << 14])
def rows_at_once(request, monkeypatch):
    monkeypatch.setattr(write, "_ROWS_AT_ONCE", request.param)


@pytest.mark.usefixtures("rows_at_once")
@pytest.mark.parametrize("table", [Predictions, Windows])
def test_a_table_equals_its_file(run, tmp_path, table, monkeypatch):
    monkeypatch.setattr(read, "_FAR", 1)
    path, names = tmp_path / table.filename, [*table.columns]
    write_table(path, table, run)
    with path.open() as stream:
        lines = list(csv.DictReader(stream, delimiter="\t"))
    block = joined(RunTable(table, run).blocks(names))
    for name in names:
        cells = [line[name] for line in lines]
        if isinstance(block[name], list):
            assert block[name] == cells
        else:
            numbers = [np.nan if cell == "NA" else float(cell) for cell in cells]
            np.testing.assert_array_equal(block[name], numbers, err_msg=name)
    numbers = np.array([3, 0, 5, 3])
    rows = RunTable(table, run).rows(numbers, names)
    for name in names:
        np.testing.assert_array_equal(rows[name], np.asarray(block[name])[numbers], err_msg=name)


def test_the_windows_of_some_records_are_those_of_the_whole_table(run):
    table = read_records(RunTable(Predictions, run))
    windows = RunTable(Windows, run)
    block = joined(windows.blocks(["seq_name", "start", "score"]))
    assert len(table) == len(LENGTHS)
    chosen = np.array([3, 0])
    for number, track in zip(chosen, read_tracks(windows, table, chosen), strict=True):
        own = np.array([name == f"r{number}" for name in block["seq_name"]])
        np.testing.assert_array_equal(track["start"], block["start"][own])
        np.testing.assert_array_equal(track["score"], block["score"][own])


def test_a_record_is_found_by_name_file_and_number(index_records, cover, scores_of):
    index = index_records([(name, "ACG" * 99) for name in "abbc"])
    table = RunTable(Predictions, scores_of(index, cover(index, [0.5] * index.n_items)))
    assert find_record(table, "a") == 0
    assert find_record(table, "b", number=3) == 2
    assert find_record(table, None, None, 4) == 3
    with pytest.raises(UsageError, match=r"2 sequences named b; choose one of them:\n--file "):
        find_record(table, "b")
    with pytest.raises(UsageError, match="no sequence named aa: did you mean a"):
        find_record(table, "aa")
