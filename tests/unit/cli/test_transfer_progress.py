"""Progress of downloads, on a terminal and in a log."""

import io
import sys

import pytest

from virnucpro.cli.commands.bundle_command import TransferReporter


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock():
    return Clock()


def test_a_log_gets_a_line_every_ten_seconds(clock, capsys):
    with TransferReporter(quiet=False, clock=clock) as reporter:
        reporter.stage("fetching x")
        for second in range(25):
            clock.now = float(second)
            reporter.progress("x.pt", second * 1_000_000, 100_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "[virnucpro] fetching x",
        "[virnucpro] x.pt: 10.0 of 100.0 MB (10%)",
        "[virnucpro] x.pt: 20.0 of 100.0 MB (20%)",
    ]


def test_an_unknown_size_is_left_out(clock, capsys):
    reporter = TransferReporter(quiet=False, clock=clock)
    clock.now = 11.0
    reporter.progress("x.pt", 5_000_000, None)
    assert capsys.readouterr().err == "[virnucpro] x.pt: 5.0 MB\n"


def test_a_terminal_gets_one_line_that_changes(clock, monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with TransferReporter(quiet=False, clock=clock) as reporter:
        for second in (1, 2):
            clock.now = float(second)
            reporter.progress("x.pt", second * 1_000_000, 4_000_000)
        reporter.stage("converting")
    assert screen.getvalue().count("\r") == 2
    assert screen.getvalue().endswith("(50%)\x1b[K\n[virnucpro] converting\n")


def test_quiet_prints_nothing(clock, capsys):
    with TransferReporter(quiet=True, clock=clock) as reporter:
        reporter.stage("fetching")
        clock.now = 100.0
        reporter.progress("x", 1, 2)
    assert capsys.readouterr().err == ""
