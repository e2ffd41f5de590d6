"""Fixtures and checks for all tests."""

import contextlib
import gc
import importlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path

import pytest
from hypothesis import settings
from programs import run_captured
from samples import read_table

gc.disable()  # While test modules are imported, collections take a fifth of the time.

# Property tests have no deadline: the machine may be busy. CI gives --hypothesis-profile=thorough.
settings.register_profile("virnucpro", deadline=None, max_examples=10)
settings.register_profile("thorough", deadline=None, max_examples=200)
settings.load_profile("virnucpro")

_SHARED = Path(os.environ.get("VIRNUCPRO_SHARED", Path(__file__).parents[2] / "shared"))

TOLERANCE = 2e-4
"""Scores are printed with four decimals: the last one may differ by rounding."""
NUMBERS = {"score", "probability", "fdr"}


@pytest.fixture(scope="session", autouse=True)
def no_ignored_signals():
    """Restore the handlers of signals that nohup or a background job of a shell ignores."""
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
    """The folder with real genomes and reference outputs."""
    if not (_SHARED / "genomes" / "genomes.tsv").is_file():
        pytest.skip(f"no real data at {_SHARED}: set VIRNUCPRO_SHARED to the shared folder")
    return _SHARED


@pytest.fixture(scope="session")
def gpu():
    """A CUDA device, initialised: files that the driver opens once are not leaks of a test.

    VIRNUCPRO_GPU_TESTS=cpu replaces it by the CPU: tests of a GPU then run, in part, without one.
    """
    import torch

    if os.environ.get("VIRNUCPRO_GPU_TESTS") == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device, and torch built for it")
    device = torch.device("cuda")
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        rows = torch.ones(64, 64, dtype=dtype).pin_memory().to(device, non_blocking=True)
        (rows @ rows).cpu()
    return device


@pytest.fixture(scope="session")
def fonts():
    """The fonts of matplotlib: files that it opens once are not leaks of a test."""
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().set_title("text")
    figure.savefig(os.devnull, format="png")


@pytest.fixture
def cuda(gpu):
    """A CUDA device, not the CPU in its place."""
    if gpu.type != "cuda":
        pytest.skip("needs a CUDA device")
    return gpu


@pytest.fixture
def nothing_waits(gpu):
    """Return a context in which torch raises an error if the host waits for the GPU."""
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


@pytest.fixture(scope="session")
def needs():
    """Return a function that imports an optional package; without it, the test is skipped.

    Under CI, which installs all of them, the test fails.
    """

    def optional(name):
        if os.environ.get("CI"):
            return importlib.import_module(name)
        return pytest.importorskip(name, reason=f"needs {name}: pip install '.[test]'")

    return optional


@pytest.fixture(scope="module")
def importable():
    """Return a function that imports a module of tests/data, which spawned processes can import.

    They do not import pytest again.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent / "data"))
        patch.setattr(sys.modules["__main__"], "__spec__", None)
        patch.delattr(sys.modules["__main__"], "__file__", raising=False)
        yield importlib.import_module


@pytest.fixture(scope="session")
def stand_ins():
    """The module that writes small files in the published formats."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent / "data"))
        return importlib.import_module("stand_ins")


