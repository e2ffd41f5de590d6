"""Encoding and decoding of messages."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.errors import WorkerError
from virnucpro.runtime.messages import (
    Ask,
    Decoder,
    Failure,
    Finished,
    Progress,
    Report,
    Started,
    WorkerChannel,
    encode,
)

numbers = st.integers(min_value=-(2**63), max_value=2**63 - 1)
messages = st.one_of(
    st.just(Started()),
    st.just(Finished()),
    st.just(Ask()),
    st.builds(Progress, numbers, numbers),
    st.builds(Report, st.binary(max_size=300)),
    st.builds(Failure, st.text(), st.text(), st.text(st.characters())),
)


def as_bytes(sent):
    return b"".join(part for message in sent for part in encode(message))


@given(st.lists(messages, max_size=8), st.data())
def test_messages_are_decoded_from_pieces_of_any_size(sent, data):
    stream = as_bytes(sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    decoder = Decoder()
    received = []
    for first, last in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += decoder.feed(stream[first:last])
    assert [*map(repr, received)] == [*map(repr, sent)]  # with their types
    assert decoder.unfinished == 0


@given(messages, st.data())
def test_an_incomplete_message_is_never_delivered(message, data):
    stream = as_bytes([message])
    cut = data.draw(st.integers(0, len(stream) - 1))
    decoder = Decoder()
    assert list(decoder.feed(stream[:cut])) == []
    assert decoder.unfinished == cut


def test_lone_surrogates_of_odd_file_names_survive():
    failure = Failure("OSError", "no such file: \udcff", "")
    assert list(Decoder().feed(as_bytes([failure]))) == [failure]


@pytest.mark.parametrize(
    "stream",
    [
        b"hello, this is no frame",
        b"P" + (3).to_bytes(8, "big") + b"abc",
        b"X" + (3).to_bytes(8, "big") + b"abc",
        b"X" + (2).to_bytes(8, "big") + b"{}",
    ],
)
def test_foreign_bytes_are_refused(stream):
    with pytest.raises(WorkerError, match="invalid data"):
        list(Decoder().feed(stream))


def test_messages_before_foreign_bytes_are_delivered():
    frames = Decoder().feed(as_bytes([Report(b"mine")]) + b"?????????")
    assert next(frames) == Report(b"mine")
    with pytest.raises(WorkerError):
        next(frames)


def test_a_pipe_that_the_worker_closed_is_named():
    parent, descriptor = os.pipe()
    channel = WorkerChannel(descriptor)
    os.close(descriptor)
    for _ in range(2):
        with pytest.raises(WorkerError, match="code of the worker closed it"):
            channel.put("a result")
    os.close(parent)
