"""Compare one file per segment with segments appended to few files: commits, listing, reading.

python scripts/bench/packing.py [--folder DIR] [--names 100000]
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from virnucpro.durable import write_file
from virnucpro.run_dir import RunDirectory

SHARDS = 64
REPEATS = 5
COMMITS = {12_000: 200, 3_000_000: 30}
FRAME_BYTES = 48
"""Length, unit and digest ahead of an appended segment."""
READ = 20_000


def main() -> None:
    """Measure commits, then listing and reading; print medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="working folder; default: a temporary one")
    parser.add_argument("--names", type=int, default=100_000, help="files that are listed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        for size, n_commits in COMMITS.items():
            compare_commits(Path(name), os.urandom(size), n_commits)
        compare_reads(Path(name), given.names)


def compare_commits(folder: Path, content: bytes, n_commits: int) -> None:
    """Commit segments both ways in turns; print milliseconds of each commit."""
    took: dict[str, list[float]] = {"file": [], "append": []}
    cpu: dict[str, list[float]] = {"file": [], "append": []}
    for repeat in range(REPEATS):
        for way, action in (("file", write_files), ("append", append_all)):
            place = folder / f"{way}-{len(content)}-{repeat}"
            place.mkdir()
            os.sync()
            wall, used = timed(lambda: action(place, content, n_commits))  # noqa: B023 - used at once
            took[way].append(1000 * wall / n_commits)
            cpu[way].append(1000 * used / n_commits)
    for way, values in took.items():
        print(
            f"{len(content):,} bytes, {way}: {statistics.median(values):.2f} ms a commit "
            f"({min(values):.2f} to {max(values):.2f}), {statistics.median(cpu[way]):.2f} ms of CPU"
        )


def write_files(folder: Path, content: bytes, n_commits: int) -> None:
    """Commit each segment as a file: create, write, fsync, rename, fsync of the folder."""
    for unit in range(n_commits):
        with write_file(folder / f"unit-{unit:06d}.h5") as stream:
            stream.write(content)


def append_all(folder: Path, content: bytes, n_commits: int) -> None:
    """Append each segment to one file, and fsync it."""
    with (folder / "pack").open("wb", buffering=0) as stream:
        for _ in range(n_commits):
            stream.write(bytes(FRAME_BYTES) + content)
            os.fsync(stream.fileno())


def compare_reads(folder: Path, n_names: int) -> None:
    """List many files and walk the frames of few; read some of both."""
    run = RunDirectory(folder / "run")
    content = os.urandom(min(COMMITS))
    packs = [folder / f"pack-{shard}" for shard in range(SHARDS)]
    for shard, pack in enumerate(packs):
        run.shard(shard).mkdir(parents=True)
        with pack.open("wb") as stream:
            for unit in range(shard, n_names, SHARDS):
                run.segment(shard, unit).write_bytes(content if unit < READ else b"")
                stream.write(bytes(FRAME_BYTES) + content)
    files = [run.segment(unit % SHARDS, unit) for unit in range(READ)]
    frame = FRAME_BYTES + len(content)
    actions: dict[str, Callable[[], object]] = {
        f"list {n_names:,} files": run.segments,
        f"walk {n_names:,} frames of {SHARDS} files": lambda: walk(packs, frame),
        f"read {READ:,} files": lambda: [path.read_bytes() for path in files],
        f"read {READ:,} frames": lambda: read_frames(packs, frame),
    }
    for label, action in actions.items():
        results = []
        for _ in range(REPEATS):
            forget([*files, *packs])
            results.append(timed(action))
        wall, cpu = (statistics.median(one) for one in zip(*results, strict=True))
        print(f"{label}: {wall:.2f} s, {cpu:.2f} s of CPU")


def walk(packs: list[Path], frame: int) -> None:
    """Read the head of every frame."""
    for pack in packs:
        with pack.open("rb", buffering=0) as stream:
            place = 0
            while os.pread(stream.fileno(), FRAME_BYTES, place):
                place += frame


def read_frames(packs: list[Path], frame: int) -> None:
    """Read `READ` frames in the order of the files."""
    for pack in packs:
        with pack.open("rb", buffering=0) as stream:
            for _ in range(READ // len(packs)):
                stream.read(frame)


def forget(paths: list[Path]) -> None:
    """Remove the contents of files from the page cache; names and inodes stay in it."""
    os.sync()
    for path in paths:
        with path.open("rb") as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(action: Callable[[], object]) -> tuple[float, float]:
    """Return wall and CPU seconds of an action."""
    started, cpu = time.perf_counter(), time.process_time()
    action()
    return time.perf_counter() - started, time.process_time() - cpu


if __name__ == "__main__":
    main()
