r"""Compare writing one embeddings.h5 from segments with a plain copy of the same bytes.

Both sides read the same segment files and end with an fsync. The aggregation of loose segments, and
that of a run, reads each segment once; twice if the segments of the run were verified before. Items
are in random order, or in the order of an index whose rows are sorted by length: nine tenths of the
items have one length, the others any length.

    python scripts/bench/aggregate.py [--rows 100000] [--dim 3328] [--order random] [--folder DIR]

Ten million items, 15 GB of vectors (31 GB of disk), in the order of an index:

    python scripts/bench/aggregate.py --rows 10000000 --dim 768 --unit-rows 8192 --order index \
        --cold --repeats 1
"""

import argparse
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from virnucpro.durable import write_file
from virnucpro.run_dir import RunDirectory
from virnucpro.store.aggregate import write_embeddings
from virnucpro.store.coverage import Survey, survey
from virnucpro.store.segment import Segment
from virnucpro.store.writer import ShardWriter

FINGERPRINT = "f" * 64
IntArray = np.ndarray[tuple[int], np.dtype[np.int64]]
Took = tuple[float, float, float]

ACTIONS = ("copy", "survey", "once", "run", "twice")
LABELS = {
    "copy": "plain copy, fsync",
    "survey": "survey alone",
    "once": "loose segments, read once, fsync",
    "run": "segments of a run, read once, fsync",
    "twice": "survey, then aggregate, fsync",
}


def main() -> None:
    """Write segments, copy and aggregate them alternately, print medians."""
    arguments = _arguments()
    folder = arguments.folder
    with tempfile.TemporaryDirectory() if folder is None else nullcontext(folder) as name:
        run = RunDirectory(Path(name))
        run.machine.mkdir(parents=True, exist_ok=True)
        paths = [path for _, path in run.segments()] or write_segments(
            run, arguments.rows, arguments.dim, arguments.unit_rows
        )
        size = arguments.rows * arguments.dim * 2
        index = index_of(ORDERS[arguments.order](arguments.rows), run.root / "order.npy")
        dims = {"joined": arguments.dim}
        n_rows = arguments.rows
        bounds = np.append(np.arange(0, n_rows, arguments.unit_rows), n_rows)
        actions: dict[str, Callable[[], object]] = {
            "copy": lambda: copy(paths, run.root / "copy"),
            "survey": lambda: survey(paths, bounds),
            "once": lambda: write_embeddings(run.embeddings, Survey(paths, bounds), index, dims),
            "run": lambda: write_embeddings(
                run.embeddings, Survey(run, bounds, FINGERPRINT), index, dims
            ),
            "twice": lambda: write_embeddings(run.embeddings, survey(paths, bounds), index, dims),
        }
        took: dict[str, list[Took]] = {action: [] for action in arguments.only}
        for _ in range(arguments.repeats):
            for action in arguments.only:
                if arguments.cold:
                    forget(paths)
                took[action].append(timed(actions[action]))
                for made in (run.root / "copy", run.embeddings):
                    made.unlink(missing_ok=True)
        print(
            f"{size / 1e6:,.0f} MB of vectors in {len(paths)} segments, {arguments.order} order, "
            f"medians of {arguments.repeats}"
        )
        for action, all_took in took.items():
            wall, cpu, peak = (statistics.median(one) for one in zip(*all_took, strict=True))
            print(
                f"{LABELS[action]:36} {wall:7.2f} s {size / wall / 1e6:8,.0f} MB/s, {cpu:7.2f} s "
                f"of CPU, {peak:6,.0f} MiB of memory"
            )
        for action in {"once", "run", "twice"} & set(took) if "copy" in took else ():
            pairs = zip(took[action], took["copy"], strict=True)
            ratio = statistics.median(mine[0] / plain[0] for mine, plain in pairs)
            print(f"{LABELS[action]}: {ratio:.2f}x the time of a plain copy")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=3328, help="dimension of the float16 vectors")
    parser.add_argument("--unit-rows", type=int, default=2048, help="rows per segment")
    parser.add_argument("--order", choices=ORDERS, default="random", help="order of the items")
    parser.add_argument(
        "--cold", action="store_true", help="remove the segments from the page cache before"
    )
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=ACTIONS, default=list(ACTIONS))
    parser.add_argument("--folder", type=Path, help="working folder; segments in it are used again")
    return parser.parse_args()


def random_order(n_rows: int) -> IntArray:
    """Return random rows of the items, int64 (n_rows,)."""
    return np.random.default_rng(1).permutation(n_rows)


def index_order(n_rows: int) -> IntArray:
    """Return the rows of items as in an index: longest first, equal lengths in input order."""
    dice = np.random.default_rng(1)
    lengths = np.where(dice.random(n_rows) < 0.9, 166, dice.integers(20, 166, n_rows))
    rows = np.empty(n_rows, np.int64)
    rows[np.argsort(-lengths, kind="stable")] = np.arange(n_rows)
    return rows


ORDERS = {"random": random_order, "index": index_order}


def write_segments(run: RunDirectory, n_rows: int, dim: int, unit_rows: int) -> list[Path]:
    """Commit random vectors in four shards."""
    dice = np.random.default_rng(0)
    writers = [ShardWriter(run, rank) for rank in range(4)]
    some = dice.standard_normal((2 * unit_rows, dim), np.float32).astype(np.float16)
    for unit, first in enumerate(range(0, n_rows, unit_rows)):
        rows = np.arange(first, min(first + unit_rows, n_rows))
        shift = dice.integers(unit_rows)
        vectors = some[shift : shift + len(rows)]
        state = np.zeros(len(rows), np.uint8)
        writers[unit % 4].commit(Segment(unit, FINGERPRINT, rows, state, vectors, None))
    return [path for _, path in run.segments()]


def copy(paths: list[Path], target: Path) -> None:
    """Concatenate all files."""
    with write_file(target) as stream:
        for path in paths:
            with path.open("rb") as source:
                shutil.copyfileobj(source, stream, 1 << 20)


def forget(paths: list[Path]) -> None:
    """Remove files from the page cache."""
    os.sync()
    for path in paths:
        with path.open("rb") as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def index_of(order: IntArray, path: Path) -> SimpleNamespace:
    """Make the parts of a run's index that an aggregation uses; `order` is memory-mapped."""
    np.save(path, order)
    return SimpleNamespace(
        input_names=(),
        n_items=len(order),
        item_row=np.load(path, mmap_mode="r"),
        item_names=lambda items: [f"record_chunk_{item}F1" for item in items],
        without_vector=lambda rows: np.zeros(len(rows), np.bool_),
    )


def timed(action: Callable[[], object]) -> Took:
    """Return wall and CPU seconds, and the peak of anonymous memory in MiB.

    Pending writes are flushed before.
    """
    os.sync()
    started, cpu = time.perf_counter(), time.process_time()
    with watched_memory() as peak:
        action()
    return time.perf_counter() - started, time.process_time() - cpu, peak[0]


def anonymous_memory() -> float:
    """Return the anonymous memory of this process in MiB; memory-mapped files do not count."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) / 1024


@contextmanager
def watched_memory() -> Iterator[list[float]]:
    """Watch the anonymous memory of this process; yield a list with its peak in MiB."""
    peak = [0.0]
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            peak[0] = max(peak[0], anonymous_memory())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


if __name__ == "__main__":
    main()
