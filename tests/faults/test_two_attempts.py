"""Row 28: two attempts of one rank at the same time."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from virnucpro.run_dir import RunDirectory

DATA = Path(__file__).parents[1] / "data"
ATTEMPT = """
import os, sys
from pathlib import Path
from doubles import mini_task
from virnucpro.compute.rank_main import Assignment, Share, run_rank
from virnucpro.run.manifest import read_manifest
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.policy import Findings

class Channel:
    waited = False
    units = iter(range(int(sys.argv[2])))

    def ask(self):
        unit = next(self.units, None)
        return None if unit is None else Assignment(unit, Findings())

    def put(self, payload):
        if "filling" in payload:
            print(payload["units"])

    def progress(self, done, total):
        pass

    def mark(self, place):
        if not self.waited:
            self.waited = True
            print("ready", flush=True)
            sys.stdin.readline()

run = RunDirectory(Path(sys.argv[1]))
manifest = read_manifest(run)
task = mini_task(
    run.root, manifest.units["rows"], fingerprint=manifest.fingerprint, embeddings="fp16",
    unit_positions=manifest.units["positions"], batch_tokens=2048,
    threads=len(os.sched_getaffinity(0)),
)
run_rank(0, 1, Channel(), task, {0: Share(tuple(range(int(sys.argv[2]))))})
"""


@pytest.mark.slow
def test_two_attempts_of_one_rank_commit_each_unit_once(undisturbed_deep, tmp_path, difference_of):
    copy = shutil.copytree(undisturbed_deep, tmp_path / "copy")
    run, original = RunDirectory(copy), RunDirectory(undisturbed_deep)
    shutil.rmtree(run.shard(0))
    n_units = str(len(original.segments()))
    attempts = [
        subprocess.Popen(
            [sys.executable, "-c", ATTEMPT, run.root, n_units],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(DATA), *sys.path])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for attempt in attempts:
        assert attempt.stdout.readline() == "ready\n"
    for attempt in attempts:
        attempt.stdin.write("go\n")
        attempt.stdin.flush()
    for attempt in attempts:
        printed, _ = attempt.communicate(timeout=60)
        assert attempt.returncode == 0
        # Both compute the first unit; a slower one skips what the other has committed.
        assert 1 <= int(printed) <= len(original.segments())
    assert {path.name: path.read_bytes() for path in run.shard(0).iterdir()} == {
        path.name: path.read_bytes() for path in original.shard(0).iterdir()
    }
    assert difference_of(undisturbed_deep, run.root) == []
