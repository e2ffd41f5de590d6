import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.tables.cells import shortest
from virnucpro.tables.published import PublishedConsensus, PublishedResults
from virnucpro.tables.write import write_table

OPEN = "GCC" * 4  # all six frames are open


@pytest.mark.shared
def test_scores_of_the_published_tool_give_its_files(
    shared, index_file, cover, scores_of, tmp_path
):
    reference = shared / "reference" / "published-tool"
    index = index_file(reference / "test_with_orfs.fa", window=500)
    results = (reference / "test_with_orfs_merged" / "prediction_results.txt").read_text()
    given_scores = np.array([line.split("\t")[2:] for line in results.splitlines()[1:]], np.float32)
    coverage = cover(index, [0.0] * index.n_items)
    coverage.scores[index.item_row] = given_scores

    write_table(tmp_path / "results.txt", PublishedResults, scores_of(index, coverage))
    assert (tmp_path / "results.txt").read_text() == results

    write_table(tmp_path / "consensus.csv", PublishedConsensus, scores_of(index, coverage))
    lines = (tmp_path / "consensus.csv").read_text().splitlines()
    consensus = reference / "test_with_orfs_merged" / "prediction_results_highestscore.csv"
    assert ["\t".join(line.split("\t")[:2]) for line in lines] == (
        consensus.read_text().splitlines()
    )
    assert lines[0].split("\t")[2:] == ["max_score_0", "max_score_1"]
    assert lines[2].split("\t")[2:] == ["0.5501341", "0.93954605"]


def test_equal_scores_are_others_for_items_and_virus_for_windows(
    index_records, cover, scores_of, tmp_path
):
    index = index_records([("tie", OPEN)])
    coverage = cover(index, [0.5] * index.n_items)
    write_table(tmp_path / "results.txt", PublishedResults, scores_of(index, coverage))
    write_table(tmp_path / "consensus.csv", PublishedConsensus, scores_of(index, coverage))
    assert (tmp_path / "results.txt").read_text().splitlines()[1] == (
        "tie_chunk_1F1\tothers\t0.5\t0.5"
    )
    assert (tmp_path / "consensus.csv").read_text().splitlines()[1:] == [
        "tie_chunk_1\tTrue\t0.5\t0.5"
    ]


def test_items_and_windows_without_scores_are_not_listed(index_records, cover, scores_of, tmp_path):
    index = index_records([("a", OPEN), ("b", "GCA" * 8)])
    virus = [0.75] * index.n_items
    virus[-1] = None
    coverage = cover(index, virus, quarantined=[0])
    write_table(tmp_path / "results.txt", PublishedResults, scores_of(index, coverage))
    names = [line.split("\t")[0] for line in (tmp_path / "results.txt").read_text().splitlines()]
    assert names[1:] == [
        name
        for item, name in enumerate(index.item_names(np.arange(index.n_items)))
        if index.item_row[item] not in {index.item_row[0], index.item_row[-1]}
    ]
    write_table(tmp_path / "consensus.csv", PublishedConsensus, scores_of(index, coverage))
    assert (tmp_path / "consensus.csv").read_text().splitlines()[1:] == [
        "a_chunk_1\tTrue\t0.25\t0.75"
    ]


def test_the_consensus_file_has_no_formulas(index_records, cover, scores_of, tmp_path):
    encoded = {
        "=1+1": "%3D1+1", "+a": "%2Ba", "-b": "%2Db", "@c": "%40c", "d=": "d=", "\x1be": "%1Be",
        "f,=1": "f,%3D1", ";-g": ";%2Dg", '"=h': '"%3Dh', "i-j": "i-j", "\u202ek": "%E2%80%AEk",
    }  # fmt: skip
    index = index_records([(name, OPEN) for name in encoded])
    coverage = cover(index, [0.75] * index.n_items)
    write_table(tmp_path / "consensus.csv", PublishedConsensus, scores_of(index, coverage))
    lines = (tmp_path / "consensus.csv").read_text().splitlines()[1:]
    assert [line.split("\t")[0] for line in lines] == [
        f"{name}_chunk_1" for name in encoded.values()
    ]


@given(values=st.lists(st.floats(0, 1, width=32), max_size=20))
def test_scores_are_written_as_their_shortest_exact_decimals(values):
    array = np.array(values, np.float32)
    texts = shortest(array)
    assert texts == [str(value) for value in array]
    np.testing.assert_array_equal(np.array(texts, np.float32), array)
