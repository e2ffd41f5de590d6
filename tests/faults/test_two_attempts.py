"""One rank at work twice at once: each unit once, and the same bytes."""

import shutil
import subprocess
import sys

import pytest

from virnucpro.run_dir import RunDirectory

ATTEMPT = """
import os, sys
from pathlib import Path
from virnucpro.pipeline.worker.rank_main import run_rank
from virnucpro.pipeline.run.manifest import read_manifest
from virnucpro.pipeline.predict import predict_job
from virnucpro.pipeline.worker.rank_task import RankTask, Share
from virnucpro.run_dir import RunDirectory

class Channel:
    waited = False

    def put(self, payload):
        if "units" in payload:
            print(payload["units"])

    def progress(self, done, total):
        pass

    def mark(self, place):
        if not self.waited:
            self.waited = True
            print("ready", flush=True)
            sys.stdin.readline()

run = RunDirectory(Path(sys.argv[1]))
manifest, job = read_manifest(run), predict_job([sys.argv[2]])
task = RankTask(
    run=run, fingerprint=manifest.fingerprint, encoders=job.encoders, head=job.head,
    precision="fp32", embeddings="fp16", unit_rows=manifest.units["rows"],
    unit_positions=manifest.units["positions"], batch_tokens=2048, torch_device="cpu",
    threads=len(os.sched_getaffinity(0)),
)
run_rank(0, 1, Channel(), task, {0: Share(tuple(range(int(sys.argv[3]))))})
"""


@pytest.mark.slow
def test_two_attempts_of_one_rank_give_each_unit_once_and_the_same_bytes(
    copy_of_run, undisturbed, few_fasta, difference_of
):
    run, original = RunDirectory(copy_of_run), RunDirectory(undisturbed)
    shutil.rmtree(run.shard(0))
    n_units = str(len(original.segments()))
    attempts = [
        subprocess.Popen(
            [sys.executable, "-c", ATTEMPT, run.root, few_fasta, n_units],
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
        said, _ = attempt.communicate(timeout=60)
        assert attempt.returncode == 0
        assert said == f"{len(original.segments())}\n"
    assert {path.name: path.read_bytes() for path in run.shard(0).iterdir()} == {
        path.name: path.read_bytes() for path in original.shard(0).iterdir()
    }
    assert difference_of(undisturbed, run.root) == []
