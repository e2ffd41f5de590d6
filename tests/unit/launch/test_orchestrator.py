"""Launches with real workers: every file has a row, whatever happens to it or to its worker."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from virnucpro.dispatch.worker_file import file_of
from virnucpro.errors import DeviceError, InputError, RunLockedError, UsageError, WorkerError
from virnucpro.launch import (
    LauncherOrchestrator,
    LaunchOptions,
    ProcessSpawner,
    ResourceAllocator,
    process_records,
    run_multi_gpu,
)
from virnucpro.launch.results import FileStatus, ResultQueue, RunOver
from virnucpro.launch.worker_spec import accepted, load_worker
from virnucpro.runtime.devices import Device, Gpu
from virnucpro.runtime.folder_lock import folder_lock

pytestmark = pytest.mark.timeout(60)
OUTCOMES = {
    "ok": ("done", ""),
    "number": ("done", ""),
    "partial": ("partial", ""),
    "again": ("skipped", ""),
    "broken": ("failed", "ValueError: cannot be\tread; look at line 3"),
    "die": ("failed", "SIGKILL"),
    "die_once": ("done", ""),
    "sleep__long": ("timed_out", "longer than 2 s"),
}


@pytest.fixture(scope="module")
def of_all_kinds(tmp_path_factory):
    """A launch in which everything happens that can."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[2] / "data"))
        patch.setattr(sys.modules["__main__"], "__spec__", None)
        patch.delattr(sys.modules["__main__"], "__file__", raising=False)
        folder, out = tmp_path_factory.mktemp("in"), tmp_path_factory.mktemp("out")
        (folder / "sleep").mkdir()
        for name in OUTCOMES:
            path = folder / (name.replace("__", "/") + ".txt")
            path.write_text("sleep 60" if name.startswith("sleep") else name)
        orchestrator = LauncherOrchestrator()
        report = orchestrator.launch(
            folder,
            out,
            "cpu:2",
            "**/*.txt",
            "launch_workers:Obedient",
            options=LaunchOptions(threads=2, max_attempts=2, file_timeout=2.0),
            note="told",
        )
        yield orchestrator, report, folder, out


def test_every_file_has_its_row_and_its_status(of_all_kinds):
    _, report, _, out = of_all_kinds
    header, *rows = report.rows
    assert set(header) == {"file", "status", "seconds", "gpu", "attempts", "error"} | {
        "bytes",
        "note",
        "result",
        "second",
    }
    found = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    assert sorted(found) == sorted(name.replace("__", "/") + ".txt" for name in OUTCOMES)
    for name, (status, error) in OUTCOMES.items():
        row = found[name.replace("__", "/") + ".txt"]
        assert row["status"] == status, row
        assert " ".join(error.split()) in row["error"]
    assert found["ok.txt"]["note"] == "told"
    assert found["number.txt"]["result"] == "42"
    assert (found["die.txt"]["attempts"], found["die_once.txt"]["attempts"]) == ("2", "2")
    assert report.exit_code == 2
    assert (out / "launch.tsv").read_text().splitlines()[0].split("\t") == header


def test_the_summary_for_programs_tells_all(of_all_kinds):
    _, _, _, out = of_all_kinds
    content = json.loads((out / "launch.json").read_text())
    assert content["exit_code"] == 2
    assert content["worker"] == "launch_workers:Obedient"
    assert content["devices"] == ["cpu", "cpu"]
    assert sum(gpu["processed"] for gpu in content["gpu_stats"].values()) == 5
    assert any("die_once.txt is begun again" in one for one in content["troubles"])
    files = {Path(one["file"]).name: one for one in content["files"]}
    assert files["ok.txt"]["result"]["list"] == [1, 2]
    assert "Traceback" in files["broken.txt"]["details"]
    assert "sleeping" in "".join(log.read_text() for log in (out / "launch.logs").iterdir())


def test_no_worker_is_left_and_their_ends_are_known(of_all_kinds):
    orchestrator = of_all_kinds[0]
    assert orchestrator.process_spawner.wait_for_completion(0)
    statuses = orchestrator.process_spawner.get_process_status()
    assert {one["status"] for one in statuses.values()} == {"finished"}
    assert sum(one["deaths"] for one in statuses.values()) >= 3


def test_a_worker_is_told_where_it_is(workers, files, tmp_path):
    launcher = LauncherOrchestrator()
    devices = [Device("cpu"), Device("cpu"), Device("cpu")]
    options = LaunchOptions(threads=6, quiet=True)
    report = launcher.launch(
        files(a="report", b="report"),
        tmp_path / "out",
        devices,
        worker=workers.Obedient,
        options=options,
    )
    assert [one.status for one in report.results] == [FileStatus.DONE] * 2  # and no third worker
    assert {one.result["gpu"] for one in report.results} <= {0, 1}
    for one in report.results:
        assert (one.result["device"], one.result["threads"]) == ("cpu", 3)
        assert one.result["environment"] == {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "3"}


