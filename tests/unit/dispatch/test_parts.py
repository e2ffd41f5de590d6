"""The dispatcher's pure parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.dispatch.dispatcher import worker_ids
from virnucpro.dispatch.protocol import TaskError, TaskStarted, TaskSuccess, in_order
from virnucpro.dispatch.stream import Stream


@given(st.lists(st.integers(-3, 7), min_size=1, max_size=12))
def test_worker_ids_are_distinct_and_start_with_the_gpu_ids(gpu_ids):
    ids = worker_ids(gpu_ids)
    assert len(set(ids)) == len(ids)
    for position, gpu_id in enumerate(gpu_ids):
        if min(gpu_ids) >= 0:
            assert ids[position] % (max(gpu_ids) + 1) == gpu_id
        if gpu_id not in gpu_ids[:position]:
            assert ids[position] == gpu_id


@given(st.permutations(range(30)))
def test_answers_come_in_the_order_of_their_tasks(order):
    events = []
    for number in order:
        events.append(TaskError(number, "no", 0) if number % 7 else TaskSuccess(number, -number, 0))
        events.append(TaskStarted(99, 0))
    came = list(in_order(events))
    answers = [one for one in came if not isinstance(one, TaskStarted)]
    assert [one.task_id for one in answers] == list(range(30))
    assert sorted(map(repr, came)) == sorted(map(repr, events))


@given(st.integers(0, 100), st.integers(1, 20), st.data())
def test_a_stream_numbers_tasks_within_its_bound(total, bound, data):
    read = []
    stream = Stream((read.append(n) or n for n in range(total)), bound)
    taken, answered = [], set()
    while not stream.over:
        if task := stream.take():
            assert task[0] == task[1]
            taken.append(task)
        assert len(read) - stream.delivered <= bound
        if taken and data.draw(st.booleans()):
            stream.put_back(taken.pop())
        elif taken:
            answered.add(taken.pop(0)[0])
            stream.delivered += 1
    assert answered == set(range(total))


def test_a_stream_keeps_the_tasks_before_an_error():
    def generate():
        yield "a"
        yield "b"
        raise OSError("gone")

    stream = Stream(generate(), 10)
    assert [stream.take() for _ in range(4)] == [(0, "a"), (1, "b"), None, None]
    assert stream.exhausted
    assert isinstance(stream.error, OSError)


def test_a_stream_does_not_catch_interrupts():
    def generate():
        yield 1
        raise KeyboardInterrupt

    stream = Stream(generate(), 10)
    stream.take()
    with pytest.raises(KeyboardInterrupt):
        stream.take()
