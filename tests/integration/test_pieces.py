"""Records that are scored as wholes: their pieces are rows with a classifier of their own."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from cases import slow
from programs import run_captured, take_apart

from virnucpro.classifier.calibration import read_calibration
from virnucpro.classifier.head import load_head
from virnucpro.cli.main import main
from virnucpro.encoders.registry import load_encoder
from virnucpro.run.verify import verify_run
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.items import PIECE_ITEM

DATA = Path(__file__).parents[1] / "data"
TABLES = ("predictions.tsv", "tracks/windows.tsv", "regions.tsv")
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
def predict(bundle, computing_here):
    """Return a function that runs `predict`, and returns the exit code."""

    def run(folder, *options, program=None):
        words = ["predict", DATA / "example.fa", "-b", bundle.path, "-o", folder, "-q"]
        command = [*map(str, words), "--no-report", *options]
        if program:
            return run_captured(sys.executable, *program, *command, timeout=200).returncode
        with computing_here():
            return main(command)

    return run


@pytest.fixture(scope="module")
def undisturbed(predict, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    assert predict(folder, "--devices", "cpu:1", "--embeddings") == 0
    return folder


def content(folder):
    return [(folder / name).read_bytes() for name in TABLES]


def test_pieces_and_windows_are_scored_as_computed_apart(undisturbed, bundle, tables):
    index = SequenceIndex.open(undisturbed / "run" / "index")
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
    calls = tables(undisturbed / "tracks" / "windows.tsv")
    shares = [
        [float(one["score"]) for one in calls if one["seq_name"] == row["seq_name"]] for row in rows
    ]
    windows = np.array([np.mean(np.log(one) - np.log1p(np.negative(one))) for one in shares])
    calibration = read_calibration(bundle.calibration, "").records
    odds = calibration.log_odds(logit, windows, index.record_lengths)
    found = np.array([float(row["calibrated_probability"]) for row in rows])
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-odds)), atol=0.01)
    genes = [float(row["n_genes"]) for row in rows]
    facts = np.bincount(owner, vectors[:, head.n_inputs])
    assert genes == np.floor(facts).tolist()  # those of this bundle are no whole numbers


@pytest.mark.parametrize("workers", [2, slow(3)])
def test_tables_do_not_depend_on_the_number_of_workers(workers, predict, undisturbed, tmp_path):
    assert predict(tmp_path / "run", "--devices", f"cpu:{workers}") == 0
    assert content(tmp_path / "run") == content(undisturbed)
    assert not verify_run(RunDirectory(tmp_path / "run")).problems


def test_a_lost_or_flipped_segment_of_pieces_is_computed_again(predict, undisturbed, tmp_path):
    folder = tmp_path / "run"
    assert predict(folder, "--devices", "cpu:1") == 0
    index, run = SequenceIndex.open(folder / "run" / "index"), take_apart(folder)
    (_, lost), (_, flipped), *_ = sorted(run.segments())  # the longest rows come first
    assert index.kinds(np.arange(8)).tolist() == [PIECE_ITEM] * 8
    lost.unlink()
    flipped.write_bytes(flipped.read_bytes()[:-1] + b"x")
    assert main(["aggregate", str(folder)]) == 2
    assert "missing" in (folder / "predictions.tsv").read_text()
    assert (folder / "missing.tsv").exists()
    assert predict(folder, "--devices", "cpu:1", "--resume") == 0
    assert content(folder) == content(undisturbed)


@pytest.mark.slow
def test_a_piece_that_kills_its_worker_is_quarantined_alone(predict, undisturbed, tables, tmp_path):
    index = SequenceIndex.open(undisturbed / "run" / "index")
    piece = int(index.record_first_piece[1]) + 3
    (poison,) = index.sequences(index.piece_row[[piece]], "nucleotide")
    plan = {"point": "tokens", "how": "SIGSEGV", "rank": None, "times": None}
    plan |= {"poison": [poison.decode()], "fired": str(tmp_path / "fired")}
    program = (DATA / "faulty.py", json.dumps(plan))
    assert predict(tmp_path / "run", "--devices", "cpu:2", program=program) == 2
    (entry,) = tables(tmp_path / "run" / "quarantine.tsv")
    (name,) = index.piece_names(np.array([piece]))
    (start,), (end,) = index.piece_bounds(np.array([piece]))
    assert (entry["item"], entry["reason"]) == (name, "kills_process")
    assert (int(entry["start"]), int(entry["end"])) == (start + 1, end)
    before, after = (tables(one / "predictions.tsv") for one in (undisturbed, tmp_path / "run"))
    names = ("score", "status", "calibrated_probability")
    changed = [[one[n] == two[n] for n in names] for one, two in zip(before, after, strict=True)]
    assert changed == [[True, True, number != 1] for number in range(len(before))]
