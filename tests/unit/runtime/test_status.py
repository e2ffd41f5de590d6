"""Status of a worker after its messages and its end."""

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.runtime.messages import (
    UNGUARDED_CODE,
    Failure,
    Finished,
    Mark,
    Progress,
    Report,
    Started,
)
from virnucpro.runtime.status import (
    Death,
    WorkerState,
    WorkerStatus,
    after_exit,
    after_message,
    exit_name,
)

NEW = WorkerStatus(0, WorkerState.STARTING, 4711, started_at=1.0, last_heartbeat=1.0)
FAILURE = Failure("ValueError", "a bad one", "Traceback ...")


def after(*messages):
    status = NEW
    for now, message in enumerate(messages, start=2):
        status = after_message(status, message, float(now))
    return status


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (None, None),
        (0, 0),
        (3, 3),
        (-9, "SIGKILL"),
        (-11, "SIGSEGV"),
        (-(signal.SIGRTMIN + 2), "SIG36"),
    ],
)
def test_exit_codes_are_named(code, name):
    assert exit_name(code) == name


def test_messages_change_the_state():
    assert after().state is WorkerState.STARTING
    status = after(Started(), Progress(3, 10), Report(b""))
    assert (status.state, status.done, status.total) == (WorkerState.RUNNING, 3, 10)
    assert status.last_heartbeat == 4.0
    assert not status.ended


def test_a_worker_that_waits_makes_progress_and_is_suspected_of_nothing():
    worked = after(Started(), Mark((7, 0, 0, 9)), Mark((7, 0, 9, 12)))
    assert worked.fault.passed == 1
    waits = after_message(worked, Mark(()), 5.0)
    assert (waits.place, waits.fault.passed) == ((), 0)
    assert after_message(waits, Mark(()), 6.0).begun != waits.begun != worked.begun
    again = after_message(waits, Mark((8, 0, 0, 9)), 7.0)
    assert again.fault.passed == 2  # a wait is no piece of work


@pytest.mark.parametrize(
    ("said", "code", "options", "state", "reason"),
    [
        ((Started(), Finished()), 0, {}, "succeeded", ""),
        ((Started(), Finished()), None, {}, "succeeded", ""),
        ((Started(), Finished()), 0, {"stopped": "stopped by SIGINT"}, "succeeded", ""),
        ((Started(), Finished()), -11, {}, "failed", "killed by SIGSEGV after the worker function"),
        ((Started(), FAILURE), 1, {}, "failed", "ValueError: a bad one"),
        ((Started(), FAILURE), -9, {}, "failed", "ValueError: a bad one"),
        ((Started(),), 0, {}, "failed", "exited with code 0 before the worker function returned"),
        ((Started(),), -9, {}, "failed", "killed by SIGKILL (the kernel does this when memory"),
        ((Started(),), None, {}, "failed", "ended with an unknown exit status"),
        ((Started(),), -9, {"unfinished": 5000}, "failed", "incomplete: 5,000 bytes"),
        ((Started(),), -15, {"stopped": "stopped by SIGINT"}, "stopped", "stopped by SIGINT"),
        ((), 1, {}, "failed", "before the worker function was called: see standard error"),
        ((), UNGUARDED_CODE, {}, "failed", "below the line `if __name__ =="),
        ((Started(),), UNGUARDED_CODE, {}, "failed", "exited with code 119 before the worker"),
        ((), -9, {}, "failed", "killed by SIGKILL"),
    ],
)
def test_the_end_has_a_state_and_a_reason(said, code, options, state, reason):
    status = after_exit(after(*said), Death(code, options.pop("unfinished", 0)), 9.0, **options)
    assert status.state == state
    assert status.succeeded == (state == "succeeded")
    assert (status.ended, status.ended_at) == (True, 9.0)
    assert reason in status.reason
    assert bool(status.reason) == bool(reason)


@given(
    st.lists(st.sampled_from([Started(), Progress(1, 2), Report(b""), FAILURE, Finished()])),
    st.one_of(st.none(), st.integers(-64, 255)),
    st.integers(0, 9),
    st.booleans(),
)
def test_only_a_function_that_returned_succeeds(said, code, unfinished, stopped):
    status = after_exit(after(*said), Death(code, unfinished), 9.0, "stopped" * stopped)
    assert status.ended
    assert status.succeeded == (
        any(isinstance(one, Finished) for one in said) and code in {0, None}
    )
    assert status.succeeded == (not status.reason)
