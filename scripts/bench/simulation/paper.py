"""Numbers on paper for many nodes: formulas, their assumptions, and measured inputs."""

import hashlib
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from simulation.tables import markdown

WEIGHTS: Final = 6e9
"""Bytes of ESM-2 3B in fp16 and of DNABERT-S."""

VECTOR: Final = 2 * (768 + 2560)
"""Bytes of the vectors of a row in fp16: DNABERT-S and ESM-2 3B."""

WINDOW: Final = 500
ITEMS: Final = 10**9
MERGE_BYTES: Final = 11
"""Memory of `merge` for a record of one window, of many millions of records.

10 for the record (decision 0091), 1 for the coverage of its row.
"""

METADATA_RATES: Final = (5e3, 50e3)
"""Assumed metadata calls per second of an NFS server and of a parallel file system."""

BANDWIDTHS: Final = (2e9, 20e9, 100e9)
"""Assumed bytes per second of an NFS server, and of parallel file systems."""

NODES: Final = (64, 512, 4096)
HEARTBEAT_S: Final = 10.0
UNIT_S: Final = 900.0
FEW, MANY = 2560, 100_000
"""Windows of the two measured runs: differences between them give figures per item."""

SMALL_UNIT: Final = 256


@dataclass(frozen=True, slots=True)
class Measured:
    """Inputs measured by `measure`.

    Attributes
    ----------
    start_calls, run_calls
        File system calls of a task with one unit: all paths, and paths in the run.
    unit_calls
        Further calls for each unit in the run: claim, look, segment.
    heartbeat_calls
        Calls for one status.json.
    hash_rate
        Bytes per second of SHA-256 on one core.
    index_bytes, table_bytes, segment_bytes
        Bytes per window of the index without bases, of both tables, and of the segments without
        vectors.
    merge_seconds
        Time of `merge` per window.
    """

    start_calls: int
    run_calls: int
    unit_calls: float
    heartbeat_calls: float
    hash_rate: float
    index_bytes: float
    table_bytes: float
    segment_bytes: float
    merge_seconds: float


MEASURED: Final = Measured(
    start_calls=26447,
    run_calls=278,
    unit_calls=9.0,
    heartbeat_calls=2.0,
    hash_rate=1.74e9,
    index_bytes=88.9,
    table_bytes=170.0,
    segment_bytes=88.3,
    merge_seconds=3.51e-5,
)
"""On 2 cores Intel Xeon (24 GiB) with other work, with the bundle mini."""


def on_paper(given: Measured) -> Mapping[str, str]:
    """Return texts and tables by title."""
    return {
        "Measured inputs": inputs(given),
        "Import storm": imports(given),
        "Weights": weights(given),
        "Calls for units and heartbeats": calls(given),
        "One billion items": billion(given),
    }


def inputs(given: Measured) -> str:
    """List the measured inputs."""
    rows = [
        [name.replace("_", " "), f"{value:,.0f}" if value >= 100 else f"{value:.3g}"]
        for name, value in asdict(given).items()
    ]
    return markdown(["input", "value"], rows)


def imports(given: Measured) -> str:
    """Compute the time of the starts of all tasks, if their calls reach a metadata server."""
    header = ["nodes", *(f"{rate:,.0f} calls/s" for rate in METADATA_RATES)]
    rows = [
        [
            f"{nodes:,}",
            *(
                f"{nodes * given.start_calls / rate:,.0f} s; "
                f"local environment {nodes * given.run_calls / rate:,.1f} s"
                for rate in METADATA_RATES
            ),
        ]
        for nodes in NODES
    ]
    return markdown([*header], rows)


def weights(given: Measured) -> str:
    """Compute the time to read the weights once on each node, and to hash them."""
    header = ["nodes", "bytes", *(f"{rate / 1e9:,.0f} GB/s" for rate in BANDWIDTHS)]
    rows = [
        [
            f"{nodes:,}",
            f"{nodes * WEIGHTS / 1e12:.1f} TB",
            *(f"{nodes * WEIGHTS / rate:,.0f} s" for rate in BANDWIDTHS),
        ]
        for nodes in NODES
    ]
    hashing = f"Hashing 6 GB takes {WEIGHTS / given.hash_rate:.1f} s on one core of this machine."
    return f"{markdown(header, rows)}\n\n{hashing}"


def calls(given: Measured) -> str:
    """Count calls per second of all workers while they compute."""
    header = ["workers", "units", "heartbeats, one worker a task", "heartbeats, 8 workers a task"]
    rows = [
        [
            f"{workers:,}",
            f"{workers * given.unit_calls / UNIT_S:,.1f}",
            f"{workers * given.heartbeat_calls / HEARTBEAT_S:,.0f}",
            f"{workers / 8 * given.heartbeat_calls / HEARTBEAT_S:,.0f}",
        ]
        for workers in NODES
    ]
    return markdown(header, rows)


