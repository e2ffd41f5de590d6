"""Results of a launch: reasons, counts, plain data, and the table."""

import io
import json
import math
import traceback
from pathlib import Path

import pytest

from virnucpro.dispatch import WorkerUnusable
from virnucpro.errors import InputError
from virnucpro.folder_lock import folder_lock
from virnucpro.launch import LoadBalancer
from virnucpro.launch.results import (
    MAX_DEPTH,
    FileResult,
    ResultQueue,
    RunOver,
    WorkerTrouble,
    plain_result,
    reason_of,
)
from virnucpro.launch.table import LaunchTable, read_launch, readable, table_rows
from virnucpro.launch_dir import FileStatus


def result(name, status=FileStatus.DONE, gpu_id=0, seconds=1.0, error="", **fields):
    return FileResult(f"in/{name}", status, gpu_id, seconds, 1, fields, error)


def balanced(*items, expected=None):
    queue = ResultQueue()
    for item in items:
        queue.put(item)
    queue.put(RunOver(None))
    balancer = LoadBalancer([0, 1])
    files = sum(isinstance(item, FileResult) for item in items)
    balancer.monitor_progress(queue, files if expected is None else expected)
    return balancer


# --- reasons


def raised(error):
    try:
        raise error
    except type(error):
        return traceback.format_exc()


def test_a_reason_is_the_class_text_and_notes_of_the_last_error():
    error = InputError("a.fa: no FASTA. Give another file.")
    error.add_note("found in line 3")
    error.__cause__ = ValueError("an earlier error")
    reason = "InputError: a.fa: no FASTA. Give another file.; found in line 3"
    assert reason_of(raised(error)) == reason
    assert reason_of(raised(ValueError("two\nlines: of text"))) == "ValueError: two; lines: of text"
    assert reason_of(raised(KeyError())) == "KeyError"


def test_the_reason_of_a_death_starts_with_the_exit_of_the_worker():
    text = "worker 0 was killed by SIGKILL. The worker was running this task (attempt 3)."
    assert reason_of(text) == text
    assert reason_of("") == ""
    lost = (
        f"worker 3 exited with code 1.\n{raised(WorkerUnusable('the device is lost'))} Attempt 3."
    )
    assert reason_of(lost) == (
        "worker 3 exited with code 1. WorkerUnusable: the device is lost; Attempt 3."
    )


class _Itself:
    def tolist(self):
        return self

    def __str__(self):
        return "me"


def test_plain_data_stay_as_they_are():
    data = {"n": 1, "f": 0.5, "b": True, "s": "x", "none": None, "l": [1, {"k": "v"}]}
    assert plain_result(data) == data
    assert plain_result({"set": (1, {2})}) == {"set": [1, [2]]}
    assert plain_result(12) == {"result": 12}
    assert plain_result({"p": Path("a"), "inf": math.inf}) == {"p": "a", "inf": "inf"}
    assert plain_result({"class": int, "itself": _Itself()}) == {"class": str(int), "itself": "me"}
    deep: list[object] = []
    for _ in range(MAX_DEPTH):
        deep = [deep]
    with pytest.raises(ValueError, match="nested levels"):
        plain_result({"deep": deep})


def test_an_integer_that_python_does_not_write_is_refused():
    assert plain_result({"n": 10**4000}) == {"n": 10**4000}
    with pytest.raises(ValueError, match="4300 digits"):
        plain_result({"n": 10**5000})


# --- counting


def test_counts_before_the_first_result():
    balancer = LoadBalancer(gpu_ids=[0])
    assert balancer.get_overall_rtf() == 0.0
    assert balancer.get_speedup() == 0.0
    assert balancer.get_per_gpu_stats() == {0: {"processed": 0, "time": 0.0, "failures": 0}}
    assert balancer.get_exit_code() == 1


