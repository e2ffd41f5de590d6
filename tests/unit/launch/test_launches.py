"""Launches with real workers: every file has a row, whatever happens to it or to its worker."""

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from cases import slow

from virnucpro.cli.main import main
from virnucpro.dispatch import loop
from virnucpro.dispatch.worker import file_of
from virnucpro.errors import (
    DeviceError,
    InputError,
    RunError,
    RunLockedError,
    UsageError,
    WorkerError,
)
from virnucpro.folder_lock import folder_lock
from virnucpro.launch import (
    FileWorker,
    LauncherOrchestrator,
    LaunchOptions,
    ProcessSpawner,
    ResourceAllocator,
    balancer,
    orchestrator,
    run_multi_gpu,
)
from virnucpro.launch.results import FileResult, ResultQueue, RunOver
from virnucpro.launch.table import FileShare, read_launch, readable
from virnucpro.launch.worker_spec import accepted_keywords, load_worker
from virnucpro.launch_dir import FileStatus
from virnucpro.runtime import watchdog
from virnucpro.runtime.devices import Device, Gpu

pytestmark = pytest.mark.timeout(60)
QUIET = LaunchOptions(quiet=True)

OUTCOMES = {
    "ok": ("done", ""),
    "number": ("done", ""),
    "partial": ("partial", ""),
    "again": ("skipped", ""),
    "broken": ("failed", "ValueError: cannot be read; look at line 3"),
    "die": ("failed", "SIGKILL"),
    "die_once": ("done", ""),
    "sleep/long": ("timed_out", "exceeded the limit of 2 s"),
}


def launched(folder, worker, gpus="cpu", pattern="*", options=QUIET, **keywords):
    """Launch the files of a folder; the results are in `out` beside it."""
    out = folder.parent / "out"
    return LauncherOrchestrator().launch(
        folder, out, gpus, pattern, worker, options=options, **keywords
    )


def rows_of(report):
    header, *rows = report.rows
    return {row[0]: dict(zip(header, row, strict=True)) for row in rows}


@pytest.fixture(scope="module")
def all_outcomes(workers, tmp_path_factory):
    """A launch whose files end in every possible way."""
    folder, out = tmp_path_factory.mktemp("in"), tmp_path_factory.mktemp("out")
    (folder / "sleep").mkdir()
    for name in OUTCOMES:
        (folder / name).write_text("sleep 60" if name.startswith("sleep") else name)
    launcher = LauncherOrchestrator()
    report = launcher.launch(
        folder,
        out,
        "cpu:2",
        "**/*",
        "launch_workers:Obedient",
        options=LaunchOptions(threads=2, max_attempts=2, file_timeout=2.0),
        note="a keyword",
    )
    return launcher, report, out


def test_every_file_has_a_row_and_a_status(all_outcomes):
    _, report, out = all_outcomes
    rows = rows_of(report)
    assert sorted(rows) == sorted(OUTCOMES)
    for name, (status, error) in OUTCOMES.items():
        assert rows[name]["status"] == status, rows[name]
        assert error in rows[name]["error"]
    assert rows["ok"]["note"] == "a keyword"
    assert rows["number"]["result"] == "42"
    assert (rows["die"]["attempts"], rows["die_once"]["attempts"]) == ("2", "2")
    assert report.exit_code == 2
    assert (out / "launch.tsv").read_text().splitlines()[0].split("\t") == report.rows[0]


def test_the_json_table_has_all_details(all_outcomes):
    _, _, out = all_outcomes
    content = json.loads((out / "launch.json").read_text())
    assert content["exit_code"] == 2
    assert content["worker"] == "launch_workers:Obedient"
    assert content["devices"] == ["cpu", "cpu"]
    assert sum(gpu["processed"] for gpu in content["gpu_stats"].values()) == 5
    assert any("die_once is retried" in one for one in content["troubles"])
    files = {Path(one["file"]).name: one for one in content["files"]}
    assert files["ok"]["result"]["list"] == [1, 2]
    assert "Traceback" in files["broken"]["details"]
    assert "sleeping" in "".join(log.read_text() for log in (out / "launch.logs").iterdir())