def billion(given: Measured) -> str:
    """Compute bytes, files and memory of a run of 10^9 windows, each a record."""
    units = ITEMS / 2048
    rows = [
        ["bases in the index", f"{ITEMS * WINDOW / 1e9:,.0f} GB"],
        ["index without bases", f"{ITEMS * given.index_bytes / 1e9:,.0f} GB"],
        ["vectors in segments, and again in embeddings.h5", f"{ITEMS * VECTOR / 1e12:.1f} TB each"],
        ["segments without vectors", f"{ITEMS * given.segment_bytes / 1e9:,.0f} GB"],
        ["segment files, 2,048 rows each", f"{units:,.0f}"],
        ["tables", f"{ITEMS * given.table_bytes / 1e9:,.0f} GB"],
        ["memory of merge", f"{ITEMS * MERGE_BYTES / 1e9:,.0f} GB"],
        ["time of merge without embeddings.h5", f"{ITEMS * given.merge_seconds / 3600:,.1f} h"],
        ["reading vectors once at 2 GB/s", f"{ITEMS * VECTOR / 2e9 / 3600:,.1f} h"],
        ["reading vectors once at 20 GB/s", f"{ITEMS * VECTOR / 20e9 / 3600:,.1f} h"],
    ]
    return markdown(["10^9 windows of 500 bases, each a record", "value"], rows)


def measure() -> Measured:
    """Run the program on synthetic windows; count its calls with strace, and its bytes."""
    with tempfile.TemporaryDirectory() as name:
        one, few, many = (_Run(Path(name), windows) for windows in (SMALL_UNIT, FEW, MANY))
        every, first = one.traced_work(), few.traced_work()
        own, more = one.own(every), few.own(first)
        many.call("work", "--task", "0/1", "--devices", "cpu:1")
        merged = [run.call("merge") for run in (few, many)]
        per = MANY - FEW
        beats = [
            call
            for call in more
            if "/status.json" in call and str(few.folder / "run" / "parts") in call
        ]
        return Measured(
            start_calls=len([call for call in every if "fsync" not in call]),
            run_calls=len(own),
            unit_calls=(len(more) - len(own)) / (few.units - one.units),
            heartbeat_calls=len(beats) / len([call for call in beats if "rename" in call]),
            hash_rate=hash_rate(),
            index_bytes=(many.size("index/*") - few.size("index/*")) / per - WINDOW,
            table_bytes=(many.size("*.tsv") - few.size("*.tsv")) / per,
            segment_bytes=(
                many.size("run/parts/*/run/shards/*/*") - few.size("run/parts/*/run/shards/*/*")
            )
            / per,
            merge_seconds=(merged[1].ru_utime - merged[0].ru_utime) / per,
        )


def hash_rate() -> float:
    """Return the bytes per second of SHA-256, the best of five."""
    block, took = bytes(1 << 27), []
    for _ in range(5):
        began = time.perf_counter()
        hashlib.sha256(block)
        took.append(time.perf_counter() - began)
    return len(block) / min(took)


class _Run:
    """A planned run of random windows, without vectors."""

    def __init__(self, folder: Path, windows: int) -> None:
        dice = random.Random(windows)  # noqa: S311 - no secret
        self.folder = folder / f"run-{windows}"
        source = folder / f"{windows}.fa"
        with source.open("w") as stream:
            for number in range(windows):
                stream.write(f">r{number}\n{''.join(dice.choices('ACGT', k=WINDOW))}\n")
        options = ("-o", self.folder, "--ranks", "1", "--embeddings", "none", "-q")
        self._run("plan", source, *options)
        self.units = math.ceil(windows / max(SMALL_UNIT, windows // 32))

    def call(self, command: str, *options: str) -> resource.struct_rusage:
        """Run a command on the run; return its use of resources."""
        return self._run(command, self.folder, *options, "-q")

    def traced_work(self) -> list[str]:
        """Compute the run under strace; return its calls with a path, and fsync."""
        trace = self.folder.with_suffix(".txt")
        tracer = ("strace", "-f", "-y", "-o", trace, "-e", "trace=%file,fsync")
        self._run("work", self.folder, "--task", "0/1", "--devices", "cpu:1", "-q", before=tracer)
        return [line for line in trace.read_text().splitlines() if " resumed>" not in line]

    def own(self, calls: Sequence[str]) -> list[str]:
        """Return the calls on files of the run, except those on open files."""
        return [one for one in calls if str(self.folder) in one and "AT_EMPTY_PATH" not in one]

    def size(self, pattern: str) -> int:
        """Return the bytes of files of the run."""
        return sum(path.stat().st_size for path in self.folder.glob(pattern))

    def _run(self, *words: object, before: Sequence[object] = ()) -> resource.struct_rusage:
        command = [*before, sys.executable, "-m", "virnucpro", *words]
        process = subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"exit status {process.returncode}: {command}")
        return used