def test_files_are_counted_by_gpu_and_durations_give_a_real_time_factor():
    balancer = balanced(
        result("a", seconds=2.0, duration=20.0),
        result("b", gpu_id=1, seconds=1.0, duration=10),
        result("c", FileStatus.FAILED, gpu_id=1, seconds=0.5),
        result("d", FileStatus.LEFT, gpu_id=None, seconds=None),
        WorkerTrouble(1, "died while idle"),
    )
    assert balancer.get_overall_rtf() == pytest.approx(3.5 / 30)
    assert balancer.get_speedup() == pytest.approx(30 / 3.5)
    assert balancer.get_per_gpu_stats() == {
        0: {"processed": 1, "time": 2.0, "failures": 0},
        1: {"processed": 1, "time": 1.5, "failures": 1},
    }
    stats = balancer.get_summary_stats()
    assert (stats["completed"], stats["successful"], stats["failed"]) == (3, 2, 1)  # d was left


def test_without_durations_the_speedup_is_over_a_single_worker():
    balancer = balanced(result("a", seconds=1000.0), result("b", seconds=1000.0))
    assert balancer.get_overall_rtf() == 0.0
    assert balancer.get_speedup() > 1000


@pytest.mark.parametrize(
    ("statuses", "expected", "code"),
    [
        (["done", "skipped"], 2, 0),
        (["done"], 2, 2),
        (["done", "partial"], 2, 2),
        (["partial"], 1, 2),
        (["done", "failed"], 2, 2),
        (["skipped", "timed_out"], 2, 2),
        (["failed", "timed_out"], 2, 1),
        (["left"], 1, 1),
        ([], 1, 1),
    ],
)
def test_exit_codes(statuses, expected, code):
    results = [result(str(n), FileStatus(one)) for n, one in enumerate(statuses)]
    assert balanced(*results, expected=expected).get_exit_code() == code


def test_a_run_that_ends_early_ends_the_monitoring():
    queue = ResultQueue()
    queue.put(RunOver(RuntimeError("no worker")))
    balancer = LoadBalancer([0])
    balancer.monitor_progress(queue, 5)
    assert str(balancer.error) == "no worker"


def test_progress_and_summary_are_printed():
    stream = io.StringIO()
    results = result("a.fa"), result("b.fa", FileStatus.FAILED, error="no luck")
    balancer = LoadBalancer([0, 1], stream, {0: "cpu", 1: "cpu"})
    balancer.results.extend(results)
    for item in (*results, WorkerTrouble(None, "the driver failed")):
        balancer.print_progress(item)
    balancer.print_summary(3)
    assert stream.getvalue().splitlines() == [
        "[virnucpro] 2/2 a.fa: done, 1.0 s, worker 0 (cpu)",
        "[virnucpro] 2/2 b.fa: failed, 1.0 s, worker 0 (cpu): no luck",
        "[virnucpro] warning: no worker: the driver failed",
        "[virnucpro] 3 files: 1 done, 1 failed, 1 left; 0.0 s",
        "[virnucpro] worker 0 (cpu): 1 file in 2.0 s, 1 failed",
        "[virnucpro] worker 1 (cpu): 0 files in 0.0 s, 0 failed",
    ]


def test_lines_that_cannot_be_printed_are_dropped():
    stream = io.StringIO()
    stream.close()
    LoadBalancer([0], stream).print_summary(1)


# --- the table


def test_the_table_has_a_column_per_scalar_and_a_row_per_file(tmp_path):
    results = [
        FileResult("in/a\tb", FileStatus.DONE, 0, 1.234, 1, {"n": 3, "list": [1], "f": 0.5}),
        FileResult("in/c", FileStatus.FAILED, None, None, 2, {}, "bad\nluck", "Traceback"),
    ]
    rows = table_rows(results, Path("in"))
    assert rows == [
        ["file", "n", "f", "status", "seconds", "worker", "attempts", "error"],
        ["a%09b", "3", "0.5", "done", "1.23", "0", "1", "NA"],
        ["c", "NA", "NA", "failed", "NA", "NA", "2", "bad luck"],
    ]
    balancer = balanced(*results)
    files = [Path(one.file) for one in results]
    LaunchTable(Path("in"), tmp_path, files, {"worker": "w"}, balancer).end()
    written = (tmp_path / "launch.tsv").read_text()
    assert [line.split("\t") for line in written.splitlines()] == rows
    content = json.loads((tmp_path / "launch.json").read_text())
    assert content["worker"] == "w"
    assert content["files"][0]["result"] == {"n": 3, "list": [1], "f": 0.5}
    assert (content["files"][1]["details"], content["files"][1]["gpu"]) == ("Traceback", None)


