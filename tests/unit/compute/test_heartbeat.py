"""Heartbeats by CPU time, with real threads."""

import threading
import time
from itertools import repeat

from virnucpro.compute.in_process import BEAT_S, WORK_S, CpuHeartbeat


def work(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(repeat(1, 1000))


def test_cpu_time_is_a_heartbeat_and_waiting_is_not():
    beat = threading.Event()
    with CpuHeartbeat(beat.set):
        time.sleep(3 * BEAT_S)
        assert not beat.is_set()
        while not beat.is_set():
            work(WORK_S)


def test_cpu_time_of_other_threads_does_not_count():
    beat, over = threading.Event(), threading.Event()

    def elsewhere():
        while not over.is_set():
            work(WORK_S)

    thread = threading.Thread(target=elsewhere)
    with CpuHeartbeat(beat.set):
        thread.start()
        over.wait(3 * BEAT_S)
        over.set()
        thread.join()
    assert not beat.is_set()


def test_a_paused_heartbeat_is_silent():
    beat = threading.Event()
    with CpuHeartbeat(beat.set) as heartbeat:
        heartbeat.paused = True
        work(0.2)
        assert not beat.is_set()
        heartbeat.paused = False
        while not beat.is_set():
            work(WORK_S)
