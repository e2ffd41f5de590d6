"""Rows 1, 2, 3, 7, 9: ranks that raise, are killed, hang, always fail, or fail at one sequence."""

import json
import math
import re

import numpy as np
import pytest
from cases import slow
from programs import run_captured, segments_in, with_fault

from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex

POINTS = ("load", "batch", "unit", "commit", "rename", "exit")
pytestmark = pytest.mark.timeout(220)
KILLS = ("SIGKILL", "SIGSEGV", "SIGABRT", "os._exit")


OF_BATCHES = ("unit", "flap", "head")
"""Points for which a unit needs several batches: transformers, see `deep`."""


@pytest.fixture
def undisturbed_at(request):
    """Return a function that gives the undisturbed run with the options of a point."""
    return lambda point: request.getfixturevalue(
        "undisturbed_deep" if point in OF_BATCHES else "undisturbed"
    )


@pytest.fixture
def faulty(few_fasta, deep, tmp_path):
    """Return a function that runs `predict` on two ranks with planned failures."""

    def run(*options, **plan):
        folder, fired = tmp_path / "run", tmp_path / "fired"
        if plan["point"] == "exit":  # of a rank that has computed, not of one that came too late
            shard = RunDirectory(folder).shard(0)
            plan = {"slow": 1, "shard": str(shard), "segments": 1, **plan}
        elif plan.get("rank", 0) is not None:
            plan = {"others": (1, 2), **plan}
        program = with_fault(fired, **{"rank": 0, "times": 1, **plan})
        words = ["predict", few_fasta, "-o", folder, "--embeddings", "--devices", "cpu:2"]
        words += deep if plan["point"] in OF_BATCHES else ()
        done = run_captured(*program, *words, *options, timeout=200)
        assert fired.exists(), f"no failure occurred: {done.stderr}"
        return done, folder

    return run


def ranks_in(folder):
    return json.loads((folder / "run" / "status.json").read_text())["ranks"]


def computed_units(folder):
    """Return the computed units of all ranks, with repetitions."""
    logs = (folder / "run" / "logs").glob("rank-*.log")
    return [int(unit) for log in logs for unit in re.findall(r": unit (\d+)\n", log.read_text())]


@pytest.mark.parametrize(
    ("point", "how"),
    [
        (point, how) if (point, how) == ("rename", "SIGKILL") else slow(point, how)
        for point in POINTS
        for how in ("raise", *KILLS)
    ],
)
def test_a_failed_rank_is_restarted(point, how, faulty, undisturbed_at, difference_of):
    done, folder = faulty(point=point, how=how)
    assert done.returncode == 0, done.stderr
    assert difference_of(undisturbed_at(point), folder) == []

    rank = ranks_in(folder)["0"]
    # At exit all units are committed: no restart.
    fault, attempts = (rank, 1) if point == "exit" else (rank["faults"][0], 2)
    assert rank["attempt"] == attempts
    assert fault["exit"] == {"raise": 1, "os._exit": 3}.get(how, how)
    if how == "raise":
        assert fault["kind"] == "RuntimeError"
        assert "injected" in fault["traceback"]
    assert f"worker 0 failed: {fault['reason']}" in done.stderr
    log = (folder / "run" / "logs" / "coordinator.log").read_text()
    assert f"worker 0 failed: {fault['reason']}" in log

    units = computed_units(folder)
    assert len(units) - len(set(units)) <= 2, "more than the open units were computed again"
    assert not list(folder.rglob("*.tmp")), "of the interrupted commit"


@pytest.mark.parametrize(
    ("how", "point"),
    [
        ("sleep", "unit"),
        ("deadlock in C", "batch"),
        ("SIGSTOP", "load"),
        ("SIGSTOP", "unit"),
        ("sleep", "load"),
        ("deadlock in C", "commit"),
    ],
)
@pytest.mark.slow
def test_a_hung_rank_is_killed_and_restarted(how, point, faulty, undisturbed_at, difference_of):
    limits = {"load": ("--start-timeout", 6), "unit": ("--progress-timeout", 2)}
    option, seconds = limits.get(point, limits["unit"])
    # The only rank: no other one can take its units.
    done, folder = faulty(option, seconds, "--devices", "cpu:1", point=point, how=how)
    assert done.returncode == 0, done.stderr
    assert difference_of(undisturbed_at(point), folder) == []
    (fault,) = ranks_in(folder)["0"]["faults"]
    assert fault["kind"] == "Hang"
    assert f"within {seconds:g} s" in fault["reason"]
    # faulthandler writes the stacks in C, also if the interpreter's lock is held.
    assert fault["exit"] == ("SIGKILL" if how == "SIGSTOP" else "SIGTERM")
    if how != "SIGSTOP":
        assert "in fire" in (folder / "run" / "logs" / "rank-0000.log").read_text()