def test_all_workers_have_ended_and_their_states_are_known(all_outcomes):
    spawner = all_outcomes[0].process_spawner
    assert spawner.wait_for_completion(0)
    statuses = spawner.get_process_status()
    assert {one["status"] for one in statuses.values()} == {"finished"}
    assert sum(one["deaths"] for one in statuses.values()) >= 3


RETURNED = {
    "int_keys": "{1: 2, 'x': 3}",
    "tuple_keys": "{'m': {(1, 2): 3}}",
    "same_keys": "{1: 2, '1': 3}",
    "cycle": "contains_itself",
    "surrogate": "{'text': 'x\\udcff', 'other': '\\ud800'}",
    "tab_key": "{'a\\tb\\nc': 2}",
    "own_names": "{'file': 'other', 'status': 'great', 'error': 'none', 'worker': 9}",
    "numpy": "{'n': __import__('numpy').int64(5), 'f': __import__('numpy').float32(2.5)}",
    "nan": "{'duration': float('nan'), 'complete': True}",
    "nothing": "None",
    "list": "[{'n': 1}, {'n': 2}]",
    "array": "__import__('numpy').arange(3)",
    "long": "{'all': __import__('numpy').arange(2000)}",
}


@pytest.fixture(scope="module")
def unusual(workers, tmp_path_factory):
    """A launch of workers that return unusual results."""
    folder, out = tmp_path_factory.mktemp("in"), tmp_path_factory.mktemp("out")
    for name, source in RETURNED.items():
        (folder / name).write_text(source)
    Path(os.fsdecode(bytes(folder) + b"/caf\xe9")).write_text("{'x': 1}")
    launcher = LauncherOrchestrator()
    report = launcher.launch(folder, out, "cpu:2", "*", "launch_workers:Returns", options=QUIET)
    return launcher, report, out


def test_an_unusual_result_fails_its_own_file_only(unusual):
    launcher, report, out = unusual
    rows = rows_of(report)
    failed = {name: row["error"] for name, row in rows.items() if row["status"] == "failed"}
    assert set(failed) == {"tuple_keys", "same_keys", "cycle", "list", "array"}
    assert "invalid key (1, 2): keys must be unique texts" in failed["tuple_keys"]
    assert "must be unique" in failed["same_keys"]
    assert "contains itself" in failed["cycle"]
    assert "cannot be saved: its type is list, but columns" in failed["list"]
    assert "its type is ndarray, but columns of the table have names: return" in failed["array"]
    assert (rows["int_keys"]["1"], rows["int_keys"]["x"]) == ("2", "3")
    assert rows["tab_key"]["a b c"] == "2"
    assert (rows["numpy"]["n"], rows["numpy"]["f"]) == ("5", "2.5")
    assert rows["own_names"]["result.file"] == "other"
    assert rows["own_names"]["status"] == "done"
    assert report.exit_code == 2
    assert launcher.load_balancer.get_overall_rtf() == 0.0
    lines = (out / "launch.tsv").read_bytes().splitlines()
    assert len(lines) == 1 + len(RETURNED) + 1
    assert len({line.count(b"\t") for line in lines}) == 1
    content = json.loads((out / "launch.json").read_text("ascii"), parse_constant=pytest.fail)
    assert len(content["files"]) == len(lines) - 1
    results = {Path(one["file"]).name: one["result"] for one in content["files"]}
    assert results["long"] == {"all": list(range(2000))}


def test_a_file_name_that_is_not_utf8_is_percent_encoded_and_printable(unusual):
    _, report, out = unusual
    assert b"caf%E9\t" in (out / "launch.tsv").read_bytes()
    for row in readable(report.rows):
        "\t".join(row).encode()
    read_launch(out).as_text().encode()


# --- devices, threads, memory


def test_a_worker_gets_its_device_and_threads(workers, files):
    devices = [Device("cpu"), Device("cpu"), Device("cpu")]
    options = LaunchOptions(threads=6, quiet=True)
    report = launched(files(a="report", b="report"), workers.Obedient, devices, options=options)
    assert {one.result["gpu"] for one in report.results} <= {0, 1}  # two files, no third worker
    for one in report.results:
        assert (one.result["device"], one.result["threads"]) == ("cpu", 3)
        assert one.result["environment"] == {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "3"}


