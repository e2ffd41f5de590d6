import os
import shutil
import signal
from pathlib import Path

import pytest

from virnucpro import bundles
from virnucpro.cli.main import main
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.job import SilentReporter
from virnucpro.pipeline.predict import predict_job
from virnucpro.pipeline.session import open_session
from virnucpro.runtime.signals import StopRequested

MINI = Path(bundles.__path__[0]) / "mini"


def test_an_error_prints_no_control_codes_that_came_from_elsewhere(capsys):
    assert main(["bundle", "show", "no\x1b[2J\rsuch"]) == 64
    told = capsys.readouterr().err
    assert r"no\x1b[2J\rsuch: there is no such bundle" in told


@pytest.mark.parametrize(
    "command",
    [
        ["bundle", "show", "nosuch"],
        ["bundle", "fetch", "nosuch"],
        ["bundle", "verify", "nosuch"],
        ["bench", "-m", "nosuch"],
        ["bench", "-b", "nosuch"],
        ["parity", "-b", "nosuch"],
        ["parity", "--device", "mps"],
        ["bench", "--device", "meta"],
        ["bundle", "verify", "mini", "--golden", "--device", "bogus"],
        ["predict", "x.fa", "-o", "nowhere", "-b", "nosuch"],
        ["embed", "x.fa", "-o", "nowhere", "-e", "nosuch/protein"],
        *(
            [*command, "-e", name]
            for command in (["embed", "x.fa", "-o", "nowhere"], ["parity"])
            for name in ("", "nosuch", "./nosuch.pt", "/nosuch/x.pt", "nosuch/protein", "mini/rna")
        ),
        ["parity", "-n", "99999999999999"],
        ["parity", "-n", "100001", "--fasta", "tests/data/example.fa"],
    ],
)
def test_names_that_nobody_knows_are_wrong_usage_and_told_in_a_line(command, capsys):
    assert main(command) == 64
    told = capsys.readouterr().err
    assert told.startswith("virnucpro: error: ")
    assert told.count("\n") == 1
    assert len(told) < 300


@pytest.mark.parametrize(
    "command",
    [
        "predict x.fa -o out -b",
        "predict x.fa -o",
        "predict -o out",
        "launch --input-dir . -o out -b",
        "launch -o out --input-dir",
        "parity -b",
        "bench -b",
        "bundle show",
        "bundle verify",
        "bundle pack -o out",
        "status",
        "verify",
        "aggregate",
    ],
)
def test_an_empty_name_is_not_the_folder_of_now(command, copied_mini, capsys, monkeypatch):
    """A script's variable that is not set, in a folder that is a bundle."""
    monkeypatch.chdir(copied_mini)
    before = sorted(copied_mini.iterdir())
    with pytest.raises(SystemExit) as stopped:
        main([*command.split(), ""])
    assert stopped.value.code == 64
    assert "is empty" in capsys.readouterr().err
    assert sorted(copied_mini.iterdir()) == before


@pytest.fixture
def copied_mini(tmp_path):
    return shutil.copytree(MINI, tmp_path / "mini")


@pytest.mark.parametrize("command", [["parity"], ["bench"], ["predict", "x.fa", "-o", "nowhere"]])
def test_more_threads_than_cpus_are_refused(command, capsys):
    """torch kills the process where the system has no thread left to give."""
    with pytest.raises(SystemExit) as stopped:
        main([*command, "-t", str(len(os.sched_getaffinity(0)) + 1)])
    assert stopped.value.code == 64
    assert "CPUs of this process" in capsys.readouterr().err


@pytest.mark.parametrize("lengths", ["100000000", "1-5001", "9" * 5000])
def test_lengths_that_take_all_memory_are_refused(lengths, capsys):
    assert main(["bench", "--lengths", lengths]) == 64
    told = capsys.readouterr().err
    assert "up to 5,000" in told
    assert len(told) < 250


@pytest.mark.parametrize("command", [["parity", "--fasta"], ["predict", "-q", "-o", "nowhere"]])
def test_an_input_that_is_not_there_is_named_and_that_is_all(
    command, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main([*command, str(tmp_path / "none.fa")]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "check the name" in told


def test_a_folder_that_is_no_bundle_is_told_without_advice_on_outputs(tmp_path, capsys):
    assert main(["predict", "x.fa", "-o", str(tmp_path / "run"), "-b", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "A bundle is a folder with a bundle.json" in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("place", ["", "none/mini.tar"])
def test_a_bundle_is_packed_into_a_file_of_a_folder_that_is_there(place, tmp_path, capsys):
    assert main(["bundle", "pack", "mini", "-o", str(tmp_path / place)]) == 64
    assert "folder" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_fewer_items_than_asked_for_are_told(tmp_path, capsys):
    path = tmp_path / "few.fa"
    path.write_text(">a\n" + "ATGGCTAGCAAAGGTAAACGT" * 4 + "\n")
    assert main(["parity", "--fasta", str(path), "-n", "50", "--device", "cpu"]) == 0
    assert "few.fa holds " in capsys.readouterr().err


@pytest.fixture
def begun(tmp_path):
    """Give the folder of a run of which nothing has been computed."""
    execution = Execution(tmp_path / "out" / "a.fa", devices="cpu:1")
    execution.outdir.parent.mkdir()
    with open_session(predict_job("tests/data/example.fa"), execution, SilentReporter()):
        return execution.outdir


@pytest.mark.parametrize(
    ("command", "step"),
    [
        (["aggregate", "{run}"], "outputs.write_outputs"),
        (
            ["launch", "--input-dir", ".", "-o", "{run}", "--gpus", "cpu"],
            "precision.with_precision",
        ),
    ],
)
def test_who_is_stopped_is_told_of_no_option_that_the_command_lacks(
    command, step, begun, capsys, monkeypatch
):
    def stop(*_):
        raise StopRequested(signal.SIGTERM)

    monkeypatch.setattr(f"virnucpro.pipeline.{step}", stop)
    assert main([part.format(run=begun) for part in command]) == 128 + signal.SIGTERM
    told = capsys.readouterr().err
    assert "epeat the command" in told
    assert "--" not in told


def test_what_aggregate_leaves_out_is_computed_by_the_runs_own_command(begun, capsys):
    assert main(["aggregate", str(begun)]) == 2
    assert "repeat the run's own command with --resume" in capsys.readouterr().err
