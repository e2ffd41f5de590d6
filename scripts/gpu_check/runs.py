"""Parts that start processes: the gpu tests, and whole runs, some of them under faults."""

import gc
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import h5py
import numpy as np
import torch
from gpu_check.commands import CommandError, running, virnucpro
from gpu_check.recorder import Recorder
from gpu_check.sizes import Setting
from gpu_check.weights import random_bundle, random_encoder
from soaking.checks import table_problems
from soaking.signals import wait_for_empty_session

from virnucpro.encoders.registry import load_encoder
from virnucpro.lab.validation.synthetic import synthetic_items
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.devices import gpu_facts, visible_gpus

_ROOT = Path(__file__).parents[2]

_RESIDUES = 166
"""Of the open frame of each record: a record fills one window of 500 bases."""

_ENOUGH_TOKENS = 2_048
"""Tokens of a batch that fits when memory is short; a GPU's first budget is 16,384."""

_MARGIN = 150 << 20
"""Bytes of device memory left beside that batch."""

_MOST_HELD = 300
"""MB of device memory by which two readings of the driver may differ."""

_PARTIAL = 2
"""Exit code of a run with a quarantined row."""

_MEMORY_LIMIT = """
import sys

if "--multiprocessing-fork" in sys.orig_argv:
    import torch
    from virnucpro.encoders.encoder import TorchEncoder

    encode = TorchEncoder.encode

    def limited(self, batch):
        if batch.total > {tokens}:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0")
        return encode(self, batch)

    TorchEncoder.encode = limited
"""
"""Content of a sitecustomize.py: workers' encoders raise for batches above {tokens} tokens."""

Run = dict[str, Any]


def check_tests(setting: Setting, recorder: Recorder) -> None:
    """Run the tests that are marked `gpu`; without one, their bodies run on the CPU."""
    report = setting.work / "tests.xml"
    files = [path for path in _ROOT.glob("tests/**/test_*.py") if "mark.gpu" in path.read_text()]
    command = ["pytest", *sorted(files), "-v", "-m", "gpu", "-W", "default"]
    command += ["-p", "no:cacheprovider", f"--rootdir={_ROOT}", f"--junitxml={report}"]
    command += [f"--basetemp={setting.work / 'pytest'}"]
    if find_spec("pytest_timeout") is None:  # its option in pyproject.toml is unknown then
        command += ["-o", "addopts=--import-mode=importlib"]
    recorder.step(f"pytest -m gpu, {len(files)} files")
    environment = {} if setting.gpu else {"VIRNUCPRO_GPU_TESTS": "cpu"}
    with running(setting, command, environment) as process:
        code = process.wait()
    if not report.is_file():
        raise CommandError(f"pytest ended with exit code {code}: see {setting.log}")
    (suite,) = ET.parse(report).getroot().iter("testsuite")  # noqa: S314 - our own file
    counts = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    recorder.figure("pytest -m gpu", **counts, exit_code=code)
    for case in suite.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            recorder.problem(f"failed: {case.attrib['classname']}::{case.attrib['name']}")
    recorder.require(code == 0, f"pytest ended with exit code {code}")
    ran = counts["tests"] - counts["skipped"]
    recorder.require(ran > 0, "every test was skipped")


def check_predict(setting: Setting, recorder: Recorder) -> None:
    """Predict with a random bundle; report the seconds of each stage and their shares."""
    sizes = setting.sizes
    recorder.step("writing the bundle")
    bundle = random_bundle(setting.work, sizes.nucleotide, sizes.proteins[-1])
    n_records = _records_for(setting, recorder)
    recorder.step(f"predicting {n_records:,} records")
    fasta, run = _write_records(setting.work / "predict.fa", n_records), setting.work / "predict"
    wall = virnucpro(setting, _predict(setting, fasta, bundle, run, 1))
    content = json.loads((run / "run" / "run.json").read_text())
    rank = _launch_of(run)["ranks"]["0"]
    encoders = rank["seconds"]["tokenise"] + rank["seconds"]["encode"]
    seconds = {"whole command": wall, "encoders": encoders, "index": content["seconds"]["index"]}
    seconds |= {f"worker: {stage}": spent for stage, spent in rank["seconds"].items()}
    seconds |= {"tables": content["seconds"]["outputs"]}
    for stage, spent in seconds.items():
        recorder.figure(stage, seconds=spent, share=spent / wall)
    recorder.figure("encoders", tokens=rank["tokens"], rows=rank["rows"])
    recorder.figure("encoders", rows_per_s=rank["rows"] / encoders, unused_room=rank["unused"])
    recorder.require(not rank["faults"], f"the worker failed: {rank['faults']}")