def plan_of(folder, gpus, worker, **options):
    launcher = LauncherOrchestrator()
    launcher._execute = lambda plan, _options: plan
    out, chosen = folder.parent / "out", LaunchOptions(**options)
    return launcher.launch(folder, out, gpus, "*", worker, options=chosen)


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
def test_workers_have_their_gpus_numbers(monkeypatch, workers, files, mask, gpus, numbers, masks):
    available = [Gpu("GPU-a"), Gpu("GPU-b", ("MIG-1", "MIG-2")), Gpu("GPU-c")]
    monkeypatch.setattr("virnucpro.runtime.devices.list_gpus", lambda: available)
    monkeypatch.setattr("virnucpro.runtime.devices._torch_without_cuda", list)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if mask is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
    for n_files in (1, 9):
        folder = files(**{f"f{number}": "" for number in range(n_files)})
        plan = plan_of(folder, gpus, workers.Plain, threads=3)
        assert plan.gpu_ids == numbers[:n_files]
        assert [device.mask for device in plan.devices] == masks[:n_files]


class Large(FileWorker):
    """Needs 3 GB."""

    def setup(self, gpu_id, seed):
        pass

    def process(self, data):
        pass

    @classmethod
    def memory_bytes(cls, keywords):  # noqa: ARG003 - the signature of FileWorker
        return 3 << 30