@pytest.mark.slow  # waits for the reassignment, then for the stop ladder
def test_the_units_of_a_stopped_rank_are_reassigned(faulty, undisturbed_at, difference_of):
    plan = {"point": "unit", "how": "SIGSTOP", "others": (1, 1)}
    done, folder = faulty(**plan)  # its deadline is ten minutes
    assert done.returncode == 0, done.stderr
    assert difference_of(undisturbed_at("unit"), folder) == []
    rank = ranks_in(folder)["0"]
    assert (rank["state"], rank["exit"]) == ("stopped", "SIGKILL")
    assert "other workers have computed its units" in rank["reason"]


@pytest.mark.parametrize("point", ["batch", slow("load")])
def test_units_of_a_bad_device_are_reassigned(point, faulty, undisturbed_at, difference_of):
    plan = {"point": point, "how": "SIGKILL", "rank": 1, "times": None, "others": (2, 2)}
    done, folder = faulty("--max-restarts", "1", **plan)
    assert done.returncode == 0, done.stderr
    assert difference_of(undisturbed_at(point), folder) == []
    assert not (folder / "quarantine.tsv").exists()
    ranks = ranks_in(folder)
    if point == "load":  # all of its units may be reassigned before it fails permanently
        assert ranks["1"]["state"] in {"failed", "stopped"}
        assert ranks["1"]["attempt"] <= 2
        return
    assert (ranks["1"]["state"], ranks["1"]["attempt"]) == ("failed", 2)
    assert (
        ranks["0"]["done"]
        == ranks["0"]["total"]
        == SequenceIndex.open(folder / "run" / "index").n_rows
    )
    assert "failed permanently" in done.stderr

    run = RunDirectory(folder)
    events = [line.partition(" ")[2] for line in run.coordinator_log.read_text().splitlines()]
    failures = [event for event in events if event.startswith("worker 1 failed")]
    assert len(failures) == 2
    assert all("SIGKILL" in event for event in failures)
    assert "worker 0 takes over work of worker 1" in events
    committed = re.findall(r" rank 0: unit (\d+)\n", run.log(0).read_text())
    assert sorted(map(int, committed)) == list(range(len(run.segments())))


@pytest.mark.slow
def test_an_intermittent_device_quarantines_no_row(faulty, undisturbed_at, difference_of):
    """Its third batch fails in each attempt; the other rank gets its units."""
    done, folder = faulty(point="flap", how="SIGKILL", rank=0, times=None)
    assert done.returncode == 0, done.stderr
    assert difference_of(undisturbed_at("flap"), folder) == []
    assert not (folder / "quarantine.tsv").exists()


@pytest.mark.slow
def test_a_failure_after_the_encoders_quarantines_no_row(faulty):
    done, folder = faulty(point="head", how="raise", rank=None, times=None)
    assert done.returncode == 1, done.stderr
    assert not (folder / "quarantine.tsv").exists()
    assert all(rank["attempt"] <= 5 for rank in ranks_in(folder).values())


@pytest.mark.parametrize(
    ("how", "point", "view"),
    [
        ("SIGSEGV", "poison", "nucleotide"),
        ("raise", "poison", "protein"),
        ("SIGSEGV", "tokens", "protein"),
    ],
)
@pytest.mark.slow  # a dozen starts of ranks; tests of encoders of other packages kill one, too
def test_a_row_that_kills_its_process_is_isolated_and_quarantined(
    how, point, view, faulty, deep, undisturbed_at, tables
):
    options = () if view == "nucleotide" else deep
    finished = undisturbed_at("unit" if options else "batch")
    index = SequenceIndex.open(finished / "run" / "index")
    row = int(index.item_row[70])
    (letters,) = index.sequences(np.array([row]), view)
    names = set(index.item_names(np.flatnonzero(index.item_row == row)))
    # A piece with the same bases is another row.
    pieces = np.flatnonzero(np.array(index.sequences(index.piece_row, view)) == letters)
    names |= set(index.piece_names(pieces))
    plan = {"point": point, "how": how, "rank": None, "times": None, "poison": [letters.decode()]}
    done, folder = faulty(*options, **plan)
    assert done.returncode == 2, done.stderr

    quarantined = tables(folder / "quarantine.tsv")
    assert {entry["item"] for entry in quarantined} == names
    assert {entry["reason"] for entry in quarantined} == {"kills_process"}
    rows = {str(row), *map(str, index.piece_row[pieces])}
    assert {entry["row"] for entry in quarantined} == rows
    ended = "killed by SIGSEGV" if how == "SIGSEGV" else "injected"
    assert all(ended in entry["evidence"] for entry in quarantined)
    assert not (folder / "missing.tsv").exists()

    faults = [fault for rank in ranks_in(folder).values() for fault in rank["faults"]]
    assert 0 < len(faults) <= len(rows) * (4 + math.ceil(math.log2(32)))
    own = {re.split("_chunk_|_piece_", name)[0] for name in names}
    before, after = (tables(run / "predictions.tsv") for run in (finished, folder))
    others = [
        (one, other) for one, other in zip(before, after, strict=True) if one["seq_name"] not in own
    ]
    assert len(others) == len(before) - len(own)
    assert all(one["status"] == other["status"] for one, other in others)
    assert all(abs(float(one["score"]) - float(other["score"])) <= 2e-4 for one, other in others)
    assert segments_in(folder)
