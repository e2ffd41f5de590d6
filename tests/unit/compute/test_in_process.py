"""Runs in one process that keeps its models: their folders are like those of other runs."""

import json

import pytest
from samples import random_records

from virnucpro.compute.predict import predict, run_in_process
from virnucpro.joined import remove
from virnucpro.run.execution import Execution
from virnucpro.run.predict_job import predict_job
from virnucpro.run.reporter import Reporter
from virnucpro.run.run_progress import read_progress
from virnucpro.run.verify import verify_run
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime import gpu_coordinator
from virnucpro.runtime.devices import Device
from virnucpro.store.segment import read_segment
from virnucpro.store.writer import ShardWriter


@pytest.fixture(scope="module")
def models():
    from virnucpro.compute.rank_encoder import Models

    job = predict_job((), precision="fp32")
    return Models.of(job, "cpu")


def do(tmp_path, models, name, n_records, progressed=lambda: None):
    """Predict synthetic records in a folder."""
    path = tmp_path / f"{name}.fa"
    path.write_text(random_records(n_records, seed=name, most=60))
    folder = RunDirectory(tmp_path / name)
    execution = Execution(folder.root, threads=1, resume=True)
    job = predict_job((str(path),), precision="fp32")
    device, reporter = Device("cpu"), Reporter()
    return folder, run_in_process(job, execution, reporter, device, models, progressed)


def test_consecutive_runs_share_their_models(tmp_path, models):
    encoders = list(models.encoders)
    for name, n_records in (("one", 5), ("two", 70)):
        folder, (outcome, computed) = do(tmp_path, models, name, n_records)
        assert outcome.complete
        assert outcome.records == {"scored": n_records}
        assert computed == len(folder.segments()) > 0
        assert verify_run(folder).problems == ()
        progress = read_progress(folder)
        assert progress.state == "complete"
        assert progress.ranks["0"]["state"] == "succeeded"
        (launch,) = json.loads(folder.run_json.read_text())["launches"]
        assert launch["ranks"]["0"]["rows"] == progress.rows_total
    assert models.encoders == encoders


@pytest.mark.parametrize(
    ("error", "state", "line"),
    [
        (OSError, "failed", "worker 0 failed: OSError: the disk is gone; failed permanently; "),
        (SystemExit, "stopped", "the run was stopped by the disk is gone"),
    ],
)
def test_a_failed_run_is_recorded_and_resumed(models, monkeypatch, tmp_path, error, state, line):
    commit, folder = ShardWriter.commit, RunDirectory(tmp_path / "failing")

    def fail_at_the_third(self, segment):
        if segment.unit == 2:
            raise error("the disk is gone")
        return commit(self, segment)

    with monkeypatch.context() as patch:
        patch.setattr(ShardWriter, "commit", fail_at_the_third)
        with pytest.raises(error):
            do(tmp_path, models, "failing", 100)
    progress = read_progress(folder)
    assert (progress.state, progress.units_done) == ("incomplete", 2)
    assert progress.ranks["0"]["state"] == state
    assert "the disk is gone" in progress.ranks["0"]["reason"]
    (launch,) = json.loads(folder.run_json.read_text())["launches"]
    assert launch["ranks"]["0"]["state"] == state
    assert "the disk is gone" in launch["ranks"]["0"]["reason"]
    assert launch["seconds"]["ranks"] > 0
    log = (folder.logs / "coordinator.log").read_text()
    assert line in log
    assert "launch 1 ended after" in log

    _, (outcome, computed) = do(tmp_path, models, "failing", 100)
    assert outcome.complete
    assert computed == progress.units_total - 2 > 0
    launches = json.loads(folder.run_json.read_text())["launches"]
    assert [launch["n_units"] for launch in launches] == [computed + 2, computed]


def test_each_batch_is_a_heartbeat(tmp_path, models):
    heartbeats = []
    _, (_, computed) = do(tmp_path, models, "beats", 70, lambda: heartbeats.append(1))
    assert computed > 1
    # two encoders, each reports a batch at its start and at its end
    assert len(heartbeats) >= 4 * computed