@pytest.mark.parametrize(
    ("worker", "cpus", "memory", "wanted"),
    [
        ("launch_workers:Plain", 2, 64 << 30, 2),  # one per CPU
        ("launch_workers:Plain", 128, 4 << 30, 4),  # 512 MiB each in half of the memory
        (Large, 128, 64 << 30, 10),
        (Large, 128, 1 << 30, 1),
    ],
)
def test_auto_on_cpus_starts_no_more_workers_than_cpus_and_memory_allow(
    worker, cpus, memory, wanted, workers, files, monkeypatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(orchestrator, "usable_cpus", lambda: cpus)
    monkeypatch.setattr(orchestrator, "usable_memory", lambda: memory)
    folder = files(**{f"f{number}": "" for number in range(200)})
    assert len(plan_of(folder, "auto", load_worker(worker)).devices) == wanted
    assert len(plan_of(folder, "cpu:20", load_worker(worker)).devices) == 20


def test_a_setup_is_validated_and_described(files):
    launcher = LauncherOrchestrator()
    folder = files(a="ok", b="sleep 60")
    assert launcher.validate_setup(folder, "cpu:2") == (True, "")
    assert launcher.validate_setup(folder / "a.txt", "cpu:2")[0] is False
    assert "--devices 99" in launcher.validate_setup(folder, [99])[1]
    assert launcher.get_workload_info(folder, "*.txt")["file_count"] == 2
    gpus = launcher.get_gpu_info()
    assert gpus["count"] == len(gpus["ids"]) == len(gpus["details"])


# --- workers that fail, hang or are stopped


def test_other_workers_do_the_work_of_one_that_cannot_be_set_up(workers, files, tmp_path, capsys):
    code = run_multi_gpu(
        files(**{f"f{n}": "ok" for n in range(6)}),
        tmp_path / "out",
        "cpu:2",
        worker=workers.Obedient,
        fail_on=1,
    )
    assert code == 0
    printed = capsys.readouterr().err
    assert "worker 1 (cpu): setup failed: OSError: GPU 1 has fallen off the bus" in printed
    assert "6 files: 6 done" in printed


def test_a_launch_without_any_working_worker_is_an_error(workers, files, tmp_path, capsys):
    folder = files(a="ok", b="ok", c="ok")
    arguments = folder, tmp_path / "out", "cpu:2", "*", workers.Obedient
    with pytest.raises(WorkerError, match="fallen off the bus"):
        LauncherOrchestrator().launch(*arguments, fail_on="all")
    content = json.loads((tmp_path / "out" / "launch.json").read_text())
    assert {one["status"] for one in content["files"]} == {"left"}
    assert content["exit_code"] == 1
    assert all("the launch ended before" in one["error"] for one in content["files"])
    assert run_multi_gpu(*arguments, fail_on="all") == 1
    assert "no file was processed" in capsys.readouterr().err


@pytest.mark.parametrize(("times", "code"), [slow(2, 0), (99, 1)])
def test_a_worker_killed_in_its_setup_is_restarted_up_to_three_deaths(
    workers, files, tmp_path, capsys, times, code
):
    output = tmp_path / "out"
    arguments = files(a="{}", b="{}"), output, "cpu", "*", workers.KilledInSetup
    assert run_multi_gpu(*arguments, times=times) == code
    printed = capsys.readouterr().err
    deaths = min(times, loop.BARREN)
    assert len(list(output.glob("killed-*"))) == deaths
    assert printed.count("The worker was in its setup.") >= deaths
    if code == 0:
        assert "2 files: 2 done" in printed
    else:
        assert "died 3 times in a row before its first task" in printed


def test_a_file_without_a_worker_for_its_retry_is_left(workers, files, tmp_path, capsys):
    arguments = files(a="{}"), tmp_path / "out", "cpu", "*", workers.NotRestartable
    with pytest.raises(WorkerError, match="no device"):
        LauncherOrchestrator().launch(*arguments)
    [row] = json.loads((tmp_path / "out" / "launch.json").read_text())["files"]
    assert (row["status"], row["attempts"]) == ("left", 1)
    assert row["error"] == "OSError: no device"
    assert "a.txt is retried" in capsys.readouterr().err


@pytest.mark.slow
def test_a_worker_that_hangs_in_its_setup_does_not_block_the_launch(
    workers, files, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(balancer, "SILENCE_S", 0.1)
    monkeypatch.setattr(balancer, "_FIRST_WAIT_S", 0.2)
    code = run_multi_gpu(
        files(a="{}", b="{}", c="{}"),
        tmp_path / "out",
        "cpu:2",
        worker=workers.HangsInSetup,
        options=LaunchOptions(start_timeout=6),
    )
    printed = capsys.readouterr().err
    assert code == 0
    assert "worker 1 (cpu): setup failed: worker 1 was stopped because it did not" in printed
    assert "launch.logs/worker-1.log" in printed
    assert "worker 1 (cpu): initializing" in printed
    assert "3 files: 3 done" in printed


def test_a_worker_that_hangs_in_a_file_is_replaced_and_a_slow_one_is_not(
    workers, files, tmp_path, called, monkeypatch
):
    monkeypatch.setattr(watchdog, "STACKS_GRACE_S", 0.3)
    folder = files(done="ok", hangs="sleep 60", slow="slowly 12")
    command = ["launch", "--devices", "cpu:2", "--input-dir", str(folder)]
    command += ["-o", str(tmp_path / "out")]
    command += ["--worker", "launch_workers:Obedient", "--progress-timeout", "0.5"]
    assert "3 files: 2 done, 1 failed" in called(*command, "--max-attempts", "1", code=2).stderr
    content = json.loads((tmp_path / "out" / "launch.json").read_text())
    rows = {Path(one["file"]).stem: one for one in content["files"]}
    assert {name: (row["status"], row["attempts"]) for name, row in rows.items()} == {
        "done": ("done", 1),
        "hangs": ("failed", 1),
        "slow": ("done", 1),
    }
    assert "was stopped because it made no progress within 0.5 s" in rows["hangs"]["error"]
    logs = "".join(log.read_text() for log in (tmp_path / "out" / "launch.logs").iterdir())
    assert "in sleep" in logs


def test_a_failed_cleanup_is_reported(workers, files, tmp_path, capsys):
    report = launched(files(a="{}"), workers.FailsInCleanup, seconds=0.1)
    assert "cleanup failed: OSError: the door is jammed" in capsys.readouterr().err
    content = json.loads((tmp_path / "out" / "launch.json").read_text())
    assert any("jammed" in trouble for trouble in content["troubles"])
    assert content["exit_code"] == report.exit_code == 0


def test_activity_is_printed_after_silences_that_double():
    status = {
        0: {"status": "processing", "current_task": "in/a.fa"},
        1: {"status": "initializing", "current_task": None},
        2: {"status": "finished", "current_task": None},
    }
    lines = []
    counts = balancer.LoadBalancer([0, 1], devices={0: "cpu", 1: "cpu"})
    counts.say = lines.append
    printer = balancer.ResultPrinter(counts, lambda: status, quiet=False, table=False)
    for seconds in range(2, 100, 2):
        printer.print_activity(seconds)
    assert [line.split(";")[0] for line in lines] == [
        f"no result for {seconds} s" for seconds in (10, 20, 40, 80)
    ]
    assert lines[0].endswith("; worker 0 (cpu): processing a.fa, worker 1 (cpu): initializing")
    printer.print(FileResult("a", FileStatus.DONE))
    printer.print_activity(10)
    assert "no result for 10 s" in lines[-1]


def test_workers_can_be_ended_at_any_time(workers, files, tmp_path):
    folder = files(a="sleep 60", b="sleep 60", c="sleep 60")
    allocator = ResourceAllocator()
    for delay in (0.0, 0.7):
        spawner, results = ProcessSpawner(log_folder=tmp_path), ResultQueue()
        tasks = allocator.create_task_queue(allocator.discover_files(folder), 2)
        keywords = {"output_dir": tmp_path, "device": "cpu", "threads": 1}
        spawner.spawn_workers(
            [0, 1], tasks, results, workers.Obedient, devices=["cpu", "cpu"], **keywords
        )
        with pytest.raises(UsageError, match="workers are running"):
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

    def interrupt_at_work():
        while not any("sleeping" in log.read_text() for log in out.glob("launch.logs/*")):
            if over.wait(0.01):
                return
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt_at_work)
    thread.start()
    try:
        code = LauncherOrchestrator().run(folder, out, "cpu", worker=workers.Obedient)
    finally:
        over.set()
        thread.join()
    assert code == 130
    content = json.loads((out / "launch.json").read_text())
    assert [one["status"] for one in content["files"]] == ["left", "left"]


# --- folders and files


def test_all_errors_before_the_start_are_one_line_and_write_nothing(
    workers, files, tmp_path, monkeypatch, capsys
):
    files(a="ok")
    (tmp_path / "in" / "launch.tsv").touch()
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / ".a.txt").touch()
    (tmp_path / "syntax.py").write_text("class Worker(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("virnucpro.runtime.devices.list_gpus", list)
    usual = {"output_dir": "out", "gpus": "cpu", "pattern": "a*", "worker": workers.Obedient}
    for error, message, change in (
        (UsageError, "is not a folder", {"input_dir": "nowhere"}),
        (InputError, "no file matches", {"pattern": "*.wav"}),
        (InputError, "begins with a dot needs a pattern such as '.*'", {"input_dir": "hidden"}),
        (UsageError, "overwrite launch.tsv of the launch", {"pattern": "*"}),
        (UsageError, "or contains it", {"output_dir": "in"}),
        (UsageError, "or contains it", {"output_dir": "."}),
        (DeviceError, "--devices 0: there is no GPU", {"gpus": "0"}),
        (DeviceError, "--devices 7: there is no GPU", {"gpus": [7]}),
        (UsageError, "is not a valid choice of devices", {"gpus": []}),
        (UsageError, "--devices cpu:0", {"gpus": "cpu:0"}),
        (UsageError, "is not a valid choice of devices", {"gpus": None}),
        (UsageError, "is not a valid choice of devices", {"gpus": [0, "cpu"]}),
        (UsageError, "is not a worker class", {"worker": dict}),
        (UsageError, "SyntaxError", {"worker": "syntax.py"}),
        (UsageError, "cannot be imported", {"worker": "no.such:Worker"}),
    ):
        arguments = {"input_dir": "in"} | usual | change
        with pytest.raises(error):
            LauncherOrchestrator().launch(**arguments)
        assert run_multi_gpu(**arguments) == 1
        printed = capsys.readouterr().err
        assert message in printed
        assert printed.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_of_results_can_be_used_again_but_not_at_the_same_time(workers, files):
    """The results in it are not input of the next launch."""
    folder = files(a="ok")
    out = folder / "out"
    arguments = folder, out, "cpu", "**/*", workers.Obedient

    def results():
        report = LauncherOrchestrator().launch(*arguments, options=QUIET)
        return [(Path(one.file).name, one.status) for one in report.results]

    assert results() == [("a.txt", FileStatus.DONE)]
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    with (
        folder_lock(out / "launch.lock", ""),
        pytest.raises(RunLockedError, match=str(os.getpid())),
    ):
        results()
    assert out / "launch.lock" not in before
    assert all(path.stat().st_mtime_ns == at for path, at in before.items())
    assert results() == [("a.txt", FileStatus.DONE)]


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("launch.logs", None),
        ("launch.logs/worker-0.log", None),
        ("launch.tasks", FileShare(0, 2)),
        ("launch.tasks/0000-of-0002", FileShare(0, 2)),
        ("launch.tasks/0000-of-0002/launch.logs", FileShare(0, 2)),
    ],
)
def test_files_behind_links_out_of_a_launch_are_unchanged(workers, files, tmp_path, name, share):
    elsewhere = tmp_path / "elsewhere"
    if name.endswith(".log"):
        elsewhere.write_text("a file of the user\n")
    else:
        elsewhere.mkdir()
    link = tmp_path / "out" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    options = LaunchOptions(quiet=True, share=share)
    with pytest.raises(RunError, match=f"{name} is a symbolic link"):
        launched(files(a="ok"), workers.Obedient, options=options)
    if elsewhere.is_dir():
        assert not list(elsewhere.iterdir())
    else:
        assert elsewhere.read_text() == "a file of the user\n"


