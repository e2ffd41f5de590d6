"""The time between two updates."""

import pytest

from virnucpro.launch.throttle import Throttle


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test sets: its only element."""
    now = [1000.0]
    monkeypatch.setattr("virnucpro.launch.throttle.time.monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(("seconds", "pause"), [(0.0, 1.0), (0.04, 1.0), (0.5, 10.0)])
def test_a_pause_is_twenty_times_as_long_as_the_update_and_at_least_the_interval(
    clock, seconds, pause
):
    throttle = Throttle(1.0)
    assert throttle.due
    with throttle.timed():
        clock[0] += seconds
    clock[0] += pause - 0.01
    assert not throttle.due
    clock[0] += 0.02
    assert throttle.due