def test_others_do_the_work_of_a_gpu_that_fails(workers, files, tmp_path, capsys):
    code = run_multi_gpu(
        files(**{f"f{n}": "ok" for n in range(6)}),
        tmp_path / "out",
        "cpu:2",
        worker=workers.Obedient,
        fail_on=1,
    )
    assert code == 0
    told = capsys.readouterr().err
    assert "worker 1: set-up failed: OSError: GPU 1 has fallen off the bus" in told
    assert "6 files: 6 done" in told


def test_where_no_gpu_works_nothing_is_done(workers, files, tmp_path, capsys):
    folder = files(a="ok", b="ok", c="ok")
    launcher = LauncherOrchestrator()
    with pytest.raises(WorkerError, match="fallen off the bus"):
        launcher.launch(folder, tmp_path / "out", "cpu:2", worker=workers.Obedient, fail_on="all")
    content = json.loads((tmp_path / "out" / "launch.json").read_text())
    assert {one["status"] for one in content["files"]} == {"left"}
    assert content["exit_code"] == 1
    assert any(
        "the launch was over before: All workers" in one["error"] for one in content["files"]
    )
    arguments = folder, tmp_path / "out", "cpu:2", "*", workers.Obedient
    assert run_multi_gpu(*arguments, fail_on="all") == 1
    assert "no file was done" in capsys.readouterr().err


def test_a_worker_without_keywords_and_durations(workers, files, tmp_path):
    launcher = LauncherOrchestrator()
    out = tmp_path / "out"
    assert launcher.run(files(a="x", b="y"), out, "cpu", worker=workers.Plain) == 0
    assert launcher.run(files(a="last 5"), out, "cpu", "a*", workers.Obedient) == 0
    assert 0 < launcher.load_balancer.get_overall_rtf() < 1


def test_what_cannot_begin_is_told_before_anything_is_written(files, tmp_path, capsys):
    launcher, out = LauncherOrchestrator(), tmp_path / "out"
    folder = files(a="ok")
    (folder / "launch.tsv").touch()
    for error, arguments in (
        (UsageError, (tmp_path / "nowhere", out, "cpu")),
        (InputError, (folder, out, "cpu", "*.wav")),
        (UsageError, (folder, out, "gpu", "a*")),
        (DeviceError, (folder, out, [7], "a*")),
        (DeviceError, (folder, out, [], "a*")),
        (UsageError, (folder, out, "cpu", "*")),
        (UsageError, (folder, out, "cpu", "a*", "no.such:Thing")),
    ):
        with pytest.raises(error):
            launcher.launch(*arguments)
        assert launcher.run(*arguments) == 1
    assert not out.exists()
    assert "error: " in capsys.readouterr().err


def test_what_a_launch_wrote_is_no_input_of_the_next(workers, files):
    folder = files(a="ok")
    for _ in range(2):
        report = LauncherOrchestrator().launch(
            folder, folder / "out", "cpu", "**/*", workers.Plain, options=LaunchOptions(quiet=True)
        )
        assert [Path(one.file).name for one in report.results] == ["a.txt"]


def test_a_second_launch_in_the_folder_is_refused_and_harms_nothing(workers, files, tmp_path):
    out = tmp_path / "out"
    arguments = files(a="ok"), out, "cpu", "a*", workers.Obedient
    assert run_multi_gpu(*arguments) == 0
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    with (
        folder_lock(out / "launch.lock", ""),
        pytest.raises(RunLockedError, match=f"{out}: another process .pid {os.getpid()}. is at"),
    ):
        LauncherOrchestrator().launch(*arguments)
    del before[out / "launch.lock"]
    assert all(path.stat().st_mtime_ns == at for path, at in before.items())
    assert run_multi_gpu(*arguments) == 0


def test_a_setup_is_validated_and_there_is_information(files):
    launcher = LauncherOrchestrator()
    folder = files(a="ok", b="sleep 60")
    assert launcher.validate_setup(folder, "cpu:2") == (True, "")
    assert launcher.validate_setup(folder / "a.txt", "cpu:2")[0] is False
    assert "no GPU 99" in launcher.validate_setup(folder, [99])[1]
    assert launcher.get_workload_info(folder, "*.txt")["file_count"] == 2
    gpus = launcher.get_gpu_info()
    assert gpus["count"] == len(gpus["ids"]) == len(gpus["details"])


@pytest.mark.parametrize(
    ("mask", "gpus", "numbers", "masks"),
    [
        (None, "auto", [0, 1, 2, 3], ["0", "2", "MIG-1", "MIG-2"]),
        (None, "1, 3", [1, 3], ["2", "MIG-2"]),
        (None, [3, 0], [3, 0], ["MIG-2", "0"]),
        (None, [Device("cuda", "2")], [1], ["2"]),
        ("2,0", "1", [1], ["0"]),
        ("2,0", [Device("cuda", "GPU-elsewhere")], [0], ["GPU-elsewhere"]),
        (None, "cpu:2", [0, 1], [None, None]),
        ("", "auto", [0, 1, 2], [None] * 3),
    ],
)
def test_workers_are_numbered_as_their_gpus(monkeypatch, mask, gpus, numbers, masks):
    there = [Gpu("GPU-a"), Gpu("GPU-b", ("MIG-1", "MIG-2")), Gpu("GPU-c")]
    monkeypatch.setattr("virnucpro.runtime.devices.list_gpus", lambda: there)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if mask is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
    launcher, options = LauncherOrchestrator(), LaunchOptions(threads=3)
    found, devices = launcher._devices(gpus, 9, options)
    assert (found, [device.mask for device in devices]) == (numbers, masks)
    assert launcher._devices(gpus, 1, options) == (found[:1], devices[:1])