@pytest.mark.parametrize("name", ["launch.logs/worker-0.log", "launch.lock"])
def test_a_named_pipe_in_place_of_an_own_file_is_refused(workers, files, tmp_path, name):
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with pytest.raises(RunError, match=f"{name} is not a regular file. Remove it"):
        launched(files(a="ok"), workers.Obedient)


@pytest.mark.parametrize("share", [None, FileShare(0, 1)])
def test_unfinished_files_of_a_killed_launch_are_removed(workers, files, tmp_path, share):
    own = share.folder(tmp_path / "out") if share else tmp_path / "out"
    own.mkdir(parents=True)
    (own / "launch.json.17-0123abcd.tmp").touch()
    (own / "thesis.17-0123abcd.tmp").touch()
    report = launched(
        files(a="ok"), workers.Obedient, options=LaunchOptions(quiet=True, share=share)
    )
    assert report.exit_code == 0
    assert [path.name for path in own.glob("*.tmp")] == ["thesis.17-0123abcd.tmp"]


def test_the_folder_of_a_run_is_no_output_folder(workers, files, tmp_path):
    (tmp_path / "out" / "run").mkdir(parents=True)
    (tmp_path / "out" / "run" / "run.json").write_text('{"schema_version": 9, "fingerprint": ""}')
    with pytest.raises(UsageError, match="is the folder of a run"):
        launched(files(a="ok"), workers.Obedient)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["run"]


