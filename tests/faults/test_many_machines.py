"""Rows 37 to 39: several tasks in one run, on a shared file system with stale caches."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import h5py
import pytest
from programs import PREDICT, VIRNUCPRO, with_fault
from samples import random_records

from virnucpro.run.run import Run
from virnucpro.run_dir import RunDirectory

pytestmark = pytest.mark.timeout(600)

TWIN_ROUNDS = int(os.environ.get("VIRNUCPRO_TWIN_ROUNDS", "3"))
TABLES = ("predictions.tsv", "tracks/windows.tsv")
WITHOUT_LOCKS = """
import errno, fcntl
def _refused(*_):
    raise OSError(errno.ENOSYS, "Function not implemented")
fcntl.fcntl = fcntl.flock = fcntl.lockf = _refused
"""


def virnucpro(*words, before=(), program=VIRNUCPRO, **options):
    """Start a program; `before` is a command that runs it, such as strace."""
    environment = {**os.environ, **options.pop("environment", {})}
    search = [environment.get("PYTHONPATH", ""), *sys.path]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, search))
    command = [*before, *program, *words]
    return subprocess.Popen(
        list(map(str, command)), env=environment, stderr=subprocess.PIPE, text=True, **options
    )


def task_of(reads, folder, task, *options, **keywords):
    words = (*PREDICT, reads, "-o", folder, "--task", task, "--devices", "cpu:1", *options)
    return virnucpro(*words, **keywords)


def waiting(reads, folder, task):
    """Start a task, and return it when it waits in its second commit; return its gate, too."""
    fired, gate = (folder.with_name(name) for name in ("fired", "gate"))
    plan = {"point": "commit", "number": 1, "how": "wait", "gate": str(gate)}
    process = task_of(reads, folder, task, program=with_fault(fired, **plan))
    wait_for(fired.exists, "a second commit")
    wait_for(lambda: RunDirectory(folder).segments(), "a first segment")
    return process, gate


def ended(*processes):
    texts = [process.communicate(timeout=200)[1] for process in processes]
    return [process.returncode for process in processes], texts


@pytest.fixture(scope="module")
def reads(tmp_path_factory):
    """Some 3,500 windows, which make some 20 units."""
    path = tmp_path_factory.mktemp("input") / "reads.fa"
    path.write_text(random_records(1000, seed=37, letters="ACGT", least=100, most=3000))
    return path


@pytest.fixture(scope="module")
def alone(reads, tmp_path_factory):
    """Run folder of one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert ended(virnucpro(*PREDICT, reads, "-o", folder, "--devices", "cpu:1"))[0] == [0]
    return folder


def assert_equal_results(folder, alone, *options):
    codes, texts = ended(virnucpro("aggregate", folder, *options))
    assert codes == [0], texts
    for name in TABLES:
        assert (folder / name).read_bytes() == (alone / name).read_bytes(), name
    with h5py.File(folder / "embeddings.h5") as one, h5py.File(alone / "embeddings.h5") as other:
        assert (one["embeddings"][:] == other["embeddings"][:]).all()
    return texts[0]


