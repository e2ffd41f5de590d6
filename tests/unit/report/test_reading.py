"""Tables of a run, read in blocks: equal to the lines of the file, damage is an error."""

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.errors import StoreError, UsageError
from virnucpro.report.reading import records as reading
from virnucpro.report.reading.records import find_record, read_tracks
from virnucpro.tables import read
from virnucpro.tables.columns import Predictions, RegionTable, Windows
from virnucpro.tables.read import ComputedTable, StoredTable, joined
from virnucpro.tables.write import write_table

COLUMNS = ["seq_name", "length", "n_windows", "n_scored", "score", "call", "status"]
COLUMNS += ["probability", "file", "record", "reason", "topology", "flags"]
HOSTILE = ["<script>alert(1)</script>", '"quoted"', "naïve_Ж", "a'b&c", "%1B[31m", "x" * 5_000]


def row(name="r", length=900, n=2, score="0.5000", call="viral", file="a.fa", record=1):
    return [name, length, n, n, score, call, "scored", score, file, record, "NA", "NA", "NA"]


def write(folder, rows, columns=COLUMNS):
    lines = ["\t".join(map(str, cells)) for cells in [columns, *rows]]
    path = folder / "predictions.tsv"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def read_records(path):
    return reading.read_records(StoredTable(Predictions, path))


@pytest.fixture(params=[2, 1 << 14])
def lines_at_once(request, monkeypatch):
    monkeypatch.setattr(read, "_LINES_AT_ONCE", request.param)


@pytest.mark.usefixtures("lines_at_once")
def test_records_are_read_as_they_stand_in_the_file(tmp_path):
    rows = [row(name, 100 * n, n, call="viral", record=n) for n, name in enumerate(HOSTILE)]
    rows += [row("none", 5, 0, "NA", "not_scored", "b\N{GREEK SMALL LETTER ALPHA}.fa")]
    table = read_records(write(tmp_path, rows))
    assert len(table) == 7
    assert table.numbers["length"].tolist() == [0, 100, 200, 300, 400, 500, 5]
    assert np.isnan(table.numbers["score"][-1])
    assert table.words["call"].counts() == {"viral": 6, "not_scored": 1}
    assert table.words["file"].names == ("a.fa", "b\N{GREEK SMALL LETTER ALPHA}.fa")
    order = [6, 0, 5, 2, 2]
    assert table.table.rows(np.array(order), ("seq_name",))["seq_name"] == [
        "none" if n == 6 else HOSTILE[n] for n in order
    ]


def test_a_table_without_rows_has_no_records(tmp_path):
    table = read_records(write(tmp_path, []))
    assert len(table) == 0
    assert not table.calibrated


@pytest.mark.parametrize(
    ("rows", "columns", "words"),
    [
        ([row()[:-1]], COLUMNS, "line 2 has not 13 cells"),
        ([row(length="long")], COLUMNS, "column length"),
        ([row(call="perhaps")], COLUMNS, "unknown call 'perhaps'"),
        ([], [COLUMNS[0], *COLUMNS[2:]], "no column length"),
    ],
)
def test_a_damaged_table_is_an_error_with_a_next_step(rows, columns, words, tmp_path):
    with pytest.raises(StoreError, match=words) as caught:
        read_records(write(tmp_path, rows, columns))
    assert f"virnucpro aggregate {tmp_path}" in str(caught.value)


WINDOW_COLUMNS = "seq_name\twindow\tstart\tend\tscore\n"


