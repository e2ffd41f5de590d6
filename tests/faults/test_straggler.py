"""Row 3: another rank computes units of a slow one; both may die meanwhile."""

import json
import re

import pytest
from cases import slow
from programs import run_captured, with_fault
from samples import OPEN_CODONS, random_records

from virnucpro.cli.main import main
from virnucpro.run.verify import verify_run
from virnucpro.run_dir import RunDirectory

PREDICT = ["predict", "--embeddings=fp16", "--devices", "cpu:2", "-q"]


@pytest.fixture(scope="module")
def fasta(tmp_path_factory):
    """300 records that make 10 units."""
    path = tmp_path_factory.mktemp("input") / "many.fa"
    path.write_text(random_records(300, seed=18, letters=OPEN_CODONS, name="s"))
    return path


def committed(run, rank):
    """Return the units that a rank computed, with repetitions; none if it never started."""
    text = run.log(rank).read_text() if run.log(rank).exists() else ""
    return [int(unit) for unit in re.findall(rf" rank {rank}: unit (\d+)\n", text)]


@pytest.fixture(scope="module")
def undisturbed(fasta, tmp_path_factory, computing_here):
    """A run of one rank."""
    run = RunDirectory(tmp_path_factory.mktemp("undisturbed") / "run")
    with computing_here():
        assert main([*PREDICT, str(fasta), "-o", str(run.root), "--devices", "cpu:1"]) == 0
    return run


@pytest.fixture
def with_slow_rank(fasta, undisturbed, tmp_path):
    """Return a function that runs two ranks, of which rank 0 holds two units until the end."""

    def run(**plan):
        folder = RunDirectory(tmp_path / "run")
        n_units = len(undisturbed.segments())
        slow = {"slow": 0, "shard": str(folder.shard(1)), "segments": n_units - 2}
        program = with_fault(tmp_path / "fired", times=1, **slow, **plan)
        run_captured(*program, *PREDICT, fasta, "-o", folder.root, code=0)
        assert (tmp_path / "fired").exists() == (plan["point"] != "none")
        found = verify_run(folder)
        assert (found.problems, found.units, found.units_missing) == ((), n_units, ())
        for name in ("predictions.tsv", "tracks/windows.tsv"):
            content = (undisturbed.root / name).read_bytes()
            assert (folder.root / name).read_bytes() == content
        return folder

    return run


def test_units_of_a_slow_rank_are_computed_once_by_another(with_slow_rank, undisturbed):
    run = with_slow_rank(point="none")
    units = [unit for unit, _ in undisturbed.segments()]
    slow, fast = units[0::2], units[1::2]
    own = committed(run, 0)  # fewer units if it starts late, on a busy machine
    assert own in (slow[:0], slow[:1], slow[:2])
    assert committed(run, 1) == [*fast, *reversed(slow[len(own) :])]
    takes = re.findall("worker . takes over work of worker .", run.coordinator_log.read_text())
    assert takes == ["worker 1 takes over work of worker 0"]
    ranks = json.loads(run.status_json.read_text())["ranks"]
    assert [rank["attempt"] for rank in ranks.values()] == [1, 1]


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param({"point": "commit", "number": 6}, id="holds units of the slow rank"),
        slow({"point": "waiting"}, id="waits for a unit"),
    ],
)
def test_a_killed_rank_loses_no_unit_of_a_slow_one(plan, with_slow_rank, undisturbed):
    run = with_slow_rank(rank=1, how="SIGKILL", **plan)
    rank = json.loads(run.status_json.read_text())["ranks"]["1"]
    # It is not restarted if all is committed before its failure is handled.
    fault = rank["faults"][0] if rank["faults"] else rank
    assert fault["exit"] == "SIGKILL"
    own, others = committed(run, 0), committed(run, 1)
    assert (len(own), len(others)) == (len(set(own)), len(set(others)))
    # On a busy machine a slow rank may seem to hang: the other one then copies the units it holds.
    held = [unit for unit, _ in undisturbed.segments()][0:4:2]
    assert set(own) & set(others) <= set(held)


@pytest.mark.slow  # waits until the heartbeat is missing for too long
def test_the_last_units_of_a_stopped_rank_are_copied(with_slow_rank):
    run = with_slow_rank(point="head", rank=0, how="SIGSTOP")
    rank = json.loads(run.status_json.read_text())["ranks"]["0"]
    assert (rank["state"], rank["exit"]) == ("stopped", "SIGKILL")
    assert "other workers have computed its units" in rank["reason"]
    assert committed(run, 0) == []
