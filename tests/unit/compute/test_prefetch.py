"""Prefetching: order, number of prefetched items, errors, no thread left."""

import threading

import pytest

from virnucpro.compute.encoder_pass import prefetch_one


def test_items_and_results_are_in_order():
    made = [(item, future.result()) for item, future in prefetch_one(range(5), lambda n: n * n)]
    assert made == [(n, n * n) for n in range(5)]
    assert list(prefetch_one([], str)) == []


def test_exactly_one_item_is_prefetched():
    drawn, second_made = [], threading.Event()

    def items():
        for number in range(4):
            drawn.append(number)
            yield number

    def make(number):
        assert threading.current_thread() is not threading.main_thread()
        if number == 1:
            second_made.set()
        return number

    ahead = prefetch_one(items(), make)
    first, _ = next(ahead)
    assert second_made.wait(10)  # before it is requested
    assert (first, drawn) == (0, [0, 1])
    ahead.close()


def test_an_error_belongs_to_its_item():
    def make(number):
        if number == 1:
            raise ValueError("one")
        return number

    results = []
    for number, future in prefetch_one(range(3), make):
        if number == 1:
            with pytest.raises(ValueError, match="one"):
                future.result()
        else:
            results.append(future.result())
    assert results == [0, 2]


def test_closing_the_iterator_ends_its_thread():
    before = threading.active_count()
    ahead = prefetch_one(range(100), lambda n: n)
    next(ahead)
    assert threading.active_count() == before + 1
    ahead.close()
    assert threading.active_count() == before