@pytest.mark.slow
def test_the_same_task_twice_at_once_without_locks(reads, alone, tmp_path):
    """Row 37: a twin of an array task, a zombie after a requeue."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_LOCKS)
    environment = {"PYTHONPATH": str(tmp_path)}
    for number in range(TWIN_ROUNDS):
        folder = tmp_path / f"run-{number}"
        twins = (task_of(reads, folder, "0/1", environment=environment) for _ in range(2))
        codes, texts = ended(*twins)
        assert codes == [0, 0], texts
        assert_equal_results(folder, alone)
        assert not list(folder.rglob("*.tmp"))
        shutil.rmtree(folder)


def test_a_launch_without_locks(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_LOCKS)
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    (source / "a.fa").write_text(random_records(3, seed=5, letters="ACGT", least=500, most=900))
    words = ("launch", "--input-dir", source, "-o", target, "--devices", "cpu:1")
    for option, code in ((), 1), (("--no-lock",), 0):
        process = virnucpro(*words, *option, environment={"PYTHONPATH": str(tmp_path)})
        codes, (text,) = ended(process)
        assert codes == [code], text
        assert ("add --no-lock" in text) == bool(code)
    assert (target / "a.fa" / "predictions.tsv").read_text().count("\n") == 4


@contextmanager
def mounted(folder, place):
    """Mount a folder at a second place that keeps attributes, names and absences for 60 s."""
    place.mkdir()
    caches = "attr_timeout=60,entry_timeout=60,negative_timeout=60"
    subprocess.run(["bindfs", "-o", caches, folder, place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["fusermount", "-u", "-z", place], check=True)


needs_fuse = pytest.mark.skipif(
    shutil.which("bindfs") is None or not os.access("/dev/fuse", os.R_OK | os.W_OK),
    reason="needs bindfs and /dev/fuse (apt-get install bindfs, as root)",
)


@pytest.mark.slow
@needs_fuse
@pytest.mark.parametrize("tasks", [("0/2", "1/2"), ("0/1", "0/1")], ids=["two tasks", "twins"])
def test_two_machines_with_stale_caches(reads, alone, tmp_path, tasks):
    """Row 38: each task sees the folder through a mount with caches of its own."""
    first, second = (tmp_path.with_name(f"{tmp_path.name}-{name}") for name in ("one", "other"))
    with mounted(tmp_path, first) as one, mounted(tmp_path, second) as other:
        places = zip((one, other), tasks, strict=True)
        codes, texts = ended(*(task_of(reads, place / "run", task) for place, task in places))
        assert codes == [0, 0], texts
    assert_equal_results(tmp_path / "run", alone)


def processes_of(pid):
    """Return a process and its descendants."""
    tasks = Path(f"/proc/{pid}/task")
    children = [c for t in tasks.iterdir() for c in (t / "children").read_text().split()]
    return [pid, *(one for child in children for one in processes_of(int(child)))]


def wait_for(condition, what):
    for _ in range(2000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"never: {what}")


@pytest.mark.slow
def test_a_machine_that_freezes_and_comes_back(reads, alone, tmp_path):
    """Row 37: other tasks, of another number, compute its units; its late segments are copies."""
    folder = tmp_path / "run"
    frozen, gate = waiting(reads, folder, "0/2")
    pids = processes_of(frozen.pid)
    for pid in reversed(pids):
        os.kill(pid, signal.SIGSTOP)
    codes, texts = ended(*(task_of(reads, folder, task) for task in ("0/3", "1/3", "2/3")))
    assert codes == [0, 0, 0], texts
    early = {path: path.read_bytes() for _, path in RunDirectory(folder).segments()}
    units = {unit for unit, _ in RunDirectory(folder).segments()}
    assert units == {*range(Run.open(RunDirectory(folder)).n_units)}
    gate.touch()
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    codes, texts = ended(frozen)
    assert codes == [0], texts
    assert len(RunDirectory(folder).segments()) > len(units)
    assert {path: path.read_bytes() for path in early} == early
    assert_equal_results(folder, alone)


@pytest.mark.slow
@pytest.mark.parametrize("error", ["EIO", "ESTALE", "EDQUOT"])
def test_errors_of_the_file_server_for_a_while(reads, alone, tmp_path, error):
    """Row 38: the worker is restarted, or the task computes its units when it is rerun."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace (apt-get install strace)")
    folder = tmp_path / "run"
    inject = f"inject=fsync:error={error}:when=8..9"
    strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", inject]
    codes, texts = ended(task_of(reads, folder, "0/1", before=strace))
    if codes[0] != 0:
        assert "Traceback" not in texts[0]
        assert "warning" in texts[0] or "error" in texts[0]
        codes, texts = ended(task_of(reads, folder, "0/1"))
        assert codes == [0], texts
    assert_equal_results(folder, alone)


@pytest.mark.slow
def test_aggregations_while_work_goes_on(reads, alone, tmp_path):
    """Row 39: each aggregation writes whole tables, which say what is missing."""
    folder = tmp_path / "run"
    working, gate = waiting(reads, folder, "0/1")
    n_records = len((alone / "predictions.tsv").read_text().splitlines())
    partial = 0
    while working.poll() is None:
        codes, texts = ended(virnucpro("aggregate", folder))
        assert codes[0] in {0, 2}, texts
        lines = (folder / "predictions.tsv").read_text().splitlines()
        assert len(lines) == n_records
        n_missing = sum("\tmissing\t" in line for line in lines)
        assert (codes[0] == 2) == (n_missing > 0) == (folder / "missing.tsv").exists()
        partial += codes[0] == 2
        gate.touch()
    assert ended(working)[0] == [0]
    assert partial
    assert_equal_results(folder, alone)
