"""Records that are scored as wholes: their pieces are rows with a classifier of their own."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from programs import run_captured

from virnucpro.classifier.calibration import read_calibration
from virnucpro.classifier.head import load_head
from virnucpro.encoders.registry import load_encoder
from virnucpro.run.verify import verify_run
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.items import PIECE_ITEM

DATA = Path(__file__).parents[1] / "data"
TABLES = ("predictions.tsv", "windows.tsv", "regions.tsv")
pytestmark = pytest.mark.timeout(220)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DATA))
        from record_bundle import save_record_bundle

        data = tmp_path_factory.mktemp("data")
        patch.setenv("VIRNUCPRO_DATA", str(data))  # `rescore` opens the run's bundle by its name
        yield save_record_bundle(data / "bundles" / "records")


@pytest.fixture(scope="module")
def predict(bundle):
    def run(folder, *options, fasta=DATA / "example.fa", program=("-m", "virnucpro")):
        command = ["predict", fasta, "-b", bundle.path, "-o", folder, "-q", "--no-report"]
        return run_captured(sys.executable, *program, *command, *options, timeout=200)

    return run


@pytest.fixture(scope="module")
def undisturbed(predict, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    done = predict(folder, "--devices", "cpu:1", "--embeddings")
    assert done.returncode == 0, done.stderr
    return folder


def content(folder):
    return [(folder / name).read_bytes() for name in TABLES]


def test_pieces_and_windows_are_scored_as_computed_apart(undisturbed, bundle, tables):
    index = SequenceIndex.open(undisturbed / "index")
    (spec,) = bundle.record.encoders
    encoder, head = load_encoder(spec), load_head(bundle.record.head)
    texts = index.sequences(index.piece_row, "nucleotide")
    vectors = encoder.vectors(encoder.tokenise(texts))
    scores = head.scores(vectors[:, : head.n_inputs]).astype(np.float64)
    owner = np.repeat(np.arange(index.n_records), np.diff(index.record_first_piece))
    lengths = np.array(list(map(len, texts)))
    assert np.bincount(owner, lengths).tolist() == index.record_lengths.tolist()
    assert lengths.max() <= 2_000
    logit = np.bincount(owner, lengths * np.log(scores[:, 1] / scores[:, 0]))
    logit /= index.record_lengths

    rows = tables(undisturbed / "predictions.tsv")
    calls = tables(undisturbed / "windows.tsv")
    shares = [
        [float(one["score"]) for one in calls if one["seq_name"] == row["seq_name"]] for row in rows
    ]
    windows = np.array([np.mean(np.log(one) - np.log1p(np.negative(one))) for one in shares])
    calibration = read_calibration(bundle.calibration, "").records
    odds = calibration.log_odds(logit, windows, index.record_lengths)
    found = np.array([float(row["calibrated_probability"]) for row in rows])
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-odds)), atol=0.01)
    genes = [float(row["n_genes"]) for row in rows]
    np.testing.assert_allclose(genes, np.bincount(owner, vectors[:, head.n_inputs]), atol=1e-3)


@pytest.mark.parametrize("workers", [2, 3])
def test_tables_do_not_depend_on_the_number_of_workers(workers, predict, undisturbed, tmp_path):
    done = predict(tmp_path / "run", "--devices", f"cpu:{workers}")
    assert done.returncode == 0, done.stderr
    assert content(tmp_path / "run") == content(undisturbed)
    assert not verify_run(RunDirectory(tmp_path / "run")).problems


def test_a_lost_or_flipped_segment_of_pieces_is_computed_again(predict, undisturbed, tmp_path):
    folder = tmp_path / "run"
    assert predict(folder, "--devices", "cpu:1").returncode == 0
    index, run = SequenceIndex.open(folder / "index"), RunDirectory(folder)
    (_, lost), (_, flipped), *_ = sorted(run.segments())  # the longest rows come first
    assert index.kinds(np.arange(8)).tolist() == [PIECE_ITEM] * 8
    lost.unlink()
    flipped.write_bytes(flipped.read_bytes()[:-1] + b"x")
    done = run_captured(sys.executable, "-m", "virnucpro", "aggregate", folder, timeout=200)
    assert done.returncode == 2, done.stderr
    assert "missing" in (folder / "predictions.tsv").read_text()
    assert (folder / "missing.tsv").exists()
    assert predict(folder, "--devices", "cpu:2", "--resume").returncode == 0
    assert content(folder) == content(undisturbed)


def test_a_piece_that_kills_its_worker_is_quarantined_alone(predict, undisturbed, tables, tmp_path):
    index = SequenceIndex.open(undisturbed / "index")
    piece = int(index.record_first_piece[1]) + 3
    (poison,) = index.sequences(index.piece_row[[piece]], "nucleotide")
    plan = {"point": "tokens", "how": "SIGSEGV", "rank": None, "times": None}
    plan |= {"poison": [poison.decode()], "fired": str(tmp_path / "fired")}
    program = (DATA / "faulty.py", json.dumps(plan))
    done = predict(tmp_path / "run", "--devices", "cpu:2", program=program)
    assert done.returncode == 2, done.stderr
    (entry,) = tables(tmp_path / "run" / "quarantine.tsv")
    (name,) = index.piece_names(np.array([piece]))
    (start,), (end,) = index.piece_bounds(np.array([piece]))
    assert (entry["item"], entry["reason"]) == (name, "kills_process")
    assert (int(entry["start"]), int(entry["end"])) == (start + 1, end)
    before, after = (tables(one / "predictions.tsv") for one in (undisturbed, tmp_path / "run"))
    names = ("score", "status", "calibrated_probability")
    changed = [[one[n] == two[n] for n in names] for one, two in zip(before, after, strict=True)]
    assert changed == [[True, True, number != 1] for number in range(len(before))]


def test_a_rescore_keeps_the_scores_of_pieces(bundle, undisturbed, tmp_path, tables):
    command = ["rescore", undisturbed, "-b", bundle.path, "-o", tmp_path / "again"]
    done = run_captured(sys.executable, "-m", "virnucpro", *command, timeout=200)
    assert done.returncode == 0, done.stderr
    before, after = (tables(one / "predictions.tsv") for one in (undisturbed, tmp_path / "again"))
    for one, other in zip(before, after, strict=True):
        names = ("likely_source", "n_genes", "viral_words")
        assert [one[name] for name in names] == [other[name] for name in names]
        name = "calibrated_probability"
        assert float(one[name]) == pytest.approx(float(other[name]), abs=0.01)
