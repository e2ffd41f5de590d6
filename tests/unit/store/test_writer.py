"""Segments committed in a thread."""

import shutil
import threading
import traceback
from functools import partial

import pytest
from samples import empty_run

from virnucpro.store.writer import SegmentWriter, ShardWriter

TIMEOUT_S = 20


class GatedShard(ShardWriter):
    """Commits a segment only after a release of its gate, and records the order."""

    def __init__(self, run, rank):
        super().__init__(run, rank)
        self.gate = threading.Semaphore(0)
        self.units = []

    def commit(self, segment):
        assert self.gate.acquire(timeout=TIMEOUT_S)
        self.units.append(segment.unit)
        return super().commit(segment)


@pytest.fixture
def run(tmp_path):
    return empty_run(tmp_path)


@pytest.fixture
def shard(run):
    return GatedShard(run, 0)


@pytest.fixture(autouse=True)
def no_thread_left():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def in_background(action):
    """Start an action in a thread; return the thread and the event of its end."""
    ended = threading.Event()

    def act():
        action()
        ended.set()

    thread = threading.Thread(target=act)
    thread.start()
    return thread, ended


def names(run):
    return sorted(path.name for path in run.shard(0).iterdir())


def test_put_returns_before_the_commit_unless_one_is_pending(shard, make_segment):
    with SegmentWriter(shard) as writer:
        writer.put(make_segment(0))
        assert shard.units == []
        thread, ended = in_background(lambda: writer.put(make_segment(1)))
        assert not ended.wait(0.05)
        shard.gate.release()
        assert ended.wait(TIMEOUT_S)
        thread.join()
        assert shard.units == [0]
        shard.gate.release()
    assert shard.units == [0, 1]


def test_the_callback_runs_after_the_segment_is_on_disk(run, make_segment):
    seen = []
    with SegmentWriter(ShardWriter(run, 0)) as writer:
        for unit in range(4):
            path = run.segment(0, unit)
            writer.put(make_segment(unit), lambda path=path: seen.append((path, path.is_file())))
    assert seen == [(run.segment(0, unit), True) for unit in range(4)]


def test_close_waits_until_the_segment_is_on_disk(run, shard, make_segment):
    writer = SegmentWriter(shard)
    writer.put(make_segment(0))
    thread, ended = in_background(writer.close)
    assert not ended.wait(0.05)
    shard.gate.release()
    thread.join(TIMEOUT_S)
    assert names(run) == ["unit-000000.h5"]
    writer.close()  # a second time is harmless


def test_after_an_error_nothing_is_committed_and_every_call_raises(run, shard, make_segment):
    writer = SegmentWriter(shard)
    called = []

    def put(unit):
        writer.put(make_segment(unit), partial(called.append, unit))

    put(0)
    shutil.rmtree(run.shard(0))
    shard.gate.release(9)
    with pytest.raises(FileNotFoundError) as raised:
        put(1)
    run.shard(0).mkdir()
    for call in (partial(put, 2), writer.close, writer.close):
        with pytest.raises(FileNotFoundError):
            call()
    assert names(run) == []
    assert called == []
    assert str(run.shard(0)) in str(raised.value)
    assert "commit_segment" in "".join(traceback.format_tb(raised.value.__traceback__))


def test_the_error_of_the_last_segment_is_not_lost(run, shard, make_segment):
    def write():
        with SegmentWriter(shard) as writer:
            shard.gate.release()
            writer.put(make_segment(0))
            writer.put(make_segment(1))
            shutil.rmtree(run.shard(0))
            shard.gate.release()

    with pytest.raises(FileNotFoundError, match="unit-000001"):
        write()


def test_an_error_of_the_callback_is_not_lost(run, make_segment):
    def fail():
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError), SegmentWriter(ShardWriter(run, 0)) as writer:
        writer.put(make_segment(0), fail)
    assert names(run) == ["unit-000000.h5"]


def put_and_fail(shard, segments, before=lambda: None):
    with SegmentWriter(shard) as writer:
        for segment in segments:
            writer.put(segment)
        before()
        raise KeyError("encoder")


def test_a_block_that_raises_commits_the_pending_segment(run, make_segment):
    with pytest.raises(KeyError) as raised:
        put_and_fail(ShardWriter(run, 0), [make_segment(0)])
    assert names(run) == ["unit-000000.h5"]
    assert not hasattr(raised.value, "__notes__")


def test_two_errors_are_both_reported(run, shard, make_segment):
    def lose_the_folder():
        shutil.rmtree(run.shard(0))
        shard.gate.release()

    with pytest.raises(KeyError) as raised:
        put_and_fail(shard, [make_segment(0)], lose_the_folder)
    assert "unit-000000" in raised.value.__notes__[0]


def test_an_unclosed_writer_leaves_no_thread(run, make_segment):
    writer = SegmentWriter(ShardWriter(run, 0))
    writer.put(make_segment(0))
    [thread] = [one for one in threading.enumerate() if one.name.startswith("segment-writer")]
    del writer
    thread.join(TIMEOUT_S)
    assert names(run) == ["unit-000000.h5"]
