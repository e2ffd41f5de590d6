import signal
import subprocess
import sys
import time

import numpy as np
from samples import empty_run

from virnucpro.store.coverage import survey
from virnucpro.store.writer import ShardWriter

N_UNITS, UNIT = 10_000, 4
BOUNDS = np.arange(0, UNIT * (N_UNITS + 1), UNIT)

RANK = """
import sys
from pathlib import Path
import numpy as np
from virnucpro.run_dir import RunDirectory
from virnucpro.store.segment import Segment
from virnucpro.store.writer import ShardWriter

writer, n = ShardWriter(RunDirectory(Path(sys.argv[1])), 0), int(sys.argv[3])
for unit in range(int(sys.argv[2]), 10_000):
    rows = np.arange(unit * n, unit * n + n)
    vectors = np.repeat(rows[:, None], 50_000, axis=1).astype("f4")
    writer.commit(Segment(unit, "f", rows, np.zeros(n, "u1"), vectors, None))
    print(unit, flush=True)
"""


def test_a_second_writer_of_a_rank_writes_the_same_file(tmp_path, make_segment):
    run = empty_run(tmp_path)
    writers = [ShardWriter(run, 0), ShardWriter(run, 0)]
    for writer in writers:
        writer.commit(make_segment(0))
    assert [path.name for path in run.shard(0).iterdir()] == ["unit-000000.h5"]


def test_committed_segments_survive_a_kill_and_unfinished_ones_do_not_count(tmp_path):
    run = empty_run(tmp_path)
    acknowledged: set[int] = set()
    for attempt in range(4):
        first = max(acknowledged, default=-1) + 1
        with subprocess.Popen(
            [sys.executable, "-c", RANK, tmp_path, str(first), str(UNIT)],
            stdout=subprocess.PIPE,
            text=True,
        ) as rank:
            acknowledged.add(int(rank.stdout.readline()))
            time.sleep(0.013 * attempt)  # a moment of the commits that follow
            rank.send_signal(signal.SIGKILL)
            acknowledged.update(int(line) for line in rank.stdout if line.endswith("\n"))
        assert rank.returncode == -signal.SIGKILL
    coverage = survey(run, BOUNDS, "f")
    assert coverage.rejected == ()
    assert acknowledged <= coverage.done.keys()
    assert len(coverage.done) <= len(acknowledged) + 4
