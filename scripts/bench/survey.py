"""Compare the survey of a run's segments (read, hash, check) with reading the same files.

Segments are fake: random vectors, written without fsync. `--rows 32 --dim 64` makes small segments
(12 kB), `--rows 8192 --dim 768` those of a GPU run (13 MB).

    python scripts/bench/survey.py [--segments 20000] [--rows 32] [--dim 64] [--folder DIR]
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from virnucpro.run_dir import RunDirectory
from virnucpro.store.coverage import survey
from virnucpro.store.segment import Segment, encode_segment

FINGERPRINT = "f" * 64
SHARDS = 64


def main() -> None:
    """Write segments, read and survey them alternately, print medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--segments", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=32, help="rows per segment")
    parser.add_argument("--dim", type=int, default=64, help="dimension of the float16 vectors")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cold", action="store_true", help="empty the page cache before")
    parser.add_argument("--folder", type=Path, help="working folder; segments in it are used again")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() if given.folder is None else nullcontext(given.folder) as name
    ):
        run = RunDirectory(Path(name))
        if not run.shards.exists():
            write_segments(run, given.segments, given.rows, given.dim)
        paths = [path for _, path in run.segments()]
        bounds = np.arange(0, (len(paths) + 1) * given.rows, given.rows)
        size = sum(path.stat().st_size for path in paths)
        read, surveyed = [], []
        for _ in range(given.repeats):
            read.append(timed(lambda: read_all(paths), paths, cold=given.cold))
            surveyed.append(timed(lambda: survey(run, bounds, FINGERPRINT), paths, cold=given.cold))
        print(f"{len(paths):,} segments, {size / 1e6:,.0f} MB, medians of {given.repeats}")
        for label, took in (("read all files", read), ("survey", surveyed)):
            wall, cpu = (statistics.median(one) for one in zip(*took, strict=True))
            print(
                f"{label:16} {wall:7.2f} s {size / wall / 1e6:8,.0f} MB/s "
                f"{len(paths) / wall:8,.0f} segments/s, {cpu:.2f} s of CPU"
            )


def write_segments(run: RunDirectory, n_segments: int, n_rows: int, dim: int) -> None:
    """Write segments into many shards, without fsync."""
    some = np.random.default_rng(0).standard_normal((2 * n_rows, dim), np.float32).astype("f2")
    state, scores = np.zeros(n_rows, np.uint8), np.full((n_rows, 2), 0.5, np.float32)
    for rank in range(SHARDS):
        run.shard(rank).mkdir(parents=True)
    for unit in range(n_segments):
        rows = np.arange(unit * n_rows, (unit + 1) * n_rows)
        vectors = some[unit % n_rows : unit % n_rows + n_rows]
        segment = Segment(unit, FINGERPRINT, rows, state, vectors, scores)
        run.segment(unit % SHARDS, unit).write_bytes(encode_segment(segment))


def read_all(paths: list[Path]) -> None:
    """Read every file once."""
    for path in paths:
        path.read_bytes()


def timed(action: Callable[[], object], paths: list[Path], *, cold: bool) -> tuple[float, float]:
    """Return wall and CPU seconds; with `cold`, the files are not in the page cache."""
    if cold:
        os.sync()
        for path in paths:
            with path.open("rb") as stream:
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    started, cpu = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - started, time.process_time() - cpu


if __name__ == "__main__":
    main()