# --- the spawner alone


def test_workers_are_ended_at_any_time(workers, files, tmp_path):
    """Also before the thread has come to where it can be broken off."""
    folder = files(a="sleep 60", b="sleep 60", c="sleep 60")
    allocator = ResourceAllocator()
    for delay in (0.0, 0.7):
        spawner, results = ProcessSpawner(log_folder=tmp_path), ResultQueue()
        tasks = allocator.create_task_queue(allocator.discover_files(folder), 2)
        keywords = {"output_dir": tmp_path, "device": "cpu", "threads": 1}
        spawner.spawn_workers(
            [0, 1], tasks, results, workers.Obedient, devices=["cpu", "cpu"], **keywords
        )
        with pytest.raises(UsageError, match="at work already"):
            spawner.spawn_workers([0], tasks, results, workers.Obedient, devices=["cpu"])
        assert not spawner.wait_for_completion(delay)
        began = time.monotonic()
        spawner.terminate_all()
        assert time.monotonic() - began < 10
        assert spawner.wait_for_completion(0)
        assert isinstance(results.get(timeout=1), RunOver)


def test_a_spawner_without_workers_has_nothing_to_end():
    spawner = ProcessSpawner()
    spawner.terminate_all()
    assert spawner.wait_for_completion()
    assert spawner.get_process_status() == {}


def test_ctrl_c_ends_a_launch_and_leaves_a_table(workers, files, tmp_path):
    folder, out = files(a="sleep 60", b="ok"), tmp_path / "out"
    over = threading.Event()

    def ask_at_work():
        while not any("sleeping" in log.read_text() for log in out.glob("launch.logs/*")):
            if over.wait(0.01):
                return
        os.kill(os.getpid(), signal.SIGINT)

    asking = threading.Thread(target=ask_at_work)
    asking.start()
    try:
        code = LauncherOrchestrator().run(folder, out, "cpu", worker=workers.Obedient)
    finally:
        over.set()
        asking.join()
    assert code == 130
    content = json.loads((out / "launch.json").read_text())
    assert [one["status"] for one in content["files"]] == ["left", "left"]


# --- workers by name


def test_workers_are_found_by_name_and_by_file(workers, tmp_path):
    assert load_worker("launch_workers:Obedient") is workers.Obedient
    (tmp_path / "mine_alone.py").write_text(
        "from virnucpro.dispatch import BaseWorker\n"
        "class Worker(BaseWorker):\n def setup(self, *a): ...\n def process(self, d): return d\n"
    )
    found = load_worker(str(tmp_path / "mine_alone.py"))
    assert (file_of(found), found.__name__) == (tmp_path / "mine_alone.py", "Worker")


@pytest.mark.parametrize(
    "spec", ["no.such.module", "launch_workers:NoWorker", "launch_workers:Gone", "a.py:B", "", ":X"]
)
def test_a_worker_that_is_none_is_refused(workers, spec):
    with pytest.raises(UsageError, match="worker "):
        load_worker(spec)


def test_a_worker_is_offered_what_it_takes(workers):
    offered = {"input_dir": 1, "output_dir": 2, "device": "cpu", "threads": 4}
    assert accepted(workers.Plain, offered) == {}
    taken = {name: offered[name] for name in ("output_dir", "device", "threads")}
    assert accepted(workers.Obedient, offered) == taken


# --- records in memory


def test_records_come_back_in_order_and_none_is_dropped(workers):
    numbers = [*range(100, 120), 13, *range(120, 140), 66, 99]
    records = [{"number": number, "kept": True} for number in numbers]
    done = process_records(
        records, workers.Doubles, 2, batch_size=4, devices="cpu:2", max_attempts=1
    )
    assert len(done) == len(records)
    for position, (record, made) in enumerate(zip(records, done, strict=True)):
        batch = numbers[position // 4 * 4 : position // 4 * 4 + 4]
        if 13 in batch:
            assert made == {**record, "_error": "ValueError: 13 is bad"}
        elif 66 in batch:
            assert "SIGKILL" in made["_error"]
        elif 99 in batch:
            assert "list of" in made["_error"]
        else:
            assert made == {"twice": 2 * record["number"]}
    assert "_error" not in records[20]


def test_records_that_no_worker_was_left_for_come_back(workers):
    records = [{"number": number} for number in range(10)]
    done = process_records(records, "launch_workers:Doubles", 1, 3, devices="cpu", fail=True)
    assert [one["number"] for one in done] == list(range(10))
    assert all("no device" in one["_error"] for one in done)


def test_records_need_workers():
    assert process_records([], "launch_workers:Doubles", 1) == []
    for n_gpus, batch_size in ((0, 1), (1, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            process_records([{}], "launch_workers:Doubles", n_gpus, batch_size)
