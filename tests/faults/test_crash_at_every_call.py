"""Rows 26 and 27: a kill at each system call of a commit, and at many of an aggregation."""

import json
import sys
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import pytest
from programs import run_captured

from virnucpro.cli.main import main
from virnucpro.run_dir import RunDirectory

STEPPED = Path(__file__).parents[1] / "data" / "stepped.py"


def stepped(*arguments):
    """Run the kills in another process; return the state after each."""
    done = run_captured(sys.executable, STEPPED, *arguments)
    if "] ptrace" in done.stderr:
        pytest.skip("this machine forbids a process to trace its own children (ptrace)")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_commit_killed_at_any_system_call_is_absent_or_whole(tmp_path):
    seen = stepped("commit", tmp_path)
    absent, whole = [0], [0, 1]
    assert [state for state in seen if state[0] not in (absent, whole)] == []
    assert [state for state in seen if state[1] or not state[2]] == []
    assert seen[0][0] == absent
    assert seen[-1] == [whole, 0, True, 0]
    assert sum(state[0] == absent for state in seen) > 10
    assert sum(state[0] == whole for state in seen) > 5
    assert any(unfinished for *_, unfinished in seen)


def test_an_aggregation_killed_at_any_system_call_leaves_the_old_output_or_the_new(
    copy_of_run, tmp_path
):
    (tmp_path / "target").mkdir()
    seen = stepped("aggregate", copy_of_run, tmp_path / "target", 7)
    assert Counter(seen).keys() == {"former", "new"}
    assert seen[-1] == "new"
    assert len(seen) > 20


def test_vectors_of_missing_rows_are_nan_and_never_zero(copy_of_run):
    run = RunDirectory(copy_of_run)
    run.segments()[1][1].unlink()
    assert main(["aggregate", str(run.root), "-q"]) == 2
    with h5py.File(run.embeddings) as file:
        missing = file["status"][:] == 2
        assert missing.any()
        assert np.isnan(file["embeddings"][:][missing]).all()
        assert (file["embeddings"][:][~missing] != 0).any(axis=1).all()
