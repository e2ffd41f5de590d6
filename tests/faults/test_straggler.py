"""Row 3: another rank computes units of a slow one."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from virnucpro.pipeline.run.verify import verify_run
from virnucpro.run_dir import RunDirectory

pytestmark = pytest.mark.timeout(110)
FAULTY = Path(__file__).parents[1] / "data" / "faulty.py"
PREDICT = ["predict", "--embeddings=fp16", "--devices", "cpu:2", "--log-format", "json", "-q"]
PREDICT += ["--bundle", "mini-deep", "--no-fallback"]


@pytest.fixture(scope="module")
def fasta(tmp_path_factory):
    """300 records that make 10 units."""
    dice = random.Random(18)
    path = tmp_path_factory.mktemp("input") / "many.fa"
    codons = [a + b + c for a in "ACG" for b in "ACGT" for c in "ACGT"]
    with path.open("w") as stream:
        for number in range(300):
            stream.write(f">s{number}\n{''.join(dice.choices(codons, k=dice.randint(60, 160)))}\n")
    return path


def events(run, name):
    return [json.loads(line) for line in (run.logs / f"{name}.jsonl").read_text().splitlines()]


def committed(run, rank):
    """Return the units that a rank computed, with repetitions."""
    steps = events(run, f"rank-{rank:04d}")
    return [step["unit"] for step in steps if step["event"] == "committed"]


def test_units_of_a_slow_rank_are_computed_once_by_another(fasta, tmp_path, virnucpro):
    undisturbed, run = RunDirectory(tmp_path / "undisturbed"), RunDirectory(tmp_path / "run")
    assert virnucpro(*PREDICT, fasta, "-o", undisturbed.root, "--devices", "cpu:1").returncode == 0
    units = [unit for unit, _ in undisturbed.segments()]
    slow, fast = units[0::2], units[1::2]
    # Of the units after its first one, the slow rank keeps two and half of the others.
    stolen = slow[-((len(slow) - 3) // 2) :]
    plan = {
        "point": "straggler",
        "rank": 0,
        "fired": str(tmp_path / "fired"),
        "shard": str(run.shard(1)),
        "segments": [len(fast), len(fast) + len(stolen)],
    }
    program = [sys.executable, FAULTY, json.dumps(plan), *PREDICT, fasta, "-o", run.root]
    done = subprocess.run(program, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "fired").exists()

    dealt = [event for event in events(run, "coordinator") if event["event"] == "dealt"]
    assert (dealt[0]["rank"], dealt[0]["units"]) == (1, stolen)
    assert committed(run, 1)[: len(fast) + len(stolen)] == [*fast, *stolen]
    assert not set(stolen) & set(committed(run, 0))
    assert {*committed(run, 0), *committed(run, 1)} == set(units)

    found = verify_run(run)
    assert (found.problems, found.units, found.units_missing) == ((), len(units), ())
    for name in ("predictions.tsv", "windows.tsv"):
        assert (run.root / name).read_bytes() == (undisturbed.root / name).read_bytes()