@given(st.lists(st.integers(0, 4), min_size=1, max_size=9), st.randoms(use_true_random=False))
def test_the_windows_of_some_records_are_those_of_the_whole_table(tmp_path_factory, counts, dice):
    folder = tmp_path_factory.mktemp("run")
    names = [dice.choice(["same", "ä", "long" * 9]) for _ in counts]
    table = read_records(
        write(folder, [row(name, 500 * n, n) for name, n in zip(names, counts, strict=True)])
    )
    path = folder / "windows.tsv"
    lines = [
        f"{name}\tw\t{500 * k + 1}\t{500 * k + 500}\t{'NA' if k == 3 else f'{k / 10:.4f}'}\n"
        for name, n in zip(names, counts, strict=True)
        for k in range(n)
    ]
    path.write_text(WINDOW_COLUMNS + "".join(lines), encoding="utf-8")
    chosen = [number for number, n in enumerate(counts) if n]
    if not chosen:
        return
    dice.shuffle(chosen)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "_BYTES_AT_ONCE", 7)
        tracks = read_tracks(StoredTable(Windows, path), table, np.array(chosen, np.int64))
    for number, track in zip(chosen, tracks, strict=True):
        n = counts[number]
        assert track["start"].tolist() == [500 * k + 1 for k in range(n)]
        expected = [np.nan if k == 3 else k / 10 for k in range(n)]
        np.testing.assert_array_equal(track["score"], expected)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no column"),
        ("seq_name\nr\nr\n", "has no column"),
        (WINDOW_COLUMNS, "fewer rows"),
        (WINDOW_COLUMNS + "r\tw\t1\t500\t0.5\nother\tw\t2\t3\t0.5\n", "do not belong"),
        (WINDOW_COLUMNS + "r\tw\t1\t500\t0.5\nr\tw\tone\t3\t0.5\n", "invalid literal"),
    ],
)
def test_windows_of_another_table_are_an_error(text, words, tmp_path):
    table = read_records(write(tmp_path, [row()]))
    path = tmp_path / "windows.tsv"
    path.write_text(text)
    with pytest.raises(StoreError, match=words):
        read_tracks(StoredTable(Windows, path), table, np.array([0]))


def test_columns_are_read_by_their_names(tmp_path):
    path = tmp_path / "regions.tsv"
    names = ("seq_name", "start", "end", "state")
    path.write_text("state\tend\tstart\tseq_name\tmore\nviral\t90\t11\tr\tx\n")
    block = joined(StoredTable(RegionTable, path).blocks(names))
    assert [list(values) for values in block.values()] == [["r"], [11], [90], ["viral"]]
    path.write_text("seq_name\tstart\tend\tstate\nr\tx\t1\tviral\n")
    with pytest.raises(StoreError, match="invalid literal"):
        joined(StoredTable(RegionTable, path).blocks(names))


@pytest.mark.usefixtures("lines_at_once")
def test_a_record_is_found_by_name_file_and_number(tmp_path):
    rows = [row("a"), row("b", record=2), row("b", file="c.fa"), row("c", file="c.fa", record=2)]
    table = read_records(write(tmp_path, rows))
    assert find_record(table.table, "a") == 0
    assert find_record(table.table, "b", "c.fa") == 2
    assert find_record(table.table, "b", number=2) == 1
    assert find_record(table.table, None, "c.fa", 2) == 3
    with pytest.raises(UsageError, match=r"2 sequences named b; choose one of them:\n--file a.fa "):
        find_record(table.table, "b")
    with pytest.raises(UsageError, match="no sequence named aa: did you mean a"):
        find_record(table.table, "aa")


@pytest.fixture(scope="module")
def run(index_records, cover, scores_of):
    """Scores of records of one and several windows, and of none."""
    lengths = (400, 40, 0, 1_000, 200, 7)
    index = index_records([(f"r{number}", "ACG" * n) for number, n in enumerate(lengths)])
    scores = np.random.default_rng(0).random(index.n_items).tolist()
    scores[index.n_items // 2] = None
    return scores_of(index, cover(index, scores))


@pytest.mark.parametrize("table", [Predictions, Windows])
def test_a_table_in_memory_equals_its_file(run, tmp_path, table, monkeypatch):
    """So that the report of a run that was just computed equals a later one."""
    monkeypatch.setattr(read, "_FAR", 1)
    path, names = tmp_path / table.filename, [*table.columns]
    write_table(path, table, run)
    tables = (ComputedTable(table, path, run), StoredTable(table, path))
    assert_equal(*(joined(one.blocks(names)) for one in tables))
    numbers = np.array([3, 0, 5, 3])
    assert_equal(*(one.rows(numbers, names) for one in tables))


def assert_equal(block, other):
    assert block.keys() == other.keys()
    for name, values in block.items():
        assert isinstance(values, list) == isinstance(other[name], list)
        np.testing.assert_array_equal(values, other[name], err_msg=name)


def test_numbers_of_a_real_table_equal_those_that_csv_reads(run, tmp_path):
    for table in (Predictions, Windows):
        write_table(tmp_path / table.filename, table, run)
    table = read_records(tmp_path / "predictions.tsv")
    with (tmp_path / "windows.tsv").open() as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    (track,) = read_tracks(StoredTable(Windows, tmp_path / "windows.tsv"), table, np.array([3]))
    own = [float(one["score"]) for one in rows if one["seq_name"] == "r3" and one["score"] != "NA"]
    assert track["score"][np.isfinite(track["score"])].tolist() == own
    windows = np.diff(run.index.record_first_window)
    assert table.numbers["n_windows"].tolist() == windows.tolist()
