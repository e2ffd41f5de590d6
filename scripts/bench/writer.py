"""Measure the cost of committing segments: in the same thread, in a writer's thread, or not at all.

A sleep of known length stands for the computation of a rank: it releases the interpreter, as an
encoder on a device does. The three variants alternate, so other work affects all alike.

    python scripts/bench/writer.py [--units 12] [--seconds 0.5] [--dim 3328] [--folder DIR]
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from virnucpro.run_dir import RunDirectory
from virnucpro.store.segment import Segment
from virnucpro.store.writer import SegmentWriter, ShardWriter

UNIT_ROWS = 2048
REPEATS = 5


def main() -> None:
    """Run the three variants alternately; print the cost of each above the bare computation."""
    arguments = _arguments()
    segments = make_segments(arguments.units, arguments.dim)
    took: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(REPEATS):
        for name, variant in VARIANTS.items():
            with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
                os.sync()
                shard = ShardWriter(RunDirectory(Path(folder)), 0)
                started = time.perf_counter()
                variant(shard, segments, arguments.seconds)
                took[name].append(time.perf_counter() - started)
    rate = UNIT_ROWS / arguments.seconds
    print(f"{arguments.units} units of {UNIT_ROWS} rows at {rate:,.0f} rows/s, {REPEATS} turns")
    for name, seconds in took.items():
        added = [mine / bare - 1 for mine, bare in zip(seconds, took["bare"], strict=True)]
        print(f"{name:8} {statistics.median(seconds):6.2f} s {statistics.median(added):+8.2%}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--units", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.5, help="computing time of one unit")
    parser.add_argument("--dim", type=int, default=3328, help="dimension of the float16 vectors")
    parser.add_argument("--folder", type=Path, help="working folder; default: a temporary one")
    return parser.parse_args()


def make_segments(n_units: int, dim: int) -> list[Segment]:
    """Make segments from two alternating arrays of random vectors."""
    dice = np.random.default_rng(0)
    state = np.zeros(UNIT_ROWS, np.uint8)
    vectors = [
        dice.standard_normal((UNIT_ROWS, dim), np.float32).astype(np.float16) for _ in range(2)
    ]
    return [
        Segment(
            unit, "f" * 64, unit * UNIT_ROWS + np.arange(UNIT_ROWS), state, vectors[unit % 2], None
        )
        for unit in range(n_units)
    ]


def bare(_: ShardWriter, segments: list[Segment], seconds: float) -> None:
    """Compute without committing."""
    for _segment in segments:
        time.sleep(seconds)


def in_line(shard: ShardWriter, segments: list[Segment], seconds: float) -> None:
    """Compute and commit one unit after the other."""
    for segment in segments:
        time.sleep(seconds)
        shard.commit(segment)


def from_a_thread(shard: ShardWriter, segments: list[Segment], seconds: float) -> None:
    """Compute a unit while the previous one is committed."""
    with SegmentWriter(shard) as writer:
        for segment in segments:
            time.sleep(seconds)
            writer.put(segment)


VARIANTS: dict[str, Callable[[ShardWriter, list[Segment], float], None]] = {
    "bare": bare,
    "in line": in_line,
    "thread": from_a_thread,
}

if __name__ == "__main__":
    main()
