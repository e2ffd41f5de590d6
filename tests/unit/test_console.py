"""Standard streams that are closed, full or without a reader."""

import os
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from programs import run_captured

from virnucpro.console import (
    duration,
    encoded_file_name,
    encoded_name,
    encoded_names,
    printable,
    say,
    shortened,
)

PROTECTED = """
import sys
from virnucpro.console import output_failure, protect_standard_streams, say
protect_standard_streams()
"""


def run(program, redirection="", **options):
    """Run a program under a shell that redirects its streams."""
    return run_captured(
        "sh",
        "-c",
        f'exec "$@" {redirection}',
        "sh",
        sys.executable,
        "-c",
        PROTECTED + program,
        **options,
    )


@pytest.mark.parametrize(
    ("redirection", "failure"),
    [
        ("2>/dev/full", "standard error: No space left on device"),
        ("2>&-", "standard error: closed"),
        ("", ""),
    ],
)
def test_a_failure_of_standard_error_is_kept_and_raises_nothing(redirection, failure):
    program = "say('a line'); print('x', file=sys.stderr, flush=True); print(output_failure())"
    done = run(program, redirection)
    assert (done.returncode, done.stdout) == (0, f"{failure}\n")


def test_standard_error_without_a_reader_raises_nothing():
    readable, writable = os.pipe()
    os.close(readable)
    program = "say('x'); print(output_failure())"
    done = run(program, capture_output=False, stdout=subprocess.PIPE, stderr=writable)
    os.close(writable)
    assert (done.returncode, done.stdout) == (0, "standard error: Broken pipe\n")


def test_standard_error_that_works_again_has_no_failure(tmp_path):
    """A file size limit simulates a disk that is full for some time."""
    program = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
for limit in (0, hard):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    say(f"a line")
    print(bool(output_failure()))
"""
    done = run(program, f"2>{tmp_path / 'log'}")
    assert done.stdout == "True\nFalse\n"
    assert (tmp_path / "log").read_text() == "[virnucpro] a line\n"


def test_standard_output_raises_once_unless_it_has_no_reader():
    program = """
for _ in range(2):
    try:
        print("data", flush=True)
    except OSError as error:
        say(str(error))
"""
    full = run(program, ">/dev/full")
    assert full.returncode == 0
    assert full.stderr.count("No space left on device: 'standard output'") == 1
    assert run(program, ">&-").stderr == ""


def test_closed_standard_streams_keep_their_descriptors():
    program = """
import os
number = os.open(os.devnull, os.O_RDONLY)
sys.exit(number)
"""
    assert run(program, "<&- >&- 2>&-").returncode >= 3


def test_control_characters_are_printed_as_escapes(capsys):
    assert printable("é\x1b[2J\r\udcff") == "é\\x1b[2J\\r\\udcff"
    say("two\nlines")
    assert capsys.readouterr().err == "[virnucpro] two\\nlines\n"


UNSAFE_STARTS = st.sampled_from(["", "=", "+", "-", "@", "#", "track", "browser", "%3D", "tr"])
NAMES = st.tuples(
    UNSAFE_STARTS, st.text(st.sampled_from("ab1_.|=-%25\x7f\x85\u2028\u202eé中"), max_size=4)
).map("".join)


@given(st.lists(NAMES.filter(bool), max_size=6))
@example(["a", "b=track", "é", "t"])
@example(["a", "browser1"])
def test_names_are_encoded_together_as_each_by_itself(names):
    joined = "".join(f"\n{name}" for name in names)
    assert encoded_names(joined.encode()) == [*map(encoded_name, names)]


def test_different_file_names_stay_different():
    encoded = {
        "a b.fa": "a b.fa", "a\tb": "a%09b", "a\nb": "a%0Ab", "a%09b": "a%2509b",
        "a%20b": "a%2520b",
        "\x1b": "%1B", "=cmd": "%3Dcmd", "%3Dcmd": "%253Dcmd", "\udce9": "%E9", "%E9": "%25E9",
        "%e9": "%25e9", "\udce2%80": "%E2%2580", "100%": "100%", "track": "%74rack", "é": "é",
    }  # fmt: skip
    assert [*map(encoded_file_name, encoded)] == [*encoded.values()]


def test_long_names_are_cut_after_200_characters():
    assert shortened("n" * 200) == "n" * 200
    assert shortened("n" * 201) == f"{'n' * 197}..."
    assert shortened("\x1b" * 300) == f"{ascii(chr(27) * 50)[1:-1][:197]}..."


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (2e-6, "2 µs"),
        (0.0152, "15 ms"),
        (2.04, "2.0 s"),
        (100, "100 s"),
        (765, "12.8 min"),
        (11_100, "3.1 h"),
        (200_000, "2.3 d"),
    ],
)
def test_durations(seconds, text):
    assert duration(seconds) == text
