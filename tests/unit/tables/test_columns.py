import dataclasses
import io
import unicodedata
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from programs import load_script
from samples import read_table

from virnucpro.api.tables import read_predictions
from virnucpro.classifier.calibration import Preset
from virnucpro.classifier.consensus import Call
from virnucpro.classifier.decision import Flag, Reason, RecordCalls
from virnucpro.tables import cells, write
from virnucpro.tables.columns import Missing, Predictions, Quarantine, Windows
from virnucpro.tables.published import PublishedConsensus, PublishedResults
from virnucpro.tables.write import write_table

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
seq_name	length	n_windows	n_scored	scored_fraction	score	call	status	best_window\
	probability	fdr	tier	evidence	reason	flags	likely_source\
	file	record	topology	calibrated_probability\
	n_genes	coding_density	strand_switches	viral_words
viral	12	1	1	1.0000	0.5455	ambiguous	scored	1-12\
	NA	NA	NA	frames	uncertain	NA	NA	records.fa	1	NA	NA	NA	NA	NA	NA
closed	24	1	0	0.0000	NA	not_scored	no_open_frame	NA\
	NA	NA	NA	NA	NA	NA	NA	records.fa	2	NA	NA	NA	NA	NA	NA
short	2	1	0	0.0000	NA	not_scored	too_short	NA\
	NA	NA	NA	NA	NA	NA	NA	records.fa	3	NA	NA	NA	NA	NA	NA
unknown	30	1	0	0.0000	NA	not_scored	ambiguous_bases	NA\
	NA	NA	NA	NA	NA	NA	NA	records.fa	4	NA	NA	NA	NA	NA	NA
viral	315	2	2	1.0000	0.1250	non-viral	scored	1-300\
	NA	NA	NA	frames	NA	NA	NA	records.fa	5	provirus_candidate	NA	NA	NA	NA	NA
cut	24	1	0	0.0000	NA	not_scored	quarantined	NA\
	NA	NA	NA	NA	NA	NA	NA	records.fa	6	NA	NA	NA	NA	NA	NA
lost	18	1	0	0.0000	NA	not_scored	missing	NA\
	NA	NA	NA	NA	NA	NA	NA	records.fa	7	NA	NA	NA	NA	NA	NA
empty	0	0	0	NA	NA	not_scored	too_short	NA\
	NA	NA	NA	NA	NA	NA	NA	records.fa	8	NA	NA	NA	NA	NA	NA
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
def run(index_records, cover, scores_of):
    """Scores and calls of a run with records of all statuses; record 5 has stretches."""
    index = index_records(RECORDS)
    first = index.window_first_item[index.record_first_window]
    virus = np.full(index.n_items, 0.25)
    virus[first[0]] = 0.9
    virus[first[4] : first[5]] = 0.125
    virus = virus.tolist()
    virus[int(first[6]) + 2] = None
    coverage = cover(index, virus, quarantined=range(first[5], first[6]))
    return scores_of(index, coverage, provirus=np.arange(index.n_records) == 4)


@pytest.mark.parametrize(("table", "text"), [(Predictions, PREDICTIONS), (Windows, WINDOWS)])
def test_a_table_has_a_row_for_each_record_or_window(run, tmp_path, table, text):
    write_table(tmp_path / "out.tsv", table, run)
    assert (tmp_path / "out.tsv").read_text() == text


