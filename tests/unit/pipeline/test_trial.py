"""bf16 on a CPU that says it multiplies matrices of it: by the flags of this machine's stand-in."""

import re
import signal
import subprocess
import sys
from argparse import Namespace

import numpy as np
import pytest
import torch

from virnucpro.cli.launch import _prepared
from virnucpro.cli.main import main
from virnucpro.encoders.esm2_config import Esm2Config
from virnucpro.encoders.memory_needed import memory_wanted
from virnucpro.encoders.sizes import shapes_of
from virnucpro.errors import WorkerError
from virnucpro.pipeline import precision, trial
from virnucpro.pipeline.embed import embed_job
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.job import SilentReporter
from virnucpro.pipeline.manifest import read_manifest
from virnucpro.pipeline.precision import with_precision
from virnucpro.pipeline.predict import predict_job
from virnucpro.pipeline.trial import _patience, shortage, verdict
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime import cpu_facts
from virnucpro.runtime.deadlines import Deadlines
from virnucpro.runtime.status import WorkerState, WorkerStatus, after_exit

EXAMPLE = "tests/data/example.fa"

pytestmark = pytest.mark.usefixtures("importable")  # processes are spawned


class Heard(SilentReporter):
    """Keeps what it is told."""

    def __init__(self):
        self.stages, self.warnings = [], []

    def stage(self, text):
        self.stages.append(text)

    def warn(self, text):
        self.warnings.append(text)


@pytest.fixture(autouse=True)
def amx(monkeypatch, tmp_path):
    """Let the CPU have AMX, and every encoder be large."""
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nflags\t\t: fpu avx512_bf16 amx_bf16 amx_tile\n")
    monkeypatch.setattr(cpu_facts, "_CPUINFO", path)
    monkeypatch.setattr(precision, "_LARGE", 1)
    return path


@pytest.fixture
def wild(tmp_path, stand_ins):
    """Save an ESM-2 whose weights spread so far that attention hangs on the last bits of bf16.

    Its cosine is 0.979, its shift 0.64.
    """
    dice = np.random.default_rng(4)
    config = Esm2Config(4, 64, 4)
    tensors = {
        name: torch.from_numpy(dice.normal(0, 2, shape).astype(np.float32))
        if len(shape) == 2
        else torch.full(shape, float("norm" in name and name.endswith("weight")))
        for name, shape in (config.tensor_shapes() | config.frequency_shapes()).items()
    }
    stand_ins.save_checkpoint(tmp_path / "wild.pt", config, tensors)
    return tmp_path / "wild.pt"


def on_one_cpu(folder, **options):
    return Execution(folder, devices="cpu:1", threads=1, **options)


