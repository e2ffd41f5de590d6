from email.message import Message

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.bundles.http_answers import (
    ChangedError,
    Placement,
    RefusedError,
    TransientError,
    judge_status,
    placement_of,
    size_of,
    validator_of,
)


def headers(**fields):
    message = Message()
    for name, value in fields.items():
        message[name.replace("_", "-")] = value
    return message


@given(have=st.integers(1, 10**12), more=st.integers(1, 10**12))
def test_a_range_as_asked_for_is_placed_behind_what_there_is(have, more):
    size = have + more
    answer = headers(Content_Range=f"bytes {have}-{size - 1}/{size}")
    assert placement_of(206, answer, have, size) == Placement(have, size)
    assert placement_of(206, answer, have, None) == Placement(have, size)
    with pytest.raises(ChangedError, match="before, and has"):
        placement_of(206, answer, have, size + 1)
    with pytest.raises(ChangedError, match=f"where bytes from {have + 1} were asked for"):
        placement_of(206, answer, have + 1, size)


@given(told=st.text(st.characters(codec="latin-1", exclude_characters="\r\n")))
def test_no_range_header_whatever_it_says_puts_bytes_where_they_were_not_asked_for(told):
    try:
        assert placement_of(206, headers(Content_Range=told), 5, 9).start == 5
    except ChangedError:
        return
    assert told.strip().startswith("bytes 5-")


def test_a_range_of_unknown_size_keeps_the_size_that_was_told():
    answer = headers(Content_Range="bytes 5-8/*")
    assert placement_of(206, answer, 5, 9) == Placement(5, 9)
    assert placement_of(206, answer, 5, None) == Placement(5, None)


def test_a_plain_answer_begins_at_the_beginning_whatever_was_there():
    assert placement_of(200, headers(Content_Length="12"), 5, 9) == Placement(0, 12)
    assert placement_of(200, headers(), 5, 9) == Placement(0, None)


@pytest.mark.parametrize("encoding", ["gzip", "br", "GZIP"])
def test_encoded_content_is_refused(encoding):
    with pytest.raises(RefusedError, match="encoded"):
        placement_of(200, headers(Content_Encoding=encoding, Content_Length="4"), 0, None)


@pytest.mark.parametrize("length", ["", "-1", "many", "1e3", "0x10"])
def test_a_length_that_is_no_number_is_unknown(length):
    assert size_of(headers(Content_Length=length)) is None


def test_the_size_of_a_file_whose_end_was_passed():
    assert size_of(headers(Content_Range="bytes */77"), beyond=True) == 77
    assert size_of(headers(Content_Length="0"), beyond=True) is None


def test_a_weak_etag_identifies_no_bytes():
    assert validator_of(headers(ETag='"a"', Last_Modified="Monday")) == '"a"'
    assert validator_of(headers(ETag='W/"a"', Last_Modified="Monday")) == "Monday"
    assert validator_of(headers(ETag='W/"a"')) is None


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 520, 599])
def test_what_may_pass_is_asked_for_again(status):
    assert isinstance(judge_status(status, "", headers()), TransientError)


@pytest.mark.parametrize("status", [300, 400, 401, 403, 404, 405, 407, 410, 416, 418, 451, 501])
def test_what_will_not_pass_is_not_asked_for_again(status):
    verdict = judge_status(status, "because", headers())
    assert isinstance(verdict, RefusedError)
    assert f"({status} because)" in str(verdict)


def test_a_server_may_say_when_to_come_back():
    assert judge_status(503, "", headers(Retry_After="7")).wait == 7.0
    assert judge_status(503, "", headers(Retry_After="Fri, 31 Dec 1999")).wait == 0.0