@pytest.mark.parametrize("name", ["a.txt", "sub"])
def test_a_result_that_is_a_link_is_refused(workers, files, tmp_path, name):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match=f"{name} is a symbolic link"):
        launched(files(a="ok", sub__b="ok"), workers.Obedient, pattern="**/*.txt")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_the_table_is_complete_while_the_last_file_takes_its_time(workers, files):
    report = launched(files(a="ok", b="ok", last="shown 2"), workers.Obedient, gpus="cpu:2")
    assert {row["status"] for row in rows_of(report).values()} == {"done"}


def test_unusable_paths_that_match_the_pattern_have_a_row(workers, files, monkeypatch):
    folder = files(a="{}", sub__b="{}", closed__c="{}")
    (folder / "gone.txt").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.txt")
    (folder / "loop.txt").symlink_to(folder / "loop.txt")
    (folder / "folder.txt").mkdir()
    (folder / "link.txt").symlink_to(folder / "a.txt")
    scandir = os.scandir

    def denied(path):
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    report = launched(folder, workers.Returns, pattern="**/*.txt")
    monkeypatch.undo()
    errors = {name: row["error"] for name, row in rows_of(report).items()}
    assert errors == {
        "a.txt": "NA",
        "closed": "the folder cannot be listed (Permission denied).",
        "gone.txt": "neither a file nor a folder, or a broken link.",
        "link.txt": "NA",
        "loop.txt": "neither a file nor a folder, or a broken link.",
        "pipe.txt": "neither a file nor a folder, or a broken link.",
        "sub/b.txt": "NA",
    }
    assert report.exit_code == 2


def test_a_failed_table_is_reported_and_the_work_is_done(workers, files, tmp_path, capsys):
    code = run_multi_gpu(files(a="spoil", b="ok"), tmp_path / "out", "cpu", worker=workers.Obedient)
    assert code == 2
    printed = capsys.readouterr().err
    assert "the table of this launch could not be written" in printed
    assert "2 files: 2 done" in printed
    with pytest.raises(OSError, match=r"launch\.tsv"):
        launched(files(a="ok"), workers.Obedient)


