import dataclasses
import io
import unicodedata
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from virnucpro.classifier.consensus import Call, Thresholds, score_records
from virnucpro.classifier.decision import Decision, Flag, Reason, decide
from virnucpro.report import tsv
from virnucpro.report.published_files import write_consensus, write_results
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


NO_SOURCE = np.full(len(RECORDS), -1)

PREDICTIONS = """\
seq_name	length	n_windows	n_scored	scored_fraction	score	call	status	best_window\
	probability	fdr	tier	evidence	reason	flags	likely_source	file	record	topology
viral	12	1	1	1.0000	0.5455	ambiguous	scored	1-12\
	NA	NA	NA	frames	uncertain	NA	NA	records.fa	1	NA
closed	24	1	0	0.0000	NA	not_scored	no_open_frame	NA\
	NA	NA	NA	NA	NA	NA	NA	records.fa	2	NA
short	2	1	0	0.0000	NA	not_scored	too_short	NA\
	NA	NA	NA	NA	NA	NA	NA	records.fa	3	NA
unknown	30	1	0	0.0000	NA	not_scored	ambiguous_bases	NA\
	NA	NA	NA	NA	NA	NA	NA	records.fa	4	NA
viral	315	2	2	1.0000	0.1250	non-viral	scored	1-300\
	NA	NA	NA	frames	NA	NA	NA	records.fa	5	provirus_candidate
cut	24	1	0	0.0000	NA	not_scored	quarantined	NA\
	NA	NA	NA	NA	NA	NA	NA	records.fa	6	NA
lost	18	1	0	0.0000	NA	not_scored	missing	NA\
	NA	NA	NA	NA	NA	NA	NA	records.fa	7	NA
empty	0	0	0	NA	NA	not_scored	too_short	NA\
	NA	NA	NA	NA	NA	NA	NA	records.fa	8	NA
"""
WINDOWS = """\
seq_name	window	start	end	n_items	n_scored	score	call	status\
	best_frame	evidence	file	record
viral	viral_chunk_1	1	12	6	6	0.5455	viral	scored	F1	frames	records.fa	1
closed	closed_chunk_1	1	24	0	0	NA	not_scored	no_open_frame	NA	NA	records.fa	2
short	short_chunk_1	1	2	0	0	NA	not_scored	no_open_frame	NA	NA	records.fa	3
unknown	unknown_chunk_1	1	30	0	0	NA	not_scored	no_open_frame	NA	NA	records.fa	4
viral	viral_chunk_1	1	300	6	6	0.1250	non-viral	scored	F1	frames	records.fa	5
viral	viral_chunk_2	158	315	6	6	0.1250	non-viral	scored	F1	frames	records.fa	5
cut	cut_chunk_1	1	24	6	0	NA	not_scored	quarantined	NA	NA	records.fa	6
lost	lost_chunk_1	1	18	6	5	NA	not_scored	missing	NA	NA	records.fa	7
"""


@pytest.fixture(scope="module")
def run(index_records, cover, windows_of):
    """Index, coverage, calls of windows, and scores and calls of records of all statuses."""
    index = index_records(RECORDS)
    first = index.window_first_item[index.record_first_window]
    virus = np.full(index.n_items, 0.25)
    virus[first[0]] = 0.9
    virus[first[4] : first[5]] = 0.125
    virus = virus.tolist()
    virus[int(first[6]) + 2] = None
    coverage = cover(index, virus, quarantined=range(first[5], first[6]))
    windows = windows_of(index, coverage)
    records = records_of(index, windows)
    return index, coverage, windows, records, decide(records, Thresholds(0.6, 0.4))


def records_of(index, windows):
    lengths = index.window_ends - index.window_starts
    return score_records(index.record_first_window, index.record_status, windows, lengths)


def provirus_of(index):
    """Return True for record 5."""
    return np.arange(index.n_records) == 4


def write_plain_predictions(path, index, records):
    sources = np.full(index.n_records, -1)
    write_predictions(
        path,
        index,
        records,
        decide(records, Thresholds()),
        sources,
        (),
        provirus=provirus_of(index),
    )


