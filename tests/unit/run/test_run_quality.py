"""The composition of records, computed at once or while a block runs."""

import threading
import time
from concurrent.futures import CancelledError
from types import SimpleNamespace

import numpy as np
import pytest
from programs import wait_until

from virnucpro.classifier.quality import record_quality
from virnucpro.run import run
from virnucpro.run.run import RunQuality
from virnucpro.sequences.spec import RecordStatus


@pytest.fixture
def index():
    """The columns of an index that the composition needs."""
    records = [b"GGCA", b"AC" * 200, b"NNAC"]
    return SimpleNamespace(
        n_records=len(records),
        record_lengths=np.array([len(record) for record in records]),
        record_letters=np.array([len(record) for record in records]),
        record_status=np.full(len(records), RecordStatus.SCORABLE, np.uint8),
        record_sequences=lambda first, last: records[first:last],
    )


def equal(one, other):
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("gc", "known", "complex")
    )


def test_it_is_computed_at_the_first_call_only(index):
    quality = RunQuality(index)
    first = quality.get()
    assert equal(first, record_quality(index))
    assert quality.get() is first


def test_a_block_computes_it_in_another_thread(index, monkeypatch):
    threads = []

    def watched(*arguments):
        threads.append(threading.current_thread())
        return record_quality(*arguments)

    monkeypatch.setattr(run, "record_quality", watched)
    quality = RunQuality(index)
    with quality.computed_meanwhile(lambda: threads.append(threading.current_thread())):
        wait_until(lambda: len(threads) == 2)
    assert equal(quality.get(), record_quality(index))
    assert len(threads) == 2
    assert threading.main_thread() not in threads


def test_an_error_of_the_block_ends_the_thread(index, monkeypatch):
    ended = []

    def endless(_index, stopped):
        while not stopped():
            time.sleep(0.001)
        ended.append(True)
        raise CancelledError

    monkeypatch.setattr(run, "record_quality", endless)
    quality = RunQuality(index)
    with pytest.raises(KeyboardInterrupt), quality.computed_meanwhile():
        raise KeyboardInterrupt
    assert ended == [True]
    monkeypatch.undo()
    assert equal(quality.get(), record_quality(index))


def test_an_error_of_what_follows_is_ignored(index):
    quality = RunQuality(index)
    called = []

    def fails():
        called.append(True)
        raise ImportError("no template")

    with quality.computed_meanwhile(fails):
        wait_until(lambda: called)
    assert called
    assert equal(quality.get(), record_quality(index))


def test_a_stop_ends_the_computation(index):
    with pytest.raises(CancelledError):
        record_quality(index, lambda: True)


def test_an_error_of_the_computation_is_raised(index, monkeypatch):
    def fails(*_arguments):
        raise MemoryError

    monkeypatch.setattr(run, "record_quality", fails)
    with pytest.raises(MemoryError), RunQuality(index).computed_meanwhile():
        pass
