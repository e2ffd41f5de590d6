"""The pipe from a parent to one child."""

import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.runtime.feed import Feed, read_messages


@given(st.lists(st.lists(st.binary(max_size=200_000), min_size=1, max_size=3), max_size=6))
def test_frames_arrive_complete_and_in_order(sent):
    feed, came = Feed(), []
    childs_end = os.dup(feed._reading)
    reader = threading.Thread(target=lambda: came.extend(read_messages(childs_end)))
    reader.start()
    for parts in sent:
        feed.send(*parts)
    feed.finish()
    while feed.waiting:
        feed.flush()
    feed.close()
    reader.join()
    assert came == [b"".join(parts) for parts in sent]


def test_a_full_pipe_does_not_block():
    feed = Feed()
    feed.send(b"x" * 10_000_000)
    assert feed.waiting
    feed.close()


def test_frames_for_a_dead_reader_are_dropped():
    feed = Feed()
    feed.close_childs_end()
    feed.send(b"x" * 10_000_000)
    assert not feed.waiting
    feed.close()


@pytest.mark.parametrize("cut", [3, 8, 12])
def test_an_incomplete_frame_of_a_dead_parent_is_ignored(cut):
    reading, writing = os.pipe()
    os.write(writing, (8).to_bytes(8, "big") + b"12345678")
    os.write(writing, ((8).to_bytes(8, "big") + b"12345678")[:cut])
    os.close(writing)
    assert list(read_messages(reading)) == [b"12345678"]
