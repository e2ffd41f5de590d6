"""What all tests share."""

import contextlib
import csv
import gc
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from multiprocessing import resource_tracker
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("virnucpro", deadline=None)  # machines have other work
settings.load_profile("virnucpro")

_SHARED = Path(os.environ.get("VIRNUCPRO_SHARED", Path(__file__).parents[2] / "shared"))

TOLERANCE = 2e-4
"""Scores are printed with four decimals: the last one may differ by rounding."""


@pytest.fixture(scope="session", autouse=True)
def no_ignored_signals():
    """Undo what a shell's background jobs and nohup hand down: the program would respect it."""
    usual = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    ignored = [one for one in usual if signal.getsignal(one) == signal.SIG_IGN]
    for one in ignored:
        signal.signal(one, usual[one])
    yield
    for one in ignored:
        signal.signal(one, signal.SIG_IGN)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with the real genomes and the reference output."""
    if not (_SHARED / "genomes" / "genomes.tsv").is_file():
        pytest.skip(f"no real data at {_SHARED}: point VIRNUCPRO_SHARED at the shared folder")
    return _SHARED


@pytest.fixture(scope="session")
def gpu():
    """A CUDA device, at work already: what the driver opens once is no leak of a test."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device, and torch built for it")
    device = torch.device("cuda")
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        rows = torch.ones(64, 64, dtype=dtype).pin_memory().to(device, non_blocking=True)
        (rows @ rows).cpu()
    return device


@pytest.fixture
def nothing_waits(gpu):
    """Give a context in which torch raises at whatever makes the host wait for the GPU."""
    import torch

    @contextlib.contextmanager
    def watched():
        if gpu.type != "cuda":
            yield
            return
        torch.cuda.synchronize()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype")
            torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")

    return watched


@pytest.fixture
def importable(monkeypatch):
    """Import a module of tests/data as a spawned process can, without importing pytest again."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "data"))
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    return importlib.import_module


@pytest.fixture(scope="session")
def stand_ins():
    """What makes small files in the published formats."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent / "data"))
        return importlib.import_module("stand_ins")


@pytest.fixture(scope="session")
def doubles():
    """A rank's task and a reporter, see tests/data/doubles.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent / "data"))
        return importlib.import_module("doubles")


@pytest.fixture
def reporting(doubles, monkeypatch):
    """Return a function: the command line then calls a function after each event of a run."""

    def call(function, *, quiet=False):
        monkeypatch.setattr(
            "virnucpro.cli.commands.run_job.open_reporter",
            lambda **_: doubles.CallingReporter(function, quiet=quiet),
        )

    return call


@pytest.fixture
def coordinator_workers(importable):
    """Worker functions for a coordinator."""
    return importable("coordinator_workers")


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory):
    """Where temporary files of this session go, those of its child processes too."""
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        # torch makes this folder when a module is first built on the meta device, and keeps it
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        patch.setattr(tempfile, "tempdir", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def no_leaks(temporary_folder):
    """Fail a test that leaves a child process, an open descriptor or a temporary file behind."""
    before = _belongings(temporary_folder)
    yield
    if _belongings(temporary_folder) - before:
        gc.collect()  # what only a reference cycle keeps open is no leak
    left = _belongings(temporary_folder) - before
    if left:
        pytest.fail("left behind: " + "; ".join(sorted(left)))


def _belongings(temporary_folder: Path) -> set[str]:
    return {
        *_children(),
        *_descriptors(),
        *(f"temporary file {path}" for path in temporary_folder.iterdir()),
    }


# multiprocessing's tracker and the pipe to it stay until the session ends.
def _children() -> set[str]:
    tracker = resource_tracker._resource_tracker._pid
    children = set()
    for listing in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that ended meanwhile
            children |= {f"process {pid}" for pid in listing.read_text().split()}
    return children - {f"process {tracker}"}


def _descriptors() -> set[str]:
    tracker = resource_tracker._resource_tracker._fd
    descriptors = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the listing's own descriptor
            target = link.readlink()
            if int(link.name) != tracker and not str(target).startswith(("/proc/", "/dev/nvidia")):
                descriptors.add(f"descriptor {link.name} -> {target}")
    return descriptors


def read_table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


def differences(left: list[dict[str, str]], right: list[dict[str, str]]) -> list[str]:
    """Where two tables differ by more than rounding. A best window may change among equals."""
    found = [] if len(left) == len(right) else [f"{len(left)} rows, {len(right)} rows"]
    for number, (one, other) in enumerate(zip(left, right, strict=False)):
        for column, value in one.items():
            if value == other[column] or column.startswith("best_"):
                continue
            numbers = column == "score" and "NA" not in {value, other[column]}
            if numbers and abs(float(value) - float(other[column])) <= TOLERANCE:
                continue
            found.append(f"row {number}, {column}: {value!r}, {other[column]!r}")
    return found


@pytest.fixture
def tables():
    """Read a TSV file into dicts."""
    return read_table


@pytest.fixture
def difference_of():
    """Where the predictions of two run folders differ."""

    def compare(left: Path, right: Path) -> list[str]:
        return differences(
            read_table(left / "predictions.tsv"), read_table(right / "predictions.tsv")
        ) + differences(read_table(left / "windows.tsv"), read_table(right / "windows.tsv"))

    return compare


@pytest.fixture
def virnucpro():
    """Run the command line in a process of its own; returns the finished process."""

    def run(*arguments, **options) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "virnucpro", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            **options,
        )

    return run


def processes_of(session):
    """Pids of the live processes in a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append(int(stat.parent.name))
    return found


@pytest.fixture
def no_orphan():
    """Check that two seconds after its leader's end a session is empty."""

    def check(session):
        deadline = time.monotonic() + 2.0
        while processes_of(session) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert processes_of(session) == []

    return check


@pytest.fixture
def ranks_of():
    """Pids of the ranks of a run that leads its session."""

    def pids(process):
        return [
            pid
            for pid in processes_of(process.pid)
            if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]

    return pids
