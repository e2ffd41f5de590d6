"""Progress of work without pieces: real threads, real processor time."""

import threading
import time
from itertools import repeat

from virnucpro.pipeline.scheduling.heartbeat import BEAT_S, WORK_S, CpuHeartbeat


def work(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(repeat(1, 1000))


def test_who_works_gets_on_and_who_waits_does_not():
    told = threading.Event()
    with CpuHeartbeat(told.set):
        time.sleep(3 * BEAT_S)
        assert not told.is_set()
        while not told.is_set():
            work(WORK_S)


def test_others_work_is_not_its_own():
    told, over = threading.Event(), threading.Event()

    def elsewhere():
        while not over.is_set():
            work(WORK_S)

    thread = threading.Thread(target=elsewhere)
    with CpuHeartbeat(told.set):
        thread.start()
        over.wait(3 * BEAT_S)
        over.set()
        thread.join()
    assert not told.is_set()


def test_where_batches_are_counted_they_alone_are_progress():
    told = threading.Event()
    with CpuHeartbeat(told.set) as heartbeat:
        heartbeat.paused = True
        work(0.2)
        assert not told.is_set()
        heartbeat.paused = False
        while not told.is_set():
            work(WORK_S)
