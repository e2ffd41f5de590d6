"""Files of stretches: their values, and that readers of the formats read them."""

import numpy as np
import pytest

from virnucpro.classifier.regions import Regions
from virnucpro.classifier.run_scores import run_windows
from virnucpro.report.extract import RecordIds
from virnucpro.report.regions import write_bed, write_bedgraph, write_gff3
from virnucpro.tables.columns import RegionTable
from virnucpro.tables.write import write_table

CODING = "ACG"
LENGTH = 3000
NAMES = ["a", "b|c;d=e,f%&", ">odd:1", "a"]


@pytest.fixture(scope="module")
def index(index_records):
    dice = np.random.default_rng(3)
    bases = ["".join(dice.choice(list(CODING), LENGTH + 300 * number)) for number in range(4)]
    return index_records(list(zip(NAMES, bases, strict=True)))


@pytest.fixture(scope="module")
def regions():
    spans = [
        (0, 0, 900, False),
        (0, 900, 2100, True),
        (0, 2100, 3000, False),
        (1, 0, 3300, True),
        (2, 0, 3600, False),
        (3, 0, 300, True),
        (3, 300, 3900, False),
    ]
    record, start, end, viral = (np.array(column) for column in zip(*spans, strict=True))
    n_windows = (end - start) // 300
    score = np.linspace(0.1, 0.9, 7)
    return Regions(record, start, end, viral, n_windows, n_windows, score, score * 2, score)


def lines(path):
    return [line.split("\t") for line in path.read_text().splitlines()]


def test_the_table_has_all_stretches_with_their_edges(index, regions, cover, scores_of, tmp_path):
    run = scores_of(index, cover(index, [0.5] * index.n_items), regions=regions)
    write_table(tmp_path / "regions.tsv", RegionTable, run)
    header, *rows = lines(tmp_path / "regions.tsv")
    assert " ".join(header) == (
        "seq_name start end length state n_windows n_scored score log_odds probability "
        "start_edge end_edge file record"
    )
    assert " ".join(rows[1]) == (
        "a 901 2100 1200 viral 4 4 0.2333 0.4667 0.2333 boundary boundary records.fa 1"
    )
    assert rows[0][10:12] == ["record", "boundary"]
    assert rows[3][10:12] == ["record", "record"]
    assert [row[4] for row in rows].count("viral") == 3
    assert [row[-1] for row in rows] == ["1", "1", "1", "2", "3", "4", "4"]


def test_bed_has_the_viral_stretches_half_open(index, regions, tmp_path):
    write_bed(tmp_path / "regions.bed", RecordIds(index), regions)
    rows = lines(tmp_path / "regions.bed")
    assert [row[:3] for row in rows] == [
        ["records|a|1", "900", "2100"],
        ["b|c;d=e,f%&", "0", "3300"],
        ["records|a|4", "0", "300"],
    ]
    assert rows[0][3:] == ["records|a|1:901-2100", "233", ".", "4", "4", "0.2333", "0.4667"]


def test_gff3_is_read_by_gffutils(index, regions, tmp_path):
    gffutils = pytest.importorskip("gffutils", reason="pip install 'virnucpro[test]'")
    path = tmp_path / "regions.gff3"
    write_gff3(path, RecordIds(index), regions)
    text = path.read_text().splitlines()
    assert text[0] == "##gff-version 3"
    # Records of one name have different ids; reserved characters are escaped.
    assert text[1:4] == [
        "##sequence-region records|a|1 1 3000",
        "##sequence-region b|c%3Bd%3De%2Cf%25%26 1 3300",
        "##sequence-region records|a|4 1 3900",
    ]
    database = gffutils.create_db(str(path), ":memory:", merge_strategy="error")
    features = list(database.all_features(order_by="start"))
    assert len(features) == 3
    by_id = {one.id: one for one in features}
    assert by_id["region1"].featuretype == "proviral_region"
    assert by_id["region2"].featuretype == "viral_sequence"
    assert (by_id["region1"].start, by_id["region1"].end) == (901, 2100)
    assert by_id["region2"].attributes["Name"] == ["b|c;d=e,f%&:1-3300"]
    assert by_id["region3"].attributes["n_windows"] == ["1"]


def test_a_bedgraph_has_a_value_a_window_without_overlap(index, cover, tmp_path):
    dice = np.random.default_rng(1)
    scores = [None if share < 0.02 else share for share in dice.random(index.n_items).tolist()]
    calls = run_windows(index, cover(index, scores))
    write_bedgraph(tmp_path / "scores.bedgraph", RecordIds(index), calls)
    header, *rows = lines(tmp_path / "scores.bedgraph")
    assert header[0].startswith("track type=bedGraph ")
    assert len(rows) == np.isfinite(calls.score).sum() > 20
    previous = ("", 0)
    for name, start, end, score in rows:
        if name == previous[0] and int(start) > 0:
            assert int(start) >= previous[1]
        assert int(end) > int(start)
        assert 0 <= float(score) <= 1
        previous = (name, int(end))


def test_records_of_nine_windows_have_no_track(index_records, cover, tmp_path):
    index = index_records([("short", "ACG" * 900)])
    calls = run_windows(index, cover(index, [0.5] * index.n_items))
    write_bedgraph(tmp_path / "scores.bedgraph", RecordIds(index), calls)
    assert len(lines(tmp_path / "scores.bedgraph")) == 1
