import dataclasses
import io
import unicodedata
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from virnucpro.classify.consensus import Thresholds, call_records, call_windows
from virnucpro.report import tsv
from virnucpro.report.tables import (
    write_missing,
    write_predictions,
    write_quarantine,
    write_windows,
)

OPEN = "GCC" * 4  # all six frames are open
CLOSED = "TTAA" * 6  # a stop in each of the six frames

RECORDS = [
    ("viral", OPEN),
    ("closed", CLOSED),
    ("short", "AC"),
    ("unknown", "N" * 30),
    ("viral", "GCC" * 105),
    ("cut", "GCA" * 8),
    ("lost", "GCAGCC" * 3),
    ("empty", ""),
]


PREDICTIONS = """\
seq_name	length	n_windows	n_scored	scored_fraction	score	call	status	best_window
viral	12	1	1	1.0000	0.5455	ambiguous	scored	1-12
closed	24	1	0	0.0000	NA	not_scored	no_open_frame	NA
short	2	1	0	0.0000	NA	not_scored	too_short	NA
unknown	30	1	0	0.0000	NA	not_scored	ambiguous_bases	NA
viral	315	2	2	1.0000	0.1250	non-viral	scored	1-300
cut	24	1	0	0.0000	NA	not_scored	quarantined	NA
lost	18	1	0	0.0000	NA	not_scored	missing	NA
empty	0	0	0	NA	NA	not_scored	too_short	NA
"""
WINDOWS = """\
seq_name	window	start	end	n_items	n_scored	score	call	status	best_frame
viral	viral_chunk_1	1	12	6	6	0.5455	viral	scored	F1
closed	closed_chunk_1	1	24	0	0	NA	not_scored	no_open_frame	NA
short	short_chunk_1	1	2	0	0	NA	not_scored	no_open_frame	NA
unknown	unknown_chunk_1	1	30	0	0	NA	not_scored	no_open_frame	NA
viral	viral_chunk_1	1	300	6	6	0.1250	non-viral	scored	F1
viral	viral_chunk_2	158	315	6	6	0.1250	non-viral	scored	F1
cut	cut_chunk_1	1	24	6	0	NA	not_scored	quarantined	NA
lost	lost_chunk_1	1	18	6	5	NA	not_scored	missing	NA
"""


@pytest.fixture(scope="module")
def run(index_records, cover):
    """Index, coverage, window calls and record calls of a run; each record has another status."""
    index = index_records(RECORDS)
    first = index.window_first_item[index.record_first_window]
    virus = np.full(index.n_items, 0.25)
    virus[first[0]] = 0.9
    virus[first[4] : first[5]] = 0.125
    virus = virus.tolist()
    virus[int(first[6]) + 2] = None
    coverage = cover(index, virus, quarantined=range(first[5], first[6]))
    windows = call_windows(
        index.window_first_item, index.item_row, coverage.scores, coverage.row_state
    )
    records = call_records(
        index.record_first_window, index.record_status, windows, Thresholds(0.6, 0.4)
    )
    return index, coverage, windows, records


def table(path):
    header, *rows = path.read_text().splitlines()
    names = header.split("\t")
    return [dict(zip(names, row.split("\t"), strict=True)) for row in rows]


def test_predictions_have_one_row_per_record(run, tmp_path):
    index, _, _, records = run
    write_predictions(tmp_path / "out.tsv", index, records)
    assert (tmp_path / "out.tsv").read_text() == PREDICTIONS


def test_windows_are_written_with_their_best_frames(run, tmp_path):
    index, _, windows, _ = run
    write_windows(tmp_path / "out.tsv", index, windows)
    assert (tmp_path / "out.tsv").read_text() == WINDOWS


def test_records_without_results_are_listed_as_missing(run, tmp_path):
    index, _, _, records = run
    write_missing(tmp_path / "out.tsv", index, records)
    assert (tmp_path / "out.tsv").read_text() == (
        "seq_name\tlength\tn_windows\tn_missing\nlost\t18\t1\t1\n"
    )