def test_calls_are_written_with_names(run, scores_of, tmp_path):
    n = run.index.n_records
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
    calls = RecordCalls(
        call, probability, probability, fdr, tier, reason, flags, None, Preset(0.5, 0.5)
    )
    sources, classes = np.array([1, 0, 2, -1, 0] + [-1] * (n - 5)), ("host", "phage", "RNA virus")
    scores = scores_of(run.index, run.coverage, calls=calls, sources=sources, classes=classes)
    write_table(tmp_path / "out.tsv", Predictions, scores)
    names = ("probability", "fdr", "tier", "reason", "flags", "likely_source")
    found = [tuple(row[name] for name in names) for row in read_table(tmp_path / "out.tsv")]
    assert found == [
        ("0.9500", "0.0500", "conservative", "uncertain", "NA", "phage"),
        ("0.7500", "0.1500", "default", "too_short", "low_complexity", "host"),
        ("0.5000", "0.2700", "sensitive", "few_windows", "ambiguous_bases", "RNA virus"),
        ("0.2500", "0.3900", "NA", "NA", "unusual_gc", "NA"),
        ("0.0300", "0.5000", "NA", "low_complexity", "low_complexity,unusual_gc", "host"),
        *[("NA",) * 6] * (n - 5),
    ]


def test_whole_windows_are_in_the_tables_and_not_in_the_published_files(
    index_records, cover, scores_of, tmp_path
):
    index = index_records([("both", "GCC" * 104 + "TTAA" * 72)], fallback=True)
    assert index.item_names(np.arange(index.n_items))[-1] == "both_chunk_2W"
    coverage = cover(index, [0.25] * (index.n_items - 1) + [0.75])
    run = scores_of(index, coverage)
    write_table(tmp_path / "windows.tsv", Windows, run)
    rows = read_table(tmp_path / "windows.tsv")
    assert [(row["best_frame"], row["evidence"], row["n_items"]) for row in rows] == [
        ("F1", "frames", "6"),
        ("W", "composition", "1"),
    ]
    write_table(tmp_path / "out.tsv", Predictions, run)
    (row,) = read_table(tmp_path / "out.tsv")
    assert (row["evidence"], row["score"], row["best_window"]) == ("both", "0.5000", "301-600")
    write_table(tmp_path / "results.txt", PublishedResults, run)
    items = [one["Sequence_ID"] for one in read_table(tmp_path / "results.txt")]
    assert items == index.item_names(np.arange(index.n_items - 1))
    write_table(tmp_path / "consensus.csv", PublishedConsensus, run)
    assert [one["Modified_ID"] for one in read_table(tmp_path / "consensus.csv")] == [
        "both_chunk_1"
    ]


def test_records_without_results_are_listed_as_missing(run, tmp_path):
    write_table(tmp_path / "out.tsv", Missing, run)
    assert (tmp_path / "out.tsv").read_text() == (
        "seq_name\tlength\tn_windows\tn_missing\nlost\t18\t1\t1\n"
    )


def test_quarantined_items_are_listed_with_their_reasons(run, tmp_path):
    write_table(tmp_path / "out.tsv", Quarantine, run)
    rows = read_table(tmp_path / "out.tsv")
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
    unknown = dataclasses.replace(run, coverage=dataclasses.replace(run.coverage, reasons={}))
    write_table(tmp_path / "out.tsv", Quarantine, unknown)
    assert {row["reason"] for row in read_table(tmp_path / "out.tsv")} == {"NA"}


@pytest.mark.parametrize("rows_at_once", [1, 2, 3])
def test_tables_do_not_depend_on_the_size_of_blocks(run, tmp_path, monkeypatch, rows_at_once):
    def images():
        path = tmp_path / "out.tsv"
        for table in (Predictions, Windows, Quarantine):
            write_table(path, table, run)
            yield path.read_bytes()

    whole = list(images())
    monkeypatch.setattr(write, "_ROWS_AT_ONCE", rows_at_once)
    assert list(images()) == whole


def test_tables_without_records_have_only_a_header(index_records, cover, scores_of, tmp_path):
    index = index_records([])
    run = scores_of(index, cover(index, []))
    for table in (Predictions, Windows, Missing, Quarantine):
        path = tmp_path / table.filename
        write_table(path, table, run)
        assert path.read_text() == "\t".join(table.columns) + "\n"