def table(path):
    header, *rows = path.read_text().splitlines()
    names = header.split("\t")
    return [dict(zip(names, row.split("\t"), strict=True)) for row in rows]


def test_predictions_have_one_row_per_record(run, tmp_path):
    index, _, _, records, decision = run
    write_predictions(
        tmp_path / "out.tsv", index, records, decision, NO_SOURCE, (), provirus=provirus_of(index)
    )
    assert (tmp_path / "out.tsv").read_text() == PREDICTIONS


def test_windows_are_written_with_their_best_frames(run, tmp_path):
    index, _, windows, _, _ = run
    write_windows(tmp_path / "out.tsv", index, windows)
    assert (tmp_path / "out.tsv").read_text() == WINDOWS


def test_tables_of_version_1_lack_the_later_columns(run, tmp_path):
    index, _, windows, records, decision = run
    path = tmp_path / "out.tsv"
    for name, text in (("best_window", PREDICTIONS), ("best_frame", WINDOWS)):
        if name == "best_window":
            write_predictions(
                path,
                index,
                records,
                decision,
                NO_SOURCE,
                (),
                provirus=provirus_of(index),
                version=1,
            )
        else:
            write_windows(path, index, windows, version=1)
        rows = [line.split("\t") for line in text.splitlines()]
        n_columns = rows[0].index(name) + 1
        expected = ["\t".join(row[:n_columns]) for row in rows]
        assert path.read_text().splitlines() == expected


def test_a_decision_is_written_with_names(run, tmp_path):
    index, _, _, records, _ = run
    n = index.n_records
    tier, reason = np.zeros((2, n), np.uint8)
    flags = np.zeros(n, np.uint8)
    probability, fdr = np.full((2, n), np.nan)
    probability[:5], fdr[:5] = [0.95, 0.75, 0.5, 0.25, 0.03], [0.05, 0.15, 0.27, 0.39, 0.5]
    tier[:3] = [3, 2, 1]
    reason[[0, 1, 2, 4]] = [
        Reason.UNCERTAIN,
        Reason.TOO_SHORT,
        Reason.FEW_WINDOWS,
        Reason.LOW_COMPLEXITY,
    ]
    flags[1:5] = [
        Flag.LOW_COMPLEXITY,
        Flag.AMBIGUOUS_BASES,
        Flag.UNUSUAL_GC,
        Flag.LOW_COMPLEXITY | Flag.UNUSUAL_GC,
    ]
    call = np.full(n, Call.AMBIGUOUS, np.uint8)
    decision = Decision(call, probability, fdr, tier, reason, flags, 0.5)
    sources, classes = np.array([1, 0, 2, -1, 0] + [-1] * (n - 5)), ("host", "phage", "RNA virus")
    write_predictions(
        tmp_path / "out.tsv",
        index,
        records,
        decision,
        sources,
        classes,
        provirus=provirus_of(index),
    )
    names = ("probability", "fdr", "tier", "reason", "flags", "likely_source")
    found = [tuple(row[name] for name in names) for row in table(tmp_path / "out.tsv")]
    assert found == [
        ("0.9500", "0.0500", "conservative", "uncertain", "NA", "phage"),
        ("0.7500", "0.1500", "default", "too_short", "low_complexity", "host"),
        ("0.5000", "0.2700", "sensitive", "few_windows", "ambiguous_bases", "RNA virus"),
        ("0.2500", "0.3900", "NA", "NA", "unusual_gc", "NA"),
        ("0.0300", "0.5000", "NA", "low_complexity", "low_complexity,unusual_gc", "host"),
        *[("NA",) * 6] * (n - 5),
    ]


