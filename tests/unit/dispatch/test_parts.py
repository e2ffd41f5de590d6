"""The dispatcher's pure parts, and shared memory."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.dispatch.codec import (
    LARGE,
    Failed,
    Stored,
    as_body,
    from_body,
    pack_answers,
    pack_bodies,
    pack_plain,
    unpack,
    unpack_answers,
)
from virnucpro.dispatch.dispatcher import worker_ids
from virnucpro.dispatch.protocol import Answers, TaskError, TaskStarted, TaskSuccess, in_order
from virnucpro.dispatch.stream import Stream
from virnucpro.dispatch.worker_handle import BATCH_S, MOST, SLOW_S, BatchSizer
from virnucpro.runtime.shared import Region, Ring


@given(st.lists(st.integers(-3, 7), min_size=1, max_size=12))
def test_worker_ids_are_distinct_and_start_with_the_gpu_ids(gpu_ids):
    ids = worker_ids(gpu_ids)
    assert len(set(ids)) == len(ids)
    for position, gpu_id in enumerate(gpu_ids):
        if min(gpu_ids) >= 0:
            assert ids[position] % (max(gpu_ids) + 1) == gpu_id
        if gpu_id not in gpu_ids[:position]:
            assert ids[position] == gpu_id


@given(st.permutations(range(30)), st.data())
def test_answers_come_in_the_order_of_their_tasks(order, data):
    events = []
    while order:
        count = data.draw(st.integers(1, len(order)))
        some, order = list(order[:count]), order[count:]
        if count == 1:
            events.append(TaskError(some[0], "no", 0))
        else:
            events.append(Answers(some, [-one for one in some], 0))
        events.append(TaskStarted(99, 0))
    came = list(in_order(events))
    answers = [one for one in came if not isinstance(one, TaskStarted)]
    assert [one.task_id for one in answers] == list(range(30))
    assert all(one.data == -one.task_id for one in answers if isinstance(one, TaskSuccess))
    assert came.count(TaskStarted(99, 0)) == events.count(TaskStarted(99, 0))


@given(st.floats(1e-7, 10).filter(lambda s: abs(s - SLOW_S) > 1e-6), st.integers(1, 2000))
def test_a_batch_is_ten_milliseconds_of_work(seconds, most):
    sizer = BatchSizer(most)
    assert sizer.wanted(0) == 1
    assert sizer.wanted(1) == 0
    for _ in range(60):
        sizer.note(3, 3 * seconds)
    if seconds > SLOW_S:
        assert (sizer.wanted(0), sizer.wanted(1)) == (1, 0)
    else:
        batch = sizer.wanted(0)
        assert 1 <= batch <= min(most, MOST)
        assert batch == 1 or batch * seconds <= BATCH_S * 1.01
        assert sizer.wanted(batch) == batch
        assert sizer.wanted(batch + 1) == 0


@given(st.lists(st.floats(1e-7, 10)))
def test_without_batches_a_task_is_sent_after_the_last_answer(times):
    sizer = BatchSizer(0)
    for seconds in times:
        sizer.note(1, seconds)
    assert (sizer.wanted(0), sizer.wanted(1)) == (1, 0)


def test_a_lower_throughput_has_an_effect_at_once():
    sizer = BatchSizer(100)
    sizer.note(100, 1e-4)
    sizer.note(1, 1.0)
    assert (sizer.wanted(0), sizer.wanted(1)) == (1, 0)


@given(st.lists(st.integers(1, 40), max_size=200), st.integers(1, 5))
def test_a_ring_transfers_all_bytes_in_order(lengths, held):
    """One writer, one reader who is up to `held` pieces behind; nothing is overwritten."""
    area, consumed = bytearray(100), memoryview(bytearray(8)).cast("q")
    writer, reader = Ring(memoryview(area), consumed), Ring(memoryview(area), consumed)
    waiting: deque[tuple[Region, bytes]] = deque()

    def read():
        region, data = waiting.popleft()
        assert [bytes(view) for view in reader.views(region)] == [data]
        reader.release(region)

    for number, length in enumerate(lengths):
        data = bytes([number % 251]) * length
        while (region := writer.put([memoryview(data)])) is None:
            assert waiting, "an empty ring has room"
            read()
        waiting.append((region, data))
        if len(waiting) > held:
            read()
    while waiting:
        read()


def test_a_ring_stores_all_pieces_or_none():
    area, consumed = bytearray(10), memoryview(bytearray(8)).cast("q")
    ring = Ring(memoryview(area), consumed)
    one, two, five = memoryview(b"1"), memoryview(b"22"), memoryview(b"55555")
    assert ring.fits([two, two, one])
    assert not ring.fits([five, one])
    for _ in range(30):
        region = ring.put([two, two, one])
        assert [bytes(view) for view in ring.views(region)] == [b"22", b"22", b"1"]
        assert ring.put([two, five]) is None
        ring.release(region)


@given(st.lists(st.one_of(st.integers(), st.text(), st.binary(), st.none(), st.floats(0, 1))))
def test_plain_values_share_one_pickle(values):
    plain, back = unpack(pack_plain(values))
    assert plain
    assert back == values
    assert [type(one) for one in back] == [type(one) for one in values]


def test_other_values_have_one_pickle_each():
    area = memoryview(bytearray(1 << 20))
    ring = Ring(area, memoryview(bytearray(8)).cast("q"))
    large = b"x" * 70_000
    values = [{"a": 1}, large, large.decode(), [bytearray(large), 5], "short"]
    assert pack_plain([1, (2,)]) is None
    assert pack_plain([large]) is None
    bodies = [*(as_body(value, ring.put) for value in values), as_body(lambda: None, ring.put)]
    answers = b"".join((pack_answers(6, 0.5), *pack_bodies(bodies)))
    count, seconds, frame = unpack_answers(memoryview(answers))
    plain, back = unpack(frame)
    assert (count, seconds, plain, back) == (6, 0.5, False, bodies)
    assert [type(body) for body in back] == [bytes, Stored, Stored, Stored, bytes, Failed]
    read = [from_body(body, ring) for body in back[:5]]
    assert read == values
    area[:] = bytes(1 << 20)
    assert read == values, "what was read still lies in the ring"


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=20),
            st.sampled_from([LARGE - 1, LARGE, LARGE + 7]).map(
                lambda size: bytes([size % 251]) * size
            ),
            st.sampled_from([Failed(None), Failed("why"), Stored(b"head", Region(1, (2,), 3))]),
        ),
        max_size=6,
    )
)
def test_bodies_of_any_size_share_one_frame(bodies):
    assert unpack(b"".join(pack_bodies(bodies))) == (False, bodies)


def test_a_value_without_space_in_the_ring_is_sent_as_a_pickle():
    for value in (b"x" * 70_000, bytearray(70_000), "x" * 70_000):
        body = as_body(value, lambda _: None)
        assert isinstance(body, bytes)
        assert from_body(body, None) == value


@given(st.integers(0, 100), st.integers(1, 20), st.data())
def test_a_stream_numbers_tasks_within_its_bound(total, bound, data):
    ahead = []
    stream = Stream((ahead.append(n) or n for n in range(total)), bound)
    have: list[int] = []
    seen = set()
    while not stream.over:
        ids, items = stream.take(data.draw(st.integers(1, 8)))
        assert list(ids) == items
        have += items
        assert len(ahead) - stream.delivered <= bound
        if have and data.draw(st.booleans()):
            stream.put_back([(one, one) for one in have])
            have = []
        elif have:
            seen.add(have.pop(0))
            stream.delivered += 1
    assert seen == set(range(total))


def test_a_stream_keeps_the_tasks_before_an_error():
    def generate():
        yield "a"
        yield "b"
        raise OSError("gone")

    stream = Stream(generate(), 10)
    assert stream.take(5) == (range(2), ["a", "b"])
    assert stream.exhausted
    assert isinstance(stream.error, OSError)


def test_a_stream_does_not_catch_interrupts():
    def generate():
        yield 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Stream(generate(), 10).take(5)


def test_tasks_are_kept_within_the_bound():
    stream = Stream(range(5), 10)
    assert stream.take(1, keep=2) == ([2], [2])
    assert stream.take(9, keep=2) == ([3, 4], [3, 4])
    assert stream.take(1, keep=2) == ([], [])
    assert (stream.has_more(keep=2), stream.has_more(keep=1)) == (False, True)
    assert stream.take(1, keep=1) == ([1], [1])
    assert stream.take_all() == ([0], [0])
    bound = Stream(range(5), 1)
    assert bound.take(1, keep=2) == (range(1), [0])
    assert not bound.has_more(keep=2)