NOT_IN_NAMES = " \t\n\r\v\f\0"
odd_names = st.lists(
    st.text(st.characters(exclude_characters=NOT_IN_NAMES, codec="utf-8"), min_size=1, max_size=12)
    | st.sampled_from(
        ['"', "'a", "=1+1", "NA", "#", "a,b", ">", "\x1c\x85", "\u2028", "\ufeff", "track1"]
    ),
    max_size=8,
)


@given(names=odd_names)
def test_any_name_is_one_cell_with_encoded_unsafe_characters(
    names, index_records, cover, scores_of, tmp_path_factory
):
    index = index_records([(name, OPEN) for name in names])
    coverage = cover(index, [0.5] * index.n_items)
    path = tmp_path_factory.mktemp("out") / "predictions.tsv"
    write_table(path, Predictions, scores_of(index, coverage))
    lines = io.StringIO(path.read_bytes().decode(), newline="\n").read().split("\n")
    assert lines.pop() == ""
    rows = [line.split("\t") for line in lines[1:]]
    assert [row[0] for row in rows] == [
        "".join(
            f"%{ord(one):X}"
            if not n and (one in "=+-@#" or name.startswith(("track", "browser")))
            else quote(one)
            if _is_encoded(one)
            else one
            for n, one in enumerate(name)
        )
        for name in names
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
SOME = [0.00005, 0.03125, 0.28125, 0.00035, 0.99995, 1.0, 0.0, -0.0, 1.00004]
"""Some of them are half-way between two texts in decimal notation only."""
NEAR = st.tuples(HALVES, st.integers(-3, 3)).map(lambda pair: pair[0] + pair[1] * 2**-53)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@given(values=st.lists(st.floats(0, 1) | st.floats(-1e9, 1e9) | HALVES | NEAR | st.just(np.nan)))
@example(values=SOME)
def test_numbers_are_rounded_to_four_decimals(kind, values):
    given_numbers = np.array(values, kind)
    texts = [f"{value:.4f}" for value in given_numbers.tolist()]
    wanted = ["NA" if text == "nan" else text for text in texts]
    assert cells.decimals(given_numbers) == wanted
    assert cells.rounded(given_numbers).tolist() == pytest.approx(
        [float(text) for text in texts], rel=0, abs=0, nan_ok=True
    )


def test_the_coding_density_of_overlapping_genes_is_at_most_one(monkeypatch):
    facts = {"gene codons": np.array([10.0, 50, 0]), "known bases": np.array([60.0, 140, 0])}
    monkeypatch.setattr(Predictions, "_fact", lambda _, name: facts[name])
    density = Predictions.columns["coding_density"].values(object.__new__(Predictions))
    np.testing.assert_array_equal(density, [0.5, 1, np.nan])


def test_the_page_of_columns_is_made_from_their_declarations():
    module = load_script("docs/columns")
    page = module.PAGE.read_text()
    assert page == module.updated(page), "run scripts/docs/columns.py"


@pytest.mark.usefixtures("one_process")
def test_file_names_are_encoded_once_and_alike_in_all_outputs(tmp_path, called, monkeypatch):
    monkeypatch.chdir(tmp_path)
    encoded = {
        "=cmd.fa": "%3Dcmd.fa", "a\tb.fa": "a%09b.fa", "a%09b.fa": "a%2509b.fa",
        "a b.fa": "a b.fa", "a%20b.fa": "a%2520b.fa",
    }  # fmt: skip
    for name in encoded:
        (tmp_path / name).write_text(">a\nACGT\n")
    words = ("predict", *(f"./{name}" for name in encoded), "-o", "run", "--extract", "not_scored")
    assert called(*words).returncode == 0
    assert [str(name) for name in read_predictions("run")["file"]] == [*encoded.values()]
    headers = (tmp_path / "run" / "not_scored.fasta").read_text().splitlines()[::2]
    shown = [header.partition(" file=")[2].partition(" ")[0] for header in headers]
    assert shown == [name.replace(" ", "%20") for name in encoded.values()]
