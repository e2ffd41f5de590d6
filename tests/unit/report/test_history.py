"""The event log of a run in its report."""

import pytest
from samples import empty_run

from virnucpro.report.reading.history import plain_words, read_history
from virnucpro.runtime.events import EventLog

COORDINATOR = [
    "launch 1: computing 4 units on 2 workers (cpu, cpu)",
    "worker 1 failed: killed by SIGKILL at unit 3; restart 1 of 3",
    "worker 1: succeeded at 64/64 rows",
    "launch 1 ended after 1.6 s with 1 worker failures",
]
WORKER = [
    "rank 1 of 2: 1,024 units",
    "rank 1: unit 1",
    "rank 1 of 2: 1 units",
    "rank 1: unit 3",
    "rank 1: 1 units computed in 1 batches with 9 tokens, 1.0% of the budgets unused",
]


@pytest.fixture
def run(tmp_path):
    """A run whose second worker died once."""
    run = empty_run(tmp_path)
    run.logs.mkdir()
    for path, lines in ((run.coordinator_log, COORDINATOR), (run.log(1), WORKER)):
        for text in lines:
            EventLog(path).write(text)
    with run.log(1).open("a") as stream:  # what a worker prints stands in the same file
        stream.write("Traceback (most recent call last):\n2026-01-01 no time zone\n{broken\n")
    return run


def test_the_logs_show_attempts_blocks_and_failures(run):
    history = read_history(run)
    assert [event.kind for event in history.events][:2] == ["launch", "failed"]
    assert history.failures == 1
    assert [(span.worker, len(span.done), span.finished) for span in history.spans] == [
        ("worker 1", 1, False),
        ("worker 1", 1, True),
    ]
    assert all(span.begin <= span.end for span in history.spans)


def test_the_tasks_of_many_machines_are_told_apart(run):
    part = run.part("0007.1c9e03ab")
    part.logs.mkdir(parents=True)
    EventLog(part.log(0)).write("rank 0 of 1: 2 units")
    names = {span.worker for span in read_history(run).spans}
    assert names == {"worker 1", "task 7, worker 0"}


def test_a_run_without_logs_has_no_story(tmp_path):
    history = read_history(empty_run(tmp_path))
    assert (list(history.events), list(history.spans)) == ([], [])


def test_lines_that_are_no_events_are_left_out(tmp_path):
    run = empty_run(tmp_path)
    run.logs.mkdir()
    run.coordinator_log.write_text("now x\n{}\n\n[1]\n")
    assert list(read_history(run).events) == []


def test_events_are_told_in_the_words_of_the_report():
    text = "rank 3 died at unit 12 of 2 units, rows 3; see logs/rank-0003.log, unit-000012.h5"
    assert plain_words(text) == (
        "worker 3 died at block 12 of 2 blocks, pieces 3; see logs/rank-0003.log, unit-000012.h5"
    )
