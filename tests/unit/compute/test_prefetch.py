"""Prefetching: order, number of prefetched items, errors, waits, no thread left."""

import threading
import time
from functools import partial

import pytest

from virnucpro.compute.encoder_pass import taken_ahead


def square(number):
    return number * number


def ignore():
    pass


def test_taken_items_and_results_are_in_order():
    ahead = taken_ahead(iter(range(6)), lambda n: partial(square, n) if n % 2 else None, ignore)
    assert [(n, made and made.result()) for n, made in ahead] == [
        (n, n * n if n % 2 else None) for n in range(6)
    ]


def test_one_item_is_taken_ahead_and_prepared_in_another_thread():
    drawn, prepared = [], threading.Event()

    def items():
        for number in range(4):
            drawn.append((number, threading.current_thread() is threading.main_thread()))
            yield number

    ahead = taken_ahead(items(), lambda n: prepared.set if n == 1 else None, ignore)
    next(ahead)
    assert prepared.wait(10)
    time.sleep(0.02)
    assert drawn == [(0, False), (1, False)]
    ahead.close()


def test_an_error_of_a_preparation_belongs_to_its_item_and_one_of_the_source_is_raised():
    def items():
        yield 0
        raise OSError("the disk is gone")

    ahead = taken_ahead(items(), lambda n: partial(divmod, 1, n), ignore)
    _, made = next(ahead)
    with pytest.raises(ZeroDivisionError):
        made.result()
    with pytest.raises(OSError, match="the disk is gone"):
        next(ahead)


def test_a_wait_is_reported_once():
    ready, waits = threading.Event(), []

    def items():
        assert ready.wait(10)
        yield from range(3)

    def wait():
        waits.append(threading.current_thread() is threading.main_thread())
        ready.set()

    assert [n for n, _ in taken_ahead(items(), lambda _: None, wait)] == [0, 1, 2]
    assert waits[0]


def test_a_caller_that_leaves_does_not_wait_for_the_source():
    free = threading.Event()

    def items():
        yield 0
        free.wait(30)
        yield 1

    ahead = taken_ahead(items(), lambda _: None, ignore)
    next(ahead)
    (thread,) = [one for one in threading.enumerate() if one.name.startswith("ahead")]
    ahead.close()
    assert thread.is_alive()
    free.set()
    thread.join(10)
    assert not thread.is_alive()