def test_columns_have_the_order_of_the_worker_if_the_first_file_lacks_values():
    values = {"n": 1, "share": None, "none": None, "last": 2}
    results = [
        FileResult("in/a", FileStatus.DONE, result=values),
        FileResult("in/b", FileStatus.DONE, result={**values, "share": 0.5}),
    ]
    header, first, _ = table_rows(results, Path("in"))
    assert header[:5] == ["file", "n", "share", "last", "status"]
    assert first[1:4] == ["1", "NA", "2"]


def test_column_names_are_unique():
    fields = {"file": 1, "result.file": 2, "a b": 3, "a\tb": 4}
    header = table_rows([FileResult("in/a", FileStatus.DONE, result=fields)], Path("in"))[0]
    assert len(set(header)) == len(header) == 10
    assert not any("\t" in name for name in header)


def test_the_printed_table_has_no_empty_columns_and_no_long_cells():
    rows = table_rows([result("a\x1b[31m", text="x" * 500)], Path("in"))
    header, row = readable(rows)
    assert header == ["file", "text", "status", "seconds", "worker", "attempts"]
    assert row[0] == "a%1B[31m"
    assert max(map(len, row)) == 60


def test_the_table_is_that_of_this_launch_from_its_start(tmp_path):
    files = [tmp_path / name for name in ("a", "b", "c")]
    balancer = LoadBalancer([0])
    table = LaunchTable(tmp_path, tmp_path, files, {"worker": "w"}, balancer)
    (tmp_path / "launch.json").write_text("of an earlier launch")
    table.begin()
    assert read_launch(tmp_path).as_text() == "launch, stopped: 3 files: 3 left"
    with folder_lock(tmp_path / "launch.lock", ""):
        assert read_launch(tmp_path).state == "running"
    for name in ("a", "b"):
        balancer.results.append(FileResult(str(tmp_path / name), FileStatus.DONE, 0, 1.0, 1))
        table.update()
    assert read_launch(tmp_path).files == {"done": 1, "left": 2}  # not twice within a second
    balancer.results.append(FileResult(str(tmp_path / "c"), FileStatus.FAILED, error="no luck"))
    assert table.end().exit_code == 2
    progress = read_launch(tmp_path)
    assert (progress.state, progress.files) == ("incomplete", {"done": 2, "failed": 1})
    assert progress.failures == (f"{tmp_path / 'c'}: failed: no luck",)


def test_status_reads_the_table_of_a_launch(tmp_path, called):
    LaunchTable(tmp_path, tmp_path, [tmp_path / "a"], {}, LoadBalancer([0])).begin()
    assert "launch, stopped: 1 file: 1 left" in called("status", tmp_path, code=2).stdout
    assert json.loads(called("status", "--json", tmp_path, code=2).stdout)["left"] == 1
    (tmp_path / "launch.json").write_text("{}")
    assert "damaged" in called("status", tmp_path, code=1).stderr


@pytest.mark.parametrize(("seconds", "pause"), [(0.0, 1.0), (0.04, 1.0), (0.5, 10.0)])
def test_a_pause_is_twenty_updates_long_and_at_least_the_interval(
    monkeypatch, tmp_path, seconds, pause
):
    now, written = [1000.0], []
    monkeypatch.setattr("virnucpro.launch.table.time.monotonic", lambda: now[0])
    balancer = LoadBalancer([0])
    table = LaunchTable(tmp_path, tmp_path, [], {}, balancer)

    def write(*_, **__):
        now[0] += seconds
        written.append(now[0])

    monkeypatch.setattr(LaunchTable, "_write", write)
    for step in (0.0, pause - 0.01, 0.02):
        now[0] += step
        balancer.troubles.append("news")
        table.update()
    assert len(written) == 2
