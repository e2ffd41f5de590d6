"""Compare the speed of writing one embeddings.h5 from segments with a plain copy of the same bytes.

Both sides read the same segment files from the page cache and end with an fsync. The aggregation
of loose segments reads each segment once; that of a run reads it twice (coverage, then writing).
The rows are in random order, so both sides must put every row into the order of the input.

    python scripts/bench/aggregate.py [--rows 100000] [--dim 3328] [--folder DIR]
"""

import argparse
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from virnucpro.durable import write_file
from virnucpro.run_dir import RunDirectory
from virnucpro.store.aggregate import write_embeddings, write_loose_embeddings
from virnucpro.store.loose import survey_loose
from virnucpro.store.segment import Segment
from virnucpro.store.writer import ShardWriter

UNIT_ROWS = 2048
REPEATS = 3


def main() -> None:
    """Write segments, copy and aggregate them alternately, print medians."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        run = RunDirectory(Path(name))
        paths = write_segments(run, arguments.rows, arguments.dim)
        size = arguments.rows * arguments.dim * 2
        order = np.random.default_rng(1).permutation(arguments.rows)
        copied, surveyed, written, twice = [], [], [], []
        for _ in range(REPEATS):
            copied.append(timed(lambda: copy(paths, run.root / "copy")))
            surveyed.append(timed(lambda: survey_loose(paths, arguments.rows)))
            written.append(timed(lambda: aggregate(run, paths, order, arguments.dim)))
            twice.append(timed(lambda: aggregate_run(run, paths, order, arguments.dim)))
        print(f"{size / 1e6:,.0f} MB of vectors in {len(paths)} segments, medians of {REPEATS}")
        for label, took in (
            ("plain copy, fsync", copied),
            ("survey alone", surveyed),
            ("interleaved in one reading, fsync", written),
            ("survey, then interleaved, fsync", twice),
        ):
            wall, cpu = (statistics.median(one) for one in zip(*took, strict=True))
            print(f"{label:40} {wall:6.2f} s {size / wall / 1e6:8,.0f} MB/s, {cpu:.2f} s of CPU")
        ratio = statistics.median(
            [mine[0] / plain[0] for mine, plain in zip(written, copied, strict=True)]
        )
        print(f"aggregation against plain copy: {ratio:.2f}x its time, median of the turns")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"peak memory of this process: {peak / 1024:,.0f} MiB")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=3328, help="dimension of the float16 vectors")
    parser.add_argument("--folder", type=Path, help="working folder; default: a temporary one")
    return parser.parse_args()


def write_segments(run: RunDirectory, n_rows: int, dim: int) -> list[Path]:
    """Commit random vectors in four shards."""
    dice = np.random.default_rng(0)
    writers = [ShardWriter(run, rank) for rank in range(4)]
    for unit, first in enumerate(range(0, n_rows, UNIT_ROWS)):
        rows = np.arange(first, min(first + UNIT_ROWS, n_rows))
        vectors = dice.standard_normal((len(rows), dim), np.float32).astype(np.float16)
        state = np.zeros(len(rows), np.uint8)
        writers[unit % 4].commit(Segment(unit, "f" * 64, rows, state, vectors, None))
    return [path for _, path in run.segments()]


def copy(paths: list[Path], target: Path) -> None:
    """Concatenate all files."""
    with write_file(target) as stream:
        for path in paths:
            with path.open("rb") as source:
                shutil.copyfileobj(source, stream, 1 << 20)


def index_in_memory(order: np.ndarray[tuple[int], np.dtype[np.int64]]) -> SimpleNamespace:
    """Make the parts of a run's index that an aggregation uses."""
    return SimpleNamespace(
        n_items=len(order),
        item_row=order,
        item_names=lambda items: [f"record_chunk_{item}F1" for item in items],
    )


def aggregate(
    run: RunDirectory,
    paths: list[Path],
    order: np.ndarray[tuple[int], np.dtype[np.int64]],
    dim: int,
) -> None:
    """Aggregate loose segments, with an index in memory."""
    index, views = index_in_memory(order), {"nucleotide": 768, "protein": dim - 768}
    write_loose_embeddings(run.embeddings, paths, index, len(order), views=views)


def aggregate_run(
    run: RunDirectory,
    paths: list[Path],
    order: np.ndarray[tuple[int], np.dtype[np.int64]],
    dim: int,
) -> None:
    """Aggregate as at the end of a run: coverage, then writing."""
    index, views = index_in_memory(order), {"nucleotide": 768, "protein": dim - 768}
    write_embeddings(run.embeddings, survey_loose(paths, len(order)), index, views)


def timed(action: Callable[[], object]) -> tuple[float, float]:
    """Return wall and CPU seconds of an action, after pending writes are flushed."""
    os.sync()
    started, cpu = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - started, time.process_time() - cpu


if __name__ == "__main__":
    main()
