"""SIGKILL of one rank: the others finish, the tables list the gaps, a resume fills them."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex

CAMPAIGNS = 20
IN_EVERY_RUN = 1
DEADLINE = 60.0
DEEP = ["--bundle", "mini-deep", "--no-fallback"]
"""A bundle that is slow enough for a kill in the middle of a run."""


@pytest.fixture(scope="module")
def many_fasta(tmp_path_factory):
    """Enough units for a kill in the middle of a run."""
    dice = random.Random(5)
    codons = [a + b + c for a in "ACGT" for b in "ACGT" for c in "ACGT"]
    coding = [codon for codon in codons if codon not in ("TAA", "TAG", "TGA")]
    path = tmp_path_factory.mktemp("input") / "many.fa"
    with path.open("w") as stream:
        for number in range(450):
            stream.write(f">r{number}\n{''.join(dice.choices(coding, k=dice.randint(60, 160)))}\n")
    return path


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, many_fasta):
    from virnucpro.cli.main import main

    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    command = ["predict", str(many_fasta), "-o", str(folder), *DEEP]
    assert main([*command, "--devices", "cpu:1", "-q"]) == 0
    return folder


def uncovered_records(folder):
    """Return the rows without a segment, from the files."""
    run = RunDirectory(folder)
    index = SequenceIndex.open(run.index)
    covered = np.zeros(index.n_rows, bool)
    for _, path in run.segments():
        with h5py.File(path) as file:
            covered[file["rows"][:]] = True
    open_items = np.flatnonzero(~covered[index.item_row])
    windows = np.searchsorted(index.window_first_item, open_items, side="right") - 1
    records = np.searchsorted(index.record_first_window, windows, side="right") - 1
    return set(index.record_names(records))


def kill_a_rank(folder, victim, after_units, later):
    """SIGKILL the victim some seconds after its shard has a number of segments."""
    run = RunDirectory(folder)
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        try:
            ranks = json.loads(run.status_json.read_bytes())["ranks"]
            pid = ranks[str(victim)]["pid"]
        except (FileNotFoundError, KeyError):
            pid = None
        if pid and len(list(run.shard(victim).glob("unit-*.h5"))) >= after_units:
            time.sleep(later)
            os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.002)
    pytest.fail(f"rank {victim} had fewer than {after_units} segments after {DEADLINE:.0f} s")


@pytest.mark.timeout(100)
@pytest.mark.parametrize(
    "campaign",
    [
        pytest.param(number, marks=() if number < IN_EVERY_RUN else pytest.mark.slow)
        for number in range(CAMPAIGNS)
    ],
)
def test_other_ranks_finish_and_a_resume_completes_the_run(
    campaign, many_fasta, undisturbed, tmp_path, virnucpro, tables, difference_of
):
    dice = random.Random(campaign)
    ranks = 3 if campaign % 10 == 0 else 2
    victim = dice.randrange(ranks)
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "virnucpro", "predict", many_fasta, "-o", folder, *DEEP]
    with subprocess.Popen(
        [*command, "--devices", f"cpu:{ranks}", "--max-restarts", "0", "--no-redeal"],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        kill_a_rank(folder, victim, dice.randrange(3), dice.uniform(0.0, 0.1))
        _, message = process.communicate(timeout=DEADLINE)
    assert process.returncode == 2, message
    assert "SIGKILL" in message

    status = json.loads((folder / "status.json").read_text())["ranks"]
    assert status[str(victim)]["exit"] == "SIGKILL"
    others = [one for rank, one in status.items() if int(rank) != victim]
    assert all(one["done"] == one["total"] > 0 for one in others)

    listed = [row["seq_name"] for row in tables(folder / "missing.tsv")]
    assert set(listed) == uncovered_records(folder)
    assert len(set(listed)) == len(listed)
    answers = tables(folder / "predictions.tsv")
    assert {row["seq_name"] for row in answers if row["status"] == "missing"} == set(listed)
    kept = {path: path.stat().st_mtime_ns for _, path in RunDirectory(folder).segments()}

    again = 3 if campaign % 10 == 1 else 1
    command = ("predict", many_fasta, "-o", folder, *DEEP, "--devices", f"cpu:{again}")
    done = virnucpro(*command, "--resume")
    assert done.returncode == 0, done.stderr
    assert difference_of(undisturbed, folder) == []
    assert not (folder / "missing.tsv").exists()
    assert all(path.stat().st_mtime_ns == written for path, written in kept.items())
