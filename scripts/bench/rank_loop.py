"""Compare a rank's loop with the bare loop in one process, unit by unit.

`overhead.py --loops` starts it; it prints its measurements as JSON. Each loop computes some units
several times, in random order. The time of the encoders is equal on both sides and is subtracted.
The result is the minimum CPU time of all other work. For the rank it is the time of the computing
thread: heartbeats, checks of numbers, segments given to the writer. The writer's thread is reported
separately.

    python scripts/bench/rank_loop.py RUN SCRATCH
"""

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

from bare_loop import BareLoop

from virnucpro.encoders.batching import BATCH_TOKENS
from virnucpro.encoders.encoder import Encoder
from virnucpro.pipeline.worker.poison_isolation import Suspicion
from virnucpro.pipeline.worker.rank_main import RankTask, UnitProgress
from virnucpro.pipeline.worker.row_embedder import RowEmbedder
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.worker_channel import WorkerChannel
from virnucpro.store.writer import SegmentWriter, ShardWriter

REPEATS = 8
UNITS = 8
PAUSE_S = 0.1


class Stopwatch:
    """Sums the CPU seconds of this thread in some methods."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._thread = threading.get_ident()

    def around(self, method: Callable[..., object]) -> Callable[..., object]:
        """Return the timed replacement of a method."""

        def call(*arguments: object) -> object:
            if threading.get_ident() != self._thread:
                return method(*arguments)
            started = time.thread_time()
            try:
                return method(*arguments)
            finally:
                self.seconds += time.thread_time() - started

        return call


def turns(run: RunDirectory, scratch: Path) -> dict[str, float]:
    """Compute units by both loops alternately; sum the minimum CPU seconds of each unit."""
    encoding = Stopwatch()
    for name in ("collate", "encode"):  # of both sides' encoders
        setattr(Encoder, name, encoding.around(getattr(Encoder, name)))
    dice = random.Random(1)  # noqa: S311 - an order without a pattern
    loop = BareLoop(run)
    task = _task(loop, scratch)
    embedder = RowEmbedder(task, loop.index)
    sums = dict.fromkeys(("encoders", "bare", "rank", "writer"), 0.0)
    with (
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as reader,
        SegmentWriter(ShardWriter(task.run, 0)) as writer,
    ):
        assert reader.stdin
        progress = UnitProgress(WorkerChannel(reader.stdin.fileno()), 0, 1 << 30)
        for unit, first, last in _some_units(loop):
            sides = {
                "bare": lambda: loop.unit(first, last),  # noqa: B023 - called in this turn
                "rank": lambda: writer.put(
                    embedder.embed(unit, range(first, last), progress, Suspicion())  # noqa: B023 - as above
                ),
            }
            for side, seconds in _least_seconds(sides, dice, encoding).items():
                sums[side] += seconds
        reader.stdin.close()
    return sums


def _some_units(loop: BareLoop) -> list[tuple[int, int, int]]:
    """Choose units, evenly from the longest to the shortest rows."""
    units = [(unit, *bounds) for unit, bounds in enumerate(pairwise(loop.bounds.tolist()))]
    return units[:: max(1, len(units) // UNITS)]


def _least_seconds(
    sides: Mapping[str, Callable[[], object]], dice: random.Random, encoding: Stopwatch
) -> dict[str, float]:
    """Return minimum CPU times: encoders, each side without them, and the writer."""
    least = dict.fromkeys(("encoders", *sides, "writer"), float("inf"))
    for side in dice.sample([*sides] * REPEATS, len(sides) * REPEATS):
        encoding.seconds = 0.0
        thread, process = time.thread_time(), time.process_time()
        sides[side]()
        besides = time.thread_time() - thread - encoding.seconds
        least["encoders"] = min(least["encoders"], encoding.seconds)
        least[side] = min(least[side], besides)
        if side == "rank":
            time.sleep(PAUSE_S)  # lets the writer commit the segment before the next measurement
            others = time.process_time() - process - (time.thread_time() - thread)
            least["writer"] = min(least["writer"], others)
    return least


def _task(loop: BareLoop, scratch: Path) -> RankTask:
    return RankTask(
        run=RunDirectory(scratch),
        fingerprint=loop.manifest.fingerprint,
        encoders=loop.bundle.encoders,
        head=loop.bundle.head,
        precision="fp32",
        embeddings="fp16",
        unit_rows=loop.manifest.units["rows"],
        unit_positions=loop.manifest.units["positions"],
        batch_tokens=BATCH_TOKENS["cpu"],
        torch_device="cpu",
        threads=1,
    )


if __name__ == "__main__":
    _, run_folder, scratch_folder = sys.argv
    print(json.dumps(turns(RunDirectory(Path(run_folder)), Path(scratch_folder))))