def test_a_complete_run_is_surveyed_once_and_not_computed_again(tmp_path, models, monkeypatch):
    do(tmp_path, models, "same", 70)
    surveyed = []

    def counted(path, **options):
        surveyed.append(path)
        return read_segment(path, **options)

    monkeypatch.setattr("virnucpro.store.coverage.read_segment", counted)
    folder, (outcome, computed) = do(tmp_path, models, "same", 70)
    assert computed == 0
    assert outcome.complete
    assert len(json.loads(folder.run_json.read_text())["launches"]) == 1
    assert sorted(surveyed) == [path for _, path in folder.segments()]


def test_a_run_in_the_calling_process_leaves_it_as_it_was(tmp_path):
    """Models are loaded for the run; the number of threads stays that of the caller."""
    import torch

    (tmp_path / "in.fa").write_text(f">a\n{'GCT' * 200}\n")
    threads = torch.get_num_threads()
    execution = Execution(tmp_path / "run", devices="cpu", threads=threads + 1, in_process=True)
    outcome = predict(predict_job(tmp_path / "in.fa"), execution)
    assert outcome.complete
    progress = read_progress(RunDirectory(tmp_path / "run"))
    assert progress.ranks["0"]["state"] == "succeeded"
    assert torch.get_num_threads() == threads


@pytest.fixture
def refuses_ranks(monkeypatch):
    """Make the start of ranks an error."""

    def refuse(*_arguments, **_options):
        raise AssertionError("a rank is started")

    monkeypatch.setattr(gpu_coordinator, "GPUProcessCoordinator", refuse)


@pytest.mark.usefixtures("refuses_ranks")
def test_a_small_file_is_predicted_by_the_process_of_the_command(tmp_path, called):
    small, large = tmp_path / "small.fa", tmp_path / "large.fa"
    small.write_text(random_records(8, seed="small", most=60))
    done = called("predict", small, "-o", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    large.write_text(f">a\n{'ACGT' * 131_073}\n")
    started = [
        ("predict", large, "-o", tmp_path / "large"),
        ("predict", small, "-o", tmp_path / "given", "--devices", "cpu:1"),
        ("predict", small, "-o", tmp_path / "deep", "-b", "mini-deep"),
    ]
    (segment, *_) = RunDirectory(tmp_path / "run").segments()
    remove(segment[-1])
    started.append(("predict", small, "-o", tmp_path / "run", "--resume"))
    for command in started:
        with pytest.raises(AssertionError, match="a rank is started"):
            called(*command)


def test_an_input_that_cannot_be_read_is_named_not_measured(tmp_path, called):
    for name in ("x" * 5_000, "a\udcff", str(tmp_path)):
        done = called("predict", name, "-o", tmp_path / "run")
        assert done.returncode == 1
        assert "cannot be opened" in done.stderr or "is a directory" in done.stderr, done.stderr


def test_workers_take_over_a_small_run_whose_row_fails(tmp_path, called, monkeypatch):
    """A row that raises in the process of the command is isolated by workers, as in other runs."""
    small = tmp_path / "small.fa"
    small.write_text(random_records(8, seed="small", most=60))

    def fail(*_arguments):
        raise ValueError("of a row")

    monkeypatch.setattr("virnucpro.encoders.composition.encoder.features", fail)  # here alone
    done = called("predict", small, "-o", tmp_path / "run", "--no-report")
    assert done.returncode == 0, done.stderr
    assert "ValueError: of a row. Workers compute the rest of the run." in done.stderr
    launches = json.loads((tmp_path / "run" / "run" / "run.json").read_text())["launches"]
    states = [[rank["state"] for rank in launch["ranks"].values()] for launch in launches]
    assert states[0] == ["failed"]
    assert set(states[1]) == {"succeeded"}