def test_whole_windows_are_in_the_tables_and_not_in_the_published_files(
    index_records, cover, windows_of, tmp_path
):
    index = index_records([("both", "GCC" * 104 + "TTAA" * 72)], fallback=True)
    assert index.item_names(np.arange(index.n_items))[-1] == "both_chunk_2W"
    coverage = cover(index, [0.25] * (index.n_items - 1) + [0.75])
    windows = windows_of(index, coverage)
    records = records_of(index, windows)
    write_windows(tmp_path / "windows.tsv", index, windows)
    rows = table(tmp_path / "windows.tsv")
    assert [(row["best_frame"], row["evidence"], row["n_items"]) for row in rows] == [
        ("F1", "frames", "6"),
        ("W", "composition", "1"),
    ]
    write_plain_predictions(tmp_path / "out.tsv", index, records)
    (row,) = table(tmp_path / "out.tsv")
    assert (row["evidence"], row["score"], row["best_window"]) == ("both", "0.5000", "301-600")
    write_results(tmp_path / "results.txt", index, coverage, ("others", "virus"))
    items = [one["Sequence_ID"] for one in table(tmp_path / "results.txt")]
    assert items == index.item_names(np.arange(index.n_items - 1))
    write_consensus(tmp_path / "consensus.csv", index, windows)
    assert [one["Modified_ID"] for one in table(tmp_path / "consensus.csv")] == ["both_chunk_1"]


def test_records_without_results_are_listed_as_missing(run, tmp_path):
    index, _, _, records, _ = run
    write_missing(tmp_path / "out.tsv", index, records)
    assert (tmp_path / "out.tsv").read_text() == (
        "seq_name\tlength\tn_windows\tn_missing\nlost\t18\t1\t1\n"
    )


def test_quarantined_items_are_listed_with_their_reasons(run, tmp_path):
    index, coverage, _, _, _ = run
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
    index, coverage, _, _, _ = run
    write_quarantine(tmp_path / "out.tsv", index, dataclasses.replace(coverage, reasons={}))
    assert {row["reason"] for row in table(tmp_path / "out.tsv")} == {"NA"}


@pytest.mark.parametrize("rows_at_once", [1, 2, 3])
def test_tables_do_not_depend_on_the_size_of_blocks(run, tmp_path, monkeypatch, rows_at_once):
    index, coverage, windows, records, decision = run

    def images():
        path = tmp_path / "out.tsv"
        write_predictions(
            path, index, records, decision, NO_SOURCE, (), provirus=provirus_of(index)
        )
        yield path.read_bytes()
        write_windows(path, index, windows)
        yield path.read_bytes()
        write_quarantine(path, index, coverage)
        yield path.read_bytes()

    whole = list(images())
    monkeypatch.setattr(tsv, "_ROWS_AT_ONCE", rows_at_once)
    assert list(images()) == whole


def test_tables_without_records_have_only_a_header(index_records, cover, windows_of, tmp_path):
    index = index_records([])
    coverage = cover(index, [])
    windows = windows_of(index, coverage)
    records = records_of(index, windows)
    write_plain_predictions(tmp_path / "predictions.tsv", index, records)
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
    names, index_records, cover, windows_of, tmp_path_factory
):
    index = index_records([(name, OPEN) for name in names])
    coverage = cover(index, [0.5] * index.n_items)
    windows = windows_of(index, coverage)
    records = records_of(index, windows)
    path = tmp_path_factory.mktemp("out") / "predictions.tsv"
    write_plain_predictions(path, index, records)
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


HALVES = st.integers(-3, 10_003).map(lambda number: (number + 0.5) / 10_000)
"""Numbers half-way between two texts."""
NEAR = st.tuples(HALVES, st.integers(-3, 3)).map(lambda pair: pair[0] + pair[1] * 2**-53)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@given(values=st.lists(st.floats(0, 1) | st.floats(-1e9, 1e9) | HALVES | NEAR | st.just(np.nan)))
def test_numbers_are_rounded_to_four_decimals(kind, values):
    given_numbers = np.array(values, kind)
    texts = [f"{value:.4f}" for value in given_numbers.tolist()]
    wanted = ["NA" if text == "nan" else text for text in texts]
    assert tsv.decimals(given_numbers)(np.arange(len(values))) == wanted


def test_rounding_is_that_of_the_exact_number():
    """Some of them are half-way between two texts in decimal notation only."""
    numbers = np.array([0.00005, 0.03125, 0.28125, 0.00035, 0.99995, 1.0, 0.0, -0.0, 1.00004])
    wanted = [f"{number:.4f}" for number in numbers.tolist()]
    assert tsv.decimals(numbers)(np.arange(len(numbers))) == wanted
