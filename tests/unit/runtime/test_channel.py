"""Data from a parent to one child."""

import os
import signal
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from virnucpro.runtime.child import Setup
from virnucpro.runtime.messages import Report, WorkerChannel
from virnucpro.runtime.status import Death
from virnucpro.runtime.supervisor import StopMethod, Supervisor


@pytest.fixture
def children():
    supervisor = Supervisor(lambda: (), (), StopMethod.KILL)
    yield supervisor
    supervisor.close()


@pytest.fixture
def start(children, coordinator_workers):
    """Start a child that returns what it receives."""

    def make(rank):
        setup = Setup(rank, 1, os.getpid(), {}, None)
        return children.start("echo", setup, coordinator_workers.return_what_comes, ())

    return make


def received(children, rank, count):
    """Return the next `count` reports of a child."""
    reports = []
    while len(reports) < count:
        for sender, event in children.step(20):
            assert sender == rank
            if isinstance(event, Report):
                reports.append(event.payload)
    return reports


# One child gets the frames of all examples.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.binary(max_size=200_000), min_size=1, max_size=3), max_size=6))
def test_frames_arrive_complete_and_in_order(children, start, sent):
    if 0 not in children.ranks:
        start(0)
    frames = [parts for parts in sent if any(parts)]  # an empty one is the end
    for parts in frames:
        children.send(0, *parts)
    assert received(children, 0, len(frames)) == [b"".join(parts) for parts in frames]


def test_a_full_pipe_does_not_block(children, start):
    child = start(1)
    child.signal(signal.SIGSTOP)
    children.send(1, b"x" * 10_000_000)
    assert not child.flush()
    child.signal(signal.SIGCONT)
    children.send(1, b"after it")
    assert list(map(len, received(children, 1, 2))) == [10_000_000, 8]
    children.send(1, b"")
    assert ended(children, 1).code == 0


def test_frames_for_a_dead_reader_are_dropped(children, start):
    child = start(2)
    child.process.kill()
    while child.process.is_alive():
        time.sleep(0.01)
    assert child.send(b"x" * 10_000_000)
    assert ended(children, 2).code == -signal.SIGKILL


def ended(children, rank):
    """Return the end of a child."""
    while True:
        for sender, event in children.step(20):
            if isinstance(event, Death):
                assert sender == rank
                return event


@pytest.mark.parametrize("cut", [3, 8, 12])
def test_an_incomplete_frame_of_a_dead_parent_is_ignored(cut):
    reading, writing = os.pipe()
    os.write(writing, (8).to_bytes(8, "big") + b"12345678")
    os.write(writing, ((8).to_bytes(8, "big") + b"12345678")[:cut])
    os.close(writing)
    channel = WorkerChannel(reading)
    assert channel.receive() == b"12345678"
    assert channel.receive() is None
    os.close(reading)