def test_quarantined_items_are_listed_with_their_reasons(run, tmp_path):
    index, coverage, _, _ = run
    write_quarantine(tmp_path / "out.tsv", index, coverage)
    rows = table(tmp_path / "out.tsv")
    assert rows[0] == {
        "seq_name": "cut",
        "item": "cut_chunk_1F1",
        "row": "12",
        "start": "1",
        "end": "24",
        "reason": "not_finite",
        "evidence": "2 of 3 numbers: inf",
    }
    assert {row["seq_name"] for row in rows} == {"cut"}


def test_an_unknown_reason_of_a_quarantine_is_na(run, tmp_path):
    index, coverage, _, _ = run
    write_quarantine(tmp_path / "out.tsv", index, dataclasses.replace(coverage, reasons={}))
    assert {row["reason"] for row in table(tmp_path / "out.tsv")} == {"NA"}


@pytest.mark.parametrize("rows_at_once", [1, 2, 3])
def test_tables_do_not_depend_on_the_size_of_blocks(run, tmp_path, monkeypatch, rows_at_once):
    index, coverage, windows, records = run

    def images():
        path = tmp_path / "out.tsv"
        write_predictions(path, index, records)
        yield path.read_bytes()
        write_windows(path, index, windows)
        yield path.read_bytes()
        write_quarantine(path, index, coverage)
        yield path.read_bytes()

    whole = list(images())
    monkeypatch.setattr(tsv, "_ROWS_AT_ONCE", rows_at_once)
    assert list(images()) == whole


def test_tables_without_records_have_only_a_header(index_records, cover, tmp_path):
    index = index_records([])
    coverage = cover(index, [])
    windows = call_windows(
        index.window_first_item, index.item_row, coverage.scores, coverage.row_state
    )
    records = call_records(index.record_first_window, index.record_status, windows, Thresholds())
    write_predictions(tmp_path / "predictions.tsv", index, records)
    write_windows(tmp_path / "windows.tsv", index, windows)
    write_missing(tmp_path / "missing.tsv", index, records)
    write_quarantine(tmp_path / "quarantine.tsv", index, coverage)
    for path in tmp_path.iterdir():
        assert path.read_text().count("\n") == 1


NOT_IN_NAMES = " \t\n\r\v\f\0"
odd_names = st.lists(
    st.text(st.characters(exclude_characters=NOT_IN_NAMES, codec="utf-8"), min_size=1, max_size=12)
    | st.sampled_from(['"', "'a", "=1+1", "NA", "#", "a,b", ">", "\x1c\x85", "\u2028", "\ufeff"]),
    max_size=8,
)


@settings(deadline=None, max_examples=40)
@given(names=odd_names)
def test_any_name_is_one_cell_with_encoded_control_characters(
    names, index_records, cover, tmp_path_factory
):
    index = index_records([(name, OPEN) for name in names])
    coverage = cover(index, [0.5] * index.n_items)
    windows = call_windows(
        index.window_first_item, index.item_row, coverage.scores, coverage.row_state
    )
    records = call_records(index.record_first_window, index.record_status, windows, Thresholds())
    path = tmp_path_factory.mktemp("out") / "predictions.tsv"
    write_predictions(path, index, records)
    lines = io.StringIO(path.read_bytes().decode(), newline="\n").read().split("\n")
    assert lines.pop() == ""
    rows = [line.split("\t") for line in lines[1:]]
    assert [row[0] for row in rows] == [
        "".join(quote(one) if _is_encoded(one) else one for one in name) for name in names
    ]
    assert {len(row) for row in rows} <= {len(lines[0].split("\t"))}


def _is_encoded(one: str) -> bool:
    """Return whether a character controls a terminal, a line's end or the direction of text."""
    return (
        unicodedata.category(one) in {"Cc", "Zl", "Zp"}
        or "\u202a" <= one <= "\u202e"
        or ("\u2066" <= one <= "\u2069")
    )


@given(values=st.lists(st.floats(0, 1, width=32) | st.just(float("nan")), max_size=20))
def test_numbers_are_rounded_to_four_decimals(values):
    for value, text in zip(
        values, tsv.decimals(np.array(values, np.float32))(slice(None)), strict=True
    ):
        if np.isnan(value):
            assert text == "NA"
        else:
            assert len(text) == 6
            assert abs(float(text) - value) <= 0.00005 + 1e-9