@pytest.fixture(scope="session")
def doubles():
    """Test doubles of a rank's task and a reporter, see tests/data/doubles.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent / "data"))
        return importlib.import_module("doubles")


@pytest.fixture(scope="module")
def published_files(stand_ins, tmp_path_factory):
    """The files of a small published bundle."""
    folder = tmp_path_factory.mktemp("DNABERT-S")
    stand_ins.publish(folder)
    return folder


@pytest.fixture
def recipe(stand_ins, published_files, monkeypatch):
    """The recipe of that bundle, registered under its name."""
    from virnucpro.bundles import published

    made = stand_ins.recipe_of_files(published_files)
    monkeypatch.setitem(published._RECIPES, made.name, made)
    return made


@pytest.fixture
def data(tmp_path, monkeypatch):
    """The data folder of this test."""
    from virnucpro.bundles.data_folder import DataFolder

    monkeypatch.setenv("VIRNUCPRO_DATA", str(tmp_path / "data"))
    return DataFolder(tmp_path / "data")


@pytest.fixture
def reporting(doubles, monkeypatch):
    """Return a function that sets what the command line calls after each event of a run."""

    def call(function, *, quiet=False):
        monkeypatch.setattr(
            "virnucpro.cli.run_job.open_reporter",
            lambda **_: doubles.CallingReporter(function, quiet=quiet),
        )

    return call


@pytest.fixture
def coordinator_workers(importable):
    """Worker functions for a coordinator."""
    return importable("coordinator_workers")


@pytest.fixture(scope="session", autouse=True)
def temporary_folder(tmp_path_factory):
    """The folder for temporary files of this session and of its child processes."""
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        # torch creates this folder with the first module on the meta device, and keeps it
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        patch.setattr(tempfile, "tempdir", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def modules_are_no_garbage():
    """Exclude the imported modules from garbage collections, which take 0.4 s with them."""
    gc.freeze()
    gc.enable()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def loggers_propagate():
    """Let pytest capture the loggers of torch at the root, as all others.

    It would add a handler to each of its 42 loggers three times a test, which takes 1.5 ms.
    """
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.propagate = True


@pytest.fixture(autouse=True)
def no_leaks(temporary_folder):
    """Fail a test that leaves a child process, an open descriptor or a temporary file."""
    gc.freeze()  # collections visit what the test makes: with the modules, one takes 0.3 s
    before = _open_resources(temporary_folder)
    yield
    left = _open_resources(temporary_folder) - before
    if left:
        gc.collect()  # objects in a reference cycle are not leaks
        left = _open_resources(temporary_folder) - before
    gc.unfreeze()
    if left:
        pytest.fail("leaks: " + "; ".join(sorted(left)))


# Thousands of tests call these functions twice: pathlib would be slow.
def _open_resources(temporary_folder: Path) -> set[str]:
    return {
        *_children(),
        *_descriptors(),
        *(f"temporary file {name}" for name in os.listdir(temporary_folder)),  # noqa: PTH208
    }


# The resource tracker of multiprocessing, and its pipe, exist until the session ends.
def _children() -> set[str]:
    children = set()
    for thread in os.listdir("/proc/self/task"):  # noqa: PTH208
        listing = f"/proc/self/task/{thread}/children"
        with contextlib.suppress(OSError), open(listing) as stream:  # noqa: PTH123 - or it has ended
            children |= {f"process {pid}" for pid in stream.read().split()}
    return children - {f"process {resource_tracker._resource_tracker._pid}"}


def _descriptors() -> set[str]:
    tracker = str(resource_tracker._resource_tracker._fd)
    descriptors = set()
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):  # the listing's own descriptor
            target = os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115
            if number != tracker and not target.startswith(("/proc/", "/dev/nvidia")):
                descriptors.add(f"descriptor {number} -> {target}")
    return descriptors


def differences(left: list[dict[str, str]], right: list[dict[str, str]]) -> list[str]:
    """List the differences of two tables beyond rounding; a best window may change among equals."""
    found = [] if len(left) == len(right) else [f"{len(left)} rows, {len(right)} rows"]
    for number, (one, other) in enumerate(zip(left, right, strict=False)):
        for column, value in one.items():
            if value == other[column] or column.startswith("best_"):
                continue
            numbers = column in NUMBERS and "NA" not in {value, other[column]}
            if numbers and abs(float(value) - float(other[column])) <= TOLERANCE:
                continue
            found.append(f"row {number}, {column}: {value!r}, {other[column]!r}")
    return found


@pytest.fixture
def tables():
    """Return a function that reads a TSV file into dicts."""
    return read_table


@pytest.fixture
def difference_of():
    """Return a function that lists the differences of two run folders' predictions.

    The name of the input file may differ.
    """

    def table(path: Path) -> list[dict[str, str]]:
        return [{**row, "file": ""} for row in read_table(path)]

    def compare(left: Path, right: Path) -> list[str]:
        names = ("predictions.tsv", "tracks/windows.tsv")
        return [
            found
            for name in names
            for found in differences(table(left / name), table(right / name))
        ]

    return compare


@pytest.fixture(scope="session")
def computing_here():
    """Return a context in which commands compute in this process if they use one CPU."""
    from virnucpro.compute.in_process import CpuHeartbeat, InProcessRank
    from virnucpro.compute.rank_launch import RankLaunch
    from virnucpro.run.execution import Execution

    @dataclass(frozen=True, kw_only=True)
    class InProcess(Execution):
        in_process: bool = True

    class TaskInProcess(RankLaunch):
        """What `predict --task` starts."""

        def _processes(self, task, shares, log):
            if len(self.devices) > 1:
                return super()._processes(task, shares, log)
            return InProcessRank(None, CpuHeartbeat(lambda: None), task, shares, log)

    @contextlib.contextmanager
    def computing():
        with pytest.MonkeyPatch.context() as patch:
            for module in ("run_job", "commands.train_command", "commands.evaluate_command"):
                patch.setattr(f"virnucpro.cli.{module}.Execution", InProcess)
            patch.setattr("virnucpro.compute.predict.RankLaunch", TaskInProcess)
            yield

    return computing


@pytest.fixture(scope="module")
def one_process(computing_here):
    """Let commands compute in this process if they use one CPU, as the Python API does.

    The start of a worker takes a second. Modules whose subject is inputs, results or files use this
    fixture. Those about workers do not, and tests/unit/api compares the tables of both ways.
    """
    with computing_here():
        yield


@pytest.fixture
def reading_here(monkeypatch):
    """Read published weights in this process: the start of one that imports torch takes 2 s."""
    from virnucpro.bundles.convert import call_directly

    for module in ("run.embed_job", "runtime.isolation"):
        monkeypatch.setattr(f"virnucpro.{module}.run_isolated", call_directly)


@pytest.fixture
def virnucpro():
    """Return a function that runs the command line in another process; see `run_captured`."""

    def run(*arguments, **options) -> subprocess.CompletedProcess[str]:
        return run_captured(sys.executable, "-m", "virnucpro", *arguments, **options)

    return run


@pytest.fixture
def called(capsys):
    """Return a function like that of `virnucpro`, but the command runs in this process.

    It fails if the exit code is not `code`, if one is given.
    """
    from virnucpro.cli.main import main

    def run(*arguments, code=None) -> subprocess.CompletedProcess[str]:
        words = [*map(str, arguments)]
        try:
            ended = main(words)
        except SystemExit as stopped:  # wrong usage
            ended = stopped.code
        done = subprocess.CompletedProcess(words, ended, *capsys.readouterr())
        assert code in (None, ended), done.stderr
        return done

    return run


def processes_of(session):
    """Return the pids of the live processes of a session."""
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
    """Return a check that a session is empty soon after the end of its leader."""

    def check(session):
        deadline = time.monotonic() + 10.0
        while processes_of(session) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert processes_of(session) == []

    return check


@pytest.fixture
def ranks_of():
    """Return a function that lists the pids of a run's ranks; the run leads its session."""

    def pids(process):
        return [
            pid
            for pid in processes_of(process.pid)
            if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]

    return pids