def _records_for(setting: Setting, recorder: Recorder) -> int:
    """Choose the number of records by the measured throughput of the larger encoder."""
    sizes, measured = setting.sizes, recorder.results.parts.get("throughput")
    rows = {} if measured is None else measured.figures
    rate = rows.get(f"{sizes.proteins[-1]} six-frame virnucpro", {}).get("tokens/s")
    if not isinstance(rate, float):
        return sizes.predict_records
    return max(10, int(sizes.predict_seconds * rate / _RESIDUES))


def check_two_ranks(setting: Setting, recorder: Recorder) -> None:
    """Compare the tables of two workers on one device with those of one worker."""
    reference, run = _reference_run(setting, recorder), setting.work / "two workers"
    environment = {}
    if setting.gpu:  # one card under two names: --devices refuses a name that is given twice
        entry, uuid = _first_gpu()
        other = uuid if uuid != entry else uuid[:-1]  # an abbreviated name is another name
        environment = {"CUDA_VISIBLE_DEVICES": f"{entry},{other}"}
    recorder.step("two workers on one device")
    virnucpro(setting, _run_command(setting, run, 2), environment)
    _record_run(recorder, run)
    workers = len(_launch_of(run)["ranks"])
    recorder.require(workers == 2, f"{workers} workers ran, not 2")
    _require_same_tables(recorder, reference, run)


def check_killed(setting: Setting, recorder: Recorder) -> None:
    """Kill a worker while it computes; check restart, tables, processes and device memory."""
    reference, run = _reference_run(setting, recorder), setting.work / "killed"
    before = _free_memory() if setting.gpu else 0
    recorder.step("a run whose worker is killed")
    with running(setting, ["virnucpro", *_run_command(setting, run, 1)]) as process:
        pid = _computing_worker(run, process)
        os.kill(pid, signal.SIGKILL)
        recorder.step(f"SIGKILL to worker {pid}")
        code = process.wait()
        left = wait_for_empty_session(process.pid, 3.0)
    held = (before - _free_memory()) / 1e6 if setting.gpu else 0.0
    attempts = _launch_of(run)["ranks"]["0"]["attempts"]
    recorder.figure(run.name, exit_code=code, attempts=attempts, device_memory_held_MB=held)
    recorder.require(code == 0, f"the run ended with exit code {code}")
    recorder.require(attempts == 2, f"the worker was started {attempts} times, not twice")
    recorder.require(not left, f"processes outlive the run: {left}")
    recorder.require(held < _MOST_HELD, f"{held:.0f} MB of device memory are not free again")
    _require_same_tables(recorder, reference, run)


def _computing_worker(run: Path, process: subprocess.Popen[bytes]) -> int:
    """Wait until a worker has done some rows and not all; return its process id.

    Raises
    ------
    CommandError
        When the run ends before.
    """
    while process.poll() is None:
        if (run / "run" / "status.json").is_file():
            rank = json.loads((run / "run" / "status.json").read_text())["ranks"].get("0", {})
            if 0 < rank.get("done", 0) < rank["total"]:
                return int(rank["pid"])
        time.sleep(0.05)
    raise CommandError("the run ended before its worker could be killed: too few records")


