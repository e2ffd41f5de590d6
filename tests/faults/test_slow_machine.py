"""Row 24: a slow machine: processes are stopped and continued in bursts."""

import json
import os
import random
import signal
import time

import pytest
from programs import VIRNUCPRO, started

pytestmark = pytest.mark.slow


def test_a_slow_rank_is_not_killed(
    few_fasta, deep, tmp_path, ranks_of, undisturbed_deep, difference_of
):
    dice = random.Random(24)
    folder = tmp_path / "run"
    command = [*VIRNUCPRO, "predict", few_fasta, "-o", folder, "-q"]
    stops = 0
    with started(*command, *deep, "--devices", "cpu:2", "--progress-timeout", "3") as process:
        while process.poll() is None and stops < 15:
            if stops == 5:  # all processes, for longer than the deadline: the pause does not count
                os.killpg(process.pid, signal.SIGSTOP)
                time.sleep(4.0)
                os.killpg(process.pid, signal.SIGCONT)
            pid = dice.choice([process.pid, *ranks_of(process)])
            try:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(dice.uniform(0.05, 0.4))
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:  # it ended between the listing and the signal
                continue
            stops += 1
            time.sleep(0.1)
        _, printed = process.communicate()
    assert process.returncode == 0, printed
    assert "failed" not in printed
    assert stops >= 5
    assert difference_of(undisturbed_deep, folder) == []
    ranks = json.loads((folder / "run" / "status.json").read_text())["ranks"]
    states = {rank["state"] for rank in ranks.values()}
    assert states <= {"succeeded", "stopped"}  # the latter had no unit left when it started
    assert all(rank["seconds"] >= 0 <= rank["silent_seconds"] for rank in ranks.values())