# --- classes and keywords of workers


def test_a_worker_is_loaded_by_name_and_by_file(workers, tmp_path):
    assert load_worker("launch_workers:Obedient") is workers.Obedient
    (tmp_path / "mine_alone.py").write_text(
        "from virnucpro.dispatch import BaseWorker\n"
        "class Worker(BaseWorker):\n def setup(self, *a): ...\n def process(self, d): return d\n"
    )
    found = load_worker(str(tmp_path / "mine_alone.py"))
    assert (file_of(found), found.__name__) == (tmp_path / "mine_alone.py", "Worker")


@pytest.mark.parametrize("name", ["launch_workers:NoWorker", "launch_workers:Gone", "a.py:B", ""])
def test_a_name_without_a_worker_class_is_refused(workers, name):
    with pytest.raises(UsageError, match="worker "):
        load_worker(name)


def test_a_worker_gets_the_keywords_that_it_accepts(workers):
    offered = {"input_dir": 1, "output_dir": 2, "device": "cpu", "threads": 4}
    assert accepted_keywords(workers.Plain, offered) == {}
    taken = {name: offered[name] for name in ("output_dir", "device", "threads")}
    assert accepted_keywords(workers.Obedient, offered) == taken


def test_a_worker_without_keywords_and_one_with_durations(workers, files, tmp_path):
    launcher = LauncherOrchestrator()
    out = tmp_path / "out"
    assert launcher.run(files(a="x", b="y"), out, "cpu", worker=workers.Plain) == 0
    assert launcher.run(files(a="last 5"), out, "cpu", "a*", workers.Obedient) == 0
    assert 0 < launcher.load_balancer.get_overall_rtf() < 1


def test_a_worker_may_change_its_current_folder(workers, files, tmp_path, monkeypatch):
    folder = files(a="{'there': keywords['output_dir'].is_dir(), 'of': str(data)}")
    monkeypatch.chdir(tmp_path)
    report = LauncherOrchestrator().launch(
        Path("in"), "out", "cpu", worker=workers.ChangesFolder, options=QUIET
    )
    assert report.results[0].result == {"there": True, "of": str(folder / "a.txt")}
    assert report.rows[1][0] == "a.txt"


def test_keywords_of_a_worker_may_have_any_name(workers, files):
    names = "pattern options worker input_dir devices total_files task_timeout on_error base_seed"
    keywords = {name: name for name in names.split()}
    report = launched(files(a="keywords"), workers.Returns, keywords=keywords)
    assert keywords.items() <= report.results[0].result.items()


def test_keywords_are_given_on_the_command_line(workers, files, tmp_path, capsys):
    folder = files(a="keywords")
    command = ["launch", "--devices", "cpu", "--input-dir", str(folder)]
    command += ["-o", str(tmp_path / "out")]
    command += ["-q", "--worker", "launch_workers:Returns"]
    assert main([*command, "--set", "options=1", "--set", "task_timeout=5"]) == 0
    content = json.loads((tmp_path / "out" / "launch.json").read_text())
    result = content["files"][0]["result"]
    assert (result["options"], result["task_timeout"]) == (1, 5)
    with pytest.raises(SystemExit):
        main([*command, "--set", "gpu_id=3"])
    assert "gpu_id is reserved for the launch" in capsys.readouterr().err


def test_a_worker_file_shadows_no_module_and_imports_its_neighbours(files, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    for name in ("random", "json", "numbers"):
        (home / f"{name}.py").write_text("raise ZeroDivisionError('shadowed')\n")
    (home / "beside.py").write_text("WORD = 'found'\n")
    (home / "struct.py").write_text(
        "import random, beside\nfrom virnucpro.dispatch import BaseWorker\n"
        "class Worker(BaseWorker):\n"
        "    def setup(self, *_): ...\n"
        "    def process(self, data): return {'word': beside.WORD, 'n': random.randrange(1)}\n"
    )
    report = launched(files(a=""), str(home / "struct.py"))
    assert report.results[0].result == {"word": "found", "n": 0}
    assert json.loads((tmp_path / "out" / "launch.json").read_text())["worker"] == (
        f"{home / 'struct.py'}:Worker"
    )