def check_memory(setting: Setting, recorder: Recorder) -> None:
    """Fill the device: batches must shrink, a long row be quarantined."""
    sizes = setting.sizes
    encoder = f"{random_bundle(setting.work, sizes.nucleotide, sizes.proteins[0])}/protein"
    proteins = synthetic_items(sizes.proteins_in_memory, "50-1000")["protein"]
    long = proteins[0] * (sizes.long_protein // len(proteins[0]))
    inputs = _write_fasta(setting.work / "short.faa", proteins)
    longer = _write_fasta(setting.work / "long.faa", [*proteins, long])
    plain, full = setting.work / "memory plain", setting.work / "memory full"
    recorder.step("embedding with all memory")
    virnucpro(setting, ["embed", inputs, "-e", encoder, "-o", plain, *_options(setting, 1)])
    held, environment = _fill_memory(setting, recorder)
    recorder.step("embedding with little memory")
    command = ["embed", longer, "-e", encoder, "-o", full, *_options(setting, 1)]
    virnucpro(setting, command, environment, _PARTIAL)
    del held
    batches = [
        json.loads((run / "run" / "run.json").read_text())["launches"][0]["ranks"]["0"]["batches"]
        for run in (plain, full)
    ]
    quarantined = (full / "quarantine.tsv").read_text().splitlines()[1:]
    cosine = _least_cosine(plain, full, len(proteins))
    recorder.figure("memory", batches=batches[1], least_cosine=cosine)
    recorder.figure("memory", quarantined=len(quarantined))
    recorder.require(batches[1] > batches[0], f"batches did not shrink: {batches}")
    expected = len(quarantined) == 1 and "out_of_memory" in quarantined[0]
    recorder.require(expected, f"quarantined: {quarantined}")
    recorder.require(cosine > 0.9999, f"vectors differ with little memory: cosine {cosine:.6f}")


def _fill_memory(setting: Setting, recorder: Recorder) -> tuple[object, dict[str, str]]:
    """Fill the device except for a small batch; return the filling tensor, and an environment.

    On a CPU the environment makes encoders raise above a number of tokens.
    """
    if not setting.gpu:
        (folder := setting.work / "limit").mkdir(exist_ok=True)
        (folder / "sitecustomize.py").write_text(_MEMORY_LIMIT.format(tokens=_ENOUGH_TOKENS // 2))
        return None, {"PYTHONPATH": f"{folder}:{os.environ['PYTHONPATH']}"}
    spec = random_encoder(setting.work, setting.sizes.proteins[0])
    encoder = load_encoder(spec, "cuda", setting.sizes.precision)
    (ids,) = encoder.tokenise([b"LAGVSERTIDPKQNFYMHWC" * 25])
    encoder.encode(encoder.collate([ids] * (_ENOUGH_TOKENS // len(ids)))).cpu()
    free, total = torch.cuda.mem_get_info()
    wanted = total - free + _MARGIN  # by another process, its context included
    del encoder
    gc.collect()
    torch.cuda.empty_cache()
    n_bytes = torch.cuda.mem_get_info()[0] - wanted
    recorder.figure("memory", left_GB=wanted / 1e9, held_GB=n_bytes / 1e9)
    return torch.empty(n_bytes, dtype=torch.uint8, device="cuda"), {}


def _first_gpu() -> tuple[str, str]:
    """Return the mask entry and the UUID of the first visible GPU."""
    return next(iter(visible_gpus(os.environ).items()))


def _free_memory() -> int:
    """Return the free bytes of the first GPU as its driver reports them, without a CUDA context."""
    return gpu_facts(_first_gpu()[1]).free_memory


def _least_cosine(one: Path, other: Path, n: int) -> float:
    """Return the least cosine of the first `n` vectors of two runs."""
    vectors = []
    for run in (one, other):
        with h5py.File(run / "embeddings.h5") as file:
            vectors.append(file["embeddings"][:n].astype(np.float64))
    left, right = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in vectors)
    return float((left * right).sum(1).min())


def _reference_run(setting: Setting, recorder: Recorder) -> Path:
    """Run one worker undisturbed, once; return the run's folder."""
    run = setting.work / "one worker"
    if not (run / "predictions.tsv").is_file():
        recorder.step("one worker, undisturbed")
        virnucpro(setting, _run_command(setting, run, 1))
    _record_run(recorder, run)
    return run


def _record_run(recorder: Recorder, run: Path) -> None:
    """Report a run's rows a second besides loading."""
    launch = _launch_of(run)
    load = max(rank["seconds"]["load"] for rank in launch["ranks"].values())
    rows = sum(rank["rows"] for rank in launch["ranks"].values())
    seconds = launch["seconds"]["ranks"]
    recorder.figure(run.name, seconds=seconds, load=load, rows_per_s=rows / (seconds - load))


def _require_same_tables(recorder: Recorder, expected: Path, found: Path) -> None:
    differences = list(table_problems(RunDirectory(expected), RunDirectory(found)))
    one, other = ((run / "predictions.tsv").read_bytes() for run in (expected, found))
    recorder.figure(found.name, differences=len(differences), same_bytes=one == other)
    for difference in differences[:5]:
        recorder.problem(difference)


def _run_command(setting: Setting, run: Path, ranks: int) -> list[str | Path]:
    """Make the command of the parts two_ranks and killed."""
    sizes = setting.sizes
    bundle = random_bundle(setting.work, sizes.nucleotide, sizes.proteins[0])
    fasta = _write_records(setting.work / "records.fa", sizes.records)
    return _predict(setting, fasta, bundle, run, ranks)


def _predict(
    setting: Setting, fasta: Path, bundle: Path, run: Path, ranks: int
) -> list[str | Path]:
    command = ["predict", fasta, "-b", bundle, "--published-files", "-o", run]
    return [*command, *_options(setting, ranks)]


def _options(setting: Setting, ranks: int) -> list[str]:
    devices = ",".join(map(str, range(ranks))) if setting.gpu else f"cpu:{ranks}"
    return [
        "--devices",
        devices,
        "--precision",
        setting.sizes.precision,
        "--force",
        "--embeddings",
        "fp16",
    ]


def _launch_of(run: Path) -> Run:
    launch: Run = json.loads((run / "run" / "run.json").read_text())["launches"][-1]
    return launch


def _write_records(path: Path, n: int) -> Path:
    return _write_fasta(path, synthetic_items(n, str(_RESIDUES))["nucleotide"])


def _write_fasta(path: Path, texts: Sequence[bytes]) -> Path:
    lines = (f">r{number}\n{text.decode()}\n" for number, text in enumerate(texts))
    path.write_text("".join(lines))
    return path
