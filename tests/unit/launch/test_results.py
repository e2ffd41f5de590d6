"""What a launch hears, counts and writes."""

import io
import json
import traceback
from pathlib import Path

import pytest

from virnucpro.dispatch import WorkerUnusable
from virnucpro.errors import InputError
from virnucpro.launch import LoadBalancer
from virnucpro.launch.results import (
    FileResult,
    FileStatus,
    ResultQueue,
    RunOver,
    WorkerTrouble,
    reason_of,
)
from virnucpro.launch.summary import readable, table, write_summary


def result(name, status=FileStatus.DONE, gpu_id=0, seconds=1.0, **fields):
    return FileResult(f"in/{name}", status, gpu_id, seconds, 1, fields)


def balanced(*items, expected=None, stream=None):
    queue = ResultQueue()
    for item in items:
        queue.put(item)
    queue.put(RunOver(None))
    balancer = LoadBalancer([0, 1], stream)
    files = sum(isinstance(item, FileResult) for item in items)
    balancer.monitor_progress(queue, files if expected is None else expected)
    return balancer


# --- reasons


def raised(error):
    try:
        raise error
    except type(error):
        return traceback.format_exc()


def test_a_reason_is_class_text_and_notes():
    error = InputError("a.fa: no FASTA. Give another file.")
    error.add_note("found in line 3")
    told = "InputError: a.fa: no FASTA. Give another file.; found in line 3"
    assert reason_of(raised(error)) == told
    assert reason_of(raised(ValueError("two\nlines: of text"))) == "ValueError: two; lines: of text"
    assert reason_of(raised(KeyError())) == "KeyError"


def test_a_chain_gives_its_last_link():
    try:
        int("first")
    except ValueError as error:
        second = InputError("second")
        second.__cause__ = error
    assert reason_of(raised(second)) == "InputError: second"


def test_a_death_is_told_as_it_is():
    text = "worker 0 was killed by SIGKILL. It was running this task, attempt 3."
    assert reason_of(text) == text
    assert reason_of("") == ""
    lost = (
        f"worker 3 exited with code 1.\n{raised(WorkerUnusable('the device is lost'))} Attempt 3."
    )
    assert reason_of(lost) == (
        "worker 3 exited with code 1. WorkerUnusable: the device is lost; Attempt 3."
    )


# --- counting


def test_nothing_is_counted_before_anything_came():
    balancer = LoadBalancer(gpu_ids=[0])
    assert balancer.get_overall_rtf() == 0.0
    assert balancer.get_speedup() == 0.0
    assert balancer.get_per_gpu_stats() == {0: {"processed": 0, "time": 0.0, "failures": 0}}
    assert balancer.get_exit_code() == 1


def test_files_are_counted_by_gpu_and_input_has_a_real_time_factor():
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
    assert (stats["completed"], stats["successful"], stats["failed"]) == (4, 2, 2)


def test_without_durations_the_speedup_is_over_one_worker():
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


def test_a_run_that_is_over_keeps_nobody_waiting():
    queue = ResultQueue()
    queue.put(RunOver(RuntimeError("no worker")))
    balancer = LoadBalancer([0])
    balancer.monitor_progress(queue, 5)
    assert str(balancer.error) == "no worker"


def test_progress_and_summary_are_printed():
    stream = io.StringIO()
    balancer = balanced(
        result("a.fa"), result("b.fa", FileStatus.FAILED), expected=3, stream=stream
    )
    for item in (*balancer.results, WorkerTrouble(None, "fell")):
        balancer.print_progress(item)
    balancer.print_summary(3)
    text = stream.getvalue()
    assert "2/3 a.fa: done, 1.0 s (worker 0)" in text
    assert "warning: no worker: fell" in text
    assert "3 files: 1 done, 1 failed, 1 left" in text
    assert "worker 0: 1 files in 2.0 s, 1 failed" in text
    assert "factor" not in text


# --- the table


def test_the_table_has_a_column_for_every_scalar_and_a_row_for_every_file(tmp_path):
    results = [
        FileResult("in/a\tb", FileStatus.DONE, 0, 1.234, 1, {"n": 3, "list": [1], "f": 0.5}),
        FileResult("in/c", FileStatus.FAILED, None, None, 2, {}, "bad\nluck", "Traceback"),
    ]
    rows = table(results, Path("in"))
    assert rows == [
        ["file", "n", "f", "status", "seconds", "gpu", "attempts", "error"],
        ["a b", "3", "0.5", "done", "1.23", "0", "1", "NA"],
        ["c", "NA", "NA", "failed", "NA", "NA", "2", "bad luck"],
    ]
    write_summary(tmp_path, rows, results, {"worker": "w"})
    written = (tmp_path / "launch.tsv").read_text()
    assert [line.split("\t") for line in written.splitlines()] == rows
    content = json.loads((tmp_path / "launch.json").read_text())
    assert content["worker"] == "w"
    assert content["files"][0]["result"] == {"n": 3, "list": [1], "f": 0.5}
    assert content["files"][1]["details"] == "Traceback"


def test_people_see_no_empty_columns_and_no_endless_cells():
    rows = table([result("a", text="x" * 500)], Path("in"))
    header, row = readable(rows)
    assert "error" not in header
    assert max(map(len, row)) == 60
