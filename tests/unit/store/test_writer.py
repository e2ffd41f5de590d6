"""Segments committed in a thread."""

import shutil
import threading
import traceback
from functools import partial

import pytest

from virnucpro.run_dir import RunDirectory
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
    return RunDirectory(tmp_path)


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


@pytest.mark.parametrize("in_flight", [1, 2, 5])
def test_put_returns_before_the_commit_unless_too_many_are_pending(shard, make_segment, in_flight):
    with SegmentWriter(shard, in_flight) as writer:
        for unit in range(in_flight):
            writer.put(make_segment(unit))
        assert shard.units == []
        thread, ended = in_background(lambda: writer.put(make_segment(in_flight)))
        assert not ended.wait(0.05)
        shard.gate.release()
        assert ended.wait(TIMEOUT_S)
        thread.join()
        assert shard.units[:1] == [0]
        shard.gate.release(in_flight)
    assert shard.units == list(range(in_flight + 1))


def test_the_callback_runs_after_the_segment_is_on_disk(run, make_segment):
    seen = []
    with SegmentWriter(ShardWriter(run, 0), 3) as writer:
        for unit in range(9):
            path = run.segment(0, unit)
            writer.put(make_segment(unit), lambda path=path: seen.append((path, path.is_file())))
    assert seen == [(run.segment(0, unit), True) for unit in range(9)]


def test_close_waits_until_all_segments_are_on_disk(run, shard, make_segment):
    writer = SegmentWriter(shard, 2)
    writer.put(make_segment(0))
    writer.put(make_segment(1))
    thread, ended = in_background(writer.close)
    shard.gate.release()
    assert not ended.wait(0.05)
    shard.gate.release()
    thread.join(TIMEOUT_S)
    assert names(run) == ["unit-000000.h5", "unit-000001.h5"]
    writer.close()  # a second time is harmless


@pytest.mark.parametrize("in_flight", [1, 3])
def test_after_an_error_nothing_is_committed_and_every_call_raises(run, make_segment, in_flight):
    shard = GatedShard(run, 0)
    writer = SegmentWriter(shard, in_flight)
    called = []

    def put(units):
        for unit in units:
            writer.put(make_segment(unit), partial(called.append, unit))

    put(range(in_flight))
    shutil.rmtree(run.shard(0))
    shard.gate.release(9)
    with pytest.raises(FileNotFoundError) as raised:
        put(range(in_flight, 9))
    run.shard(0).mkdir()
    for call in (lambda: put([10]), writer.close, writer.close):
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
    with SegmentWriter(shard, 4) as writer:
        for segment in segments:
            writer.put(segment)
        before()
        raise KeyError("encoder")


def test_a_block_that_raises_commits_the_pending_segments(run, make_segment):
    with pytest.raises(KeyError) as raised:
        put_and_fail(ShardWriter(run, 0), [make_segment(unit) for unit in range(3)])
    assert names(run) == [f"unit-{unit:06d}.h5" for unit in range(3)]
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
