"""Deadlines, with a simulated clock."""

from hypothesis import given
from hypothesis import strategies as st

from virnucpro.runtime.watchdog import STACKS_GRACE_S, Watchdog, Watched


def watched(sign=0, limit=10.0, rank=0, fault="it made no progress"):
    return Watched(rank, fault, limit, sign)


def checks(watchdog, deadline, times, away=0.0):
    """Return the times at which stacks are requested, and at which the worker is ended."""
    found = {False: [], True: []}
    for now in times:
        for _, end in watchdog.check([deadline], now, away):
            found[end].append(now)
    return found[False], found[True]


def test_without_limits_no_worker_is_late():
    watchdog = Watchdog([None, None])
    assert watchdog.tick is None
    assert checks(watchdog, watched(), [0.0, 1e9]) == ([], [])


def test_the_shortest_limit_sets_the_tick():
    assert Watchdog([None, 5.0, 600.0]).tick == 0.5
    assert Watchdog([600.0]).tick == 1.0


def test_a_late_worker_is_asked_for_stacks_and_then_ended():
    stacks, ends = checks(Watchdog([10.0]), watched(), [0.1 * n for n in range(106)])
    assert [round(now, 6) for now in stacks] == [10.0]
    assert [round(now, 6) for now in ends] == [10.0 + STACKS_GRACE_S]


def test_the_reason_names_the_fault_and_the_limit():
    assert watched(limit=0.5).why == "it made no progress within 0.5 s"


def test_progress_after_the_request_for_stacks_restarts_the_deadline():
    watchdog = Watchdog([1.0])
    deadline = watched(limit=1.0)
    assert checks(watchdog, deadline, [0.1 * n for n in range(11)])[0] == [1.0]
    assert checks(watchdog, watched(1, 1.0), [1.05, 1.2, 1.4, 1.6, 1.8, 2.0]) == ([], [])


def test_a_deadline_that_stops_applying_restarts():
    watchdog = Watchdog([1.0])
    for number in range(100):
        applies = [watched(limit=1.0)] if number % 5 == 0 else []
        assert watchdog.check(applies, number / 5) == []


def test_two_deadlines_of_a_worker_are_independent():
    watchdog, late = Watchdog([1.0]), []
    for number in range(15):
        deadlines = [watched(number, 1.0), watched(0, 1.0, fault="it did not finish its task")]
        late += watchdog.check(deadlines, number / 10)
    assert {one.fault for one, _ in late} == {"it did not finish its task"}


@given(
    st.lists(st.tuples(st.floats(0.0, 50.0), st.booleans(), st.booleans()), max_size=40),
    st.floats(0.5, 9.0),
)
def test_a_worker_with_progress_within_the_limit_is_never_late(steps, limit):
    """This holds for any interval between checks; a check without progress comes early enough."""
    watchdog = Watchdog([limit])
    now, silent, number = 1e6, 0.0, 0
    watchdog.check([watched(0, limit)], now)
    for pause, asleep, progressed in steps:
        charged = min(pause, 2 * watchdog.tick if asleep else limit / 2)
        silent = 0.0 if progressed else silent + charged
        if silent >= 0.999 * limit:
            break
        now, number = now + pause, number + progressed
        assert watchdog.check([watched(number, limit)], now, 0.0 if asleep else pause) == []


@given(
    st.integers(0, 2),
    st.floats(0.5, 900.0),
    st.lists(st.floats(0.01, 0.09), min_size=1, max_size=9),
)
def test_only_the_worker_without_progress_is_late(which, limit, pauses):
    watchdog, found = Watchdog([limit]), []
    began = now = 5.0
    for check in range(10_000):
        deadlines = [watched(check * (rank != which), limit, rank) for rank in range(3)]
        found += [(late, now) for late in watchdog.check(deadlines, now)]
        if len(found) == 2:
            break
        now += limit * pauses[check % len(pauses)]
    (ask, asked_at), (end, ended_at) = found
    assert (ask[0].rank, ask[1]) == (which, False)
    assert (end[0].rank, end[1]) == (which, True)
    assert asked_at - began >= limit * 0.999
    assert ended_at > asked_at


def test_time_of_a_stopped_parent_does_not_count():
    watchdog = Watchdog([10.0])
    assert checks(watchdog, watched(), [0.0, 1e6, 1e6 + 1, 2e6]) == ([], [])
    stacks, _ = checks(watchdog, watched(), [2e6 + n for n in range(1, 10)])
    assert len(stacks) == 1


def test_an_absence_of_the_parent_uses_up_half_a_limit_at_most():
    times = [60.0 * number for number in range(12)]
    stacks, ends = checks(Watchdog([600.0]), watched(limit=600.0), times, away=59.5)
    assert (stacks, ends) == ([600.0], [660.0])
    times = [1e5 * number for number in range(4)]
    stacks, ends = checks(Watchdog([600.0]), watched(limit=600.0), times, away=1e5)
    assert (stacks, ends) == ([2e5], [3e5])