def test_bf16_is_taken_where_it_agrees_and_the_command_imports_no_torch(amx, tmp_path):
    program = f"""
import sys
from pathlib import Path
from virnucpro.cli.progress import CommandReporter
from virnucpro.pipeline import precision
from virnucpro.pipeline.execution import Execution
from virnucpro.pipeline.predict import predict_job
from virnucpro.runtime import cpu_facts
cpu_facts._CPUINFO, precision._LARGE = Path({str(amx)!r}), 1
execution = Execution(Path({str(tmp_path / "run")!r}), devices="cpu:1", threads=1)
reporter = CommandReporter(execution.outdir, None, quiet=False)
job = precision.with_precision(predict_job([{EXAMPLE!r}], precision="auto"), execution, reporter)
print(job.precision, "torch" in sys.modules, execution.outdir.exists())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "bf16 False False\n"
    assert re.fullmatch(r"\[virnucpro\] holding bf16 against fp32 .*\n", done.stderr)


def test_weights_that_bf16_cannot_hold_are_computed_with_at_fp32(tmp_path, wild, capsys):
    nothing = tmp_path / "nothing.fa"
    nothing.write_text(">a\n\n")
    command = ["embed", str(nothing), "-e", str(wild), "--devices", "cpu:1", "-t", "1", "-q", "-o"]
    assert main([*command, str(tmp_path / "auto")]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("[virnucpro] warning: bf16 does not agree with fp32 on this CPU (wild: ")
    assert "where cosine >= 0.999, shift <= 0.25 is tolerated): computing at fp32" in line
    assert line.endswith("--precision bf16 would insist on it.")
    assert main([*command, str(tmp_path / "told"), "--precision", "bf16"]) == 0
    assert capsys.readouterr().err == ""
    runs = [RunDirectory(tmp_path / name) for name in ("auto", "told")]
    assert [read_manifest(run).parameters["precision"] for run in runs] == ["fp32", "bf16"]


def test_an_instruction_that_is_missing_ends_the_trial_alone(
    tmp_path, wild, coordinator_workers, monkeypatch
):
    monkeypatch.setattr(trial, "hold_against_fp32", coordinator_workers.meet_an_unknown_instruction)
    heard = Heard()
    job = embed_job([EXAMPLE], encoder=wild, precision="auto")
    settled = with_precision(job, on_one_cpu(tmp_path / "run"), heard)
    assert settled.precision == "fp32"
    assert "could not be computed on this CPU (killed by SIGILL" in heard.warnings[0]


def test_weights_that_nobody_can_read_are_no_reason_to_take_fp32(tmp_path, wild):
    job = embed_job([EXAMPLE], encoder=wild, precision="auto")
    wild.write_bytes(wild.read_bytes()[:5000])
    with pytest.raises(WorkerError, match=r"BundleError: .*wild\.pt"):
        with_precision(job, on_one_cpu(tmp_path / "run"))


def test_without_memory_for_fp32_bf16_is_taken_and_a_launch_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(trial, "available_memory", lambda: 3 * 10**8)
    arguments = Namespace(outdir=tmp_path / "out", gpus="cpu:1", threads=1, quiet=True)
    assert _prepared(arguments, {})[1]["job"].precision == "bf16"
    (line,) = capsys.readouterr().err.splitlines()
    assert "without having been held against fp32" in line
    assert "0.5 GB of memory, and 0.3 GB are free" in line


def test_memory_is_wanted_for_the_largest_encoder_alone():
    encoders = predict_job([EXAMPLE]).encoders
    wanted = max(memory_wanted(shapes_of(spec), "fp32", "cpu") for spec in encoders)
    assert shortage(encoders, wanted) == ""
    assert shortage(encoders, wanted - 1)


def test_a_run_that_is_there_already_is_no_reason_to_try(tmp_path):
    run = tmp_path / "run"
    nothing = tmp_path / "nothing.fa"
    nothing.write_text(">a\nAC\n")
    command = ["predict", str(nothing), "-o", str(run), "-q", "--devices", "cpu:1"]
    assert main([*command, "--precision", "fp16"]) == 0
    heard, job = Heard(), predict_job(nothing, precision="auto")
    with_precision(job, on_one_cpu(run), heard)  # refused by whoever opens it
    resumed = with_precision(job, on_one_cpu(run, resume=True), heard)
    assert (resumed.precision, heard.stages) == ("fp16", [])


@pytest.mark.parametrize(
    ("place", "code", "problems", "wanted", "said"),
    [
        ((1,), 0, [], "bf16", ""),
        ((1,), 0, ["x: cosine 0.9"], "fp32", r"does not agree.*\(x: cosine 0.9\)"),
        ((), -signal.SIGKILL, [], "fp32", "killed by SIGKILL"),
        ((0,), -signal.SIGILL, [], "fp32", "bf16 could not be computed.*killed by SIGILL"),
        ((1,), -signal.SIGKILL, [], "bf16", "fp32, which could not be computed.*memory runs out"),
    ],
)
def test_bf16_is_taken_unless_it_failed_or_was_never_reached(place, code, problems, wanted, said):
    running = WorkerStatus(0, WorkerState.RUNNING, 1, 0.0, 0.0, place=place, returned=code == 0)
    found = verdict(after_exit(running, code, 1.0), problems)
    assert found.precision == wanted
    assert re.search(said, found.warning)
    assert bool(found.warning) == bool(said)


def test_a_stage_may_take_as_long_as_loading_and_a_batch_of_a_run():
    assert _patience(Deadlines(60.0, 20.0, 5.0)) == Deadlines(80.0, 80.0, 5.0)
    assert _patience(Deadlines(60.0, None, 5.0)) == Deadlines(None, None, 5.0)
