"""Row 3: another rank computes units of a slow one."""

import json

import pytest
from programs import run_captured, with_fault
from samples import OPEN_CODONS, random_records

from virnucpro.cli.main import main
from virnucpro.run.verify import verify_run
from virnucpro.run_dir import RunDirectory

pytestmark = pytest.mark.timeout(110)
PREDICT = ["predict", "--embeddings=fp16", "--devices", "cpu:2", "--log-format", "json", "-q"]


@pytest.fixture(scope="module")
def fasta(tmp_path_factory):
    """300 records that make 10 units."""
    path = tmp_path_factory.mktemp("input") / "many.fa"
    path.write_text(random_records(300, seed=18, letters=OPEN_CODONS, name="s"))
    return path


def events(run, name):
    return [json.loads(line) for line in (run.logs / f"{name}.jsonl").read_text().splitlines()]


def committed(run, rank):
    """Return the units that a rank computed, with repetitions."""
    steps = events(run, f"rank-{rank:04d}")
    return [step["unit"] for step in steps if step["event"] == "committed"]


def test_units_of_a_slow_rank_are_computed_once_by_another(fasta, tmp_path, computing_here):
    undisturbed, run = RunDirectory(tmp_path / "undisturbed"), RunDirectory(tmp_path / "run")
    with computing_here():
        command = [*PREDICT, str(fasta), "-o", str(undisturbed.root), "--devices", "cpu:1"]
        assert main(command) == 0
    units = [unit for unit, _ in undisturbed.segments()]
    slow, fast = units[0::2], units[1::2]
    # Of the units after its first one, the slow rank keeps two and half of the others.
    stolen = slow[-((len(slow) - 3) // 2) :]
    plan = {"shard": str(run.shard(1)), "segments": [len(fast), len(fast) + len(stolen)]}
    program = with_fault(tmp_path / "fired", point="straggler", rank=0, **plan)
    done = run_captured(*program, *PREDICT, fasta, "-o", run.root)
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
