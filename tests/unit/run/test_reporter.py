import io
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from virnucpro.run.reporter import Bars, Lines, Workload, amount, summary
from virnucpro.run.run import Outcome
from virnucpro.runtime.status import WorkerState, WorkerStatus


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


WORK = Workload(5_000, 40_000_000, 80_000, 2, protein=False, resumed=False, model="mini")


def statuses(*done):
    return {
        rank: WorkerStatus(rank, WorkerState.RUNNING, 1, 0.0, 0.0, done=one, total=40_000)
        for rank, one in enumerate(done)
    }


def test_a_line_states_amount_rate_elapsed_time_and_time_left(capsys):
    clock = Clock()
    lines = Lines(clock)
    lines.begin(WORK)
    clock.now += 5
    lines.show(statuses(0, 0))
    clock.now += 5
    lines.show({**statuses(0), 1: replace(statuses(0)[0], began_at=107.0)})
    shown = capsys.readouterr().err
    assert "0%: 0.0 kb of 40.0 Mb, 0 of 5,000 sequences, first batch, 10 s elapsed" in shown
    assert "; worker 0 loading mini, worker 1 first batch" in shown
    clock.now += 1
    lines.show(statuses(2_000, 0))
    clock.now += 10
    lines.show(statuses(12_000, 10_000))
    shown = capsys.readouterr().err
    assert "28%: 11.0 Mb of 40.0 Mb, 1,375 of 5,000 sequences, 1.0 Mb/s" in shown
    assert "21 s elapsed, 29 s left; worker 0 running, worker 1 running" in shown
    clock.now += 4
    lines.show(statuses(40_000, 40_000))
    lines.end()
    lines.end()
    assert capsys.readouterr().err == "[virnucpro] computed 40.0 Mb in 25 s (1.6 Mb/s)\n"


def test_repeated_work_does_not_exceed_the_whole(capsys):
    lines = Lines(Clock())
    lines.begin(WORK)
    lines.show(statuses(70_000, 40_000))
    lines.end()
    assert "computed 40.0 Mb" in capsys.readouterr().err


def test_reading_is_reported_every_ten_seconds(capsys):
    clock = Clock()
    lines = Lines(clock)
    for records in range(1, 31):
        clock.now += 1
        lines.read(records, 1_000_000 * records, protein=True)
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == 3
    assert shown[0] == "[virnucpro] read 10.0 M residues in 10 sequences"


def test_a_stage_of_known_length_is_reported_every_ten_seconds(capsys):
    clock = Clock()
    lines = Lines(clock)
    for step in range(1, 26):
        clock.now += 1
        lines.stage("training for fold 2 of 5", step / 25)
    shown = capsys.readouterr().err.splitlines()
    assert shown == [f"[virnucpro] {share} of training for fold 2 of 5" for share in ("40%", "80%")]


def terminal(monkeypatch, width):
    stream = io.StringIO()
    stream.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    return stream


def test_each_stage_has_a_bar_that_ends(monkeypatch):
    stream = terminal(monkeypatch, 100)
    bars = Bars()
    bars.begin(WORK)
    bars.show(statuses(20_000, 10_000))
    bars.end()
    before = len(stream.getvalue())
    for fold in (1, 2):
        bars.stage(f"training for fold {fold}", 0.5)
        bars.stage(f"training for fold {fold}", 1.0)
    bars.end()
    text = stream.getvalue()[before:]
    assert all(f"training for fold {fold}" in text for fold in (1, 2))
    assert text.count("50%") == 2
    assert "worker 0" not in text


@pytest.mark.parametrize("width", [80, 140])
def test_bars_fit_the_terminal_and_leave_a_line(monkeypatch, width):
    stream = terminal(monkeypatch, width)
    bars = Bars()
    bars.read(12, 3_000, protein=False)
    bars.begin(WORK)
    bars.show(statuses(20_000, 10_000))
    bars.end()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert "3.0 kb in 12 sequences" in text
    assert "38% 15.0 Mb of 40.0 Mb" in text
    assert len(max(re.findall("[━╸╺]+", text.partition("38%")[2]))) >= width // 5
    assert " elapsed" in text
    assert "1,875 of 5,000 sequences" in text
    assert all(len(line) <= width for line in re.split(r"[\r\n]+", text))
    assert text.rstrip().splitlines()[-1].startswith("[virnucpro] computed 15.0 Mb")


def test_amounts():
    assert [amount(n) for n in (0, 126_000, 12_400_000)] == ["0.0 kb", "126.0 kb", "12.4 Mb"]
    assert amount(12_400_000, protein=True) == "12.4 M residues"


def outcome(records, calls, files=("predictions.tsv", "viruses.fasta"), rule=""):
    paths = tuple(Path("out") / name for name in files)
    return Outcome(Path("out"), records, calls, 0, 0, 0, 0, rule, {}, paths, "fp32", {}, (), 0)


def test_the_summary_counts_calls_and_reasons():
    calls = {"viral": 14_712, "non-viral": 30_000, "ambiguous": 888, "not_scored": 4_400}
    lines = list(
        summary(outcome({"scored": 45_600, "no_open_frame": 3_900, "too_short": 500}, calls))
    )
    assert lines == [
        (
            "50,000 sequences: 14,712 viral, 30,000 non-viral, 888 ambiguous, "
            "4,400 not scored (3,900 no open frame, 500 too short)"
        ),
        "written to out: predictions.tsv, viruses.fasta",
        "viruses and proviruses for the next tool: out/viruses.fasta",
    ]


@pytest.mark.parametrize(
    ("calls", "proviruses", "named"), [({"viral": 1}, 0, True), ({}, 1, True), ({}, 0, False)]
)
def test_the_last_line_names_the_file_to_take_on(calls, proviruses, named):
    files = ("predictions.tsv", "viruses.fasta.gz")
    found = replace(outcome({"scored": 3}, calls, files), proviruses=proviruses)
    last = list(summary(found))[-1]
    assert (last == "viruses and proviruses for the next tool: out/viruses.fasta.gz") == named


def test_the_summary_counts_proviruses():
    found = {"proviruses": 2, "inserted": 5}
    counted = replace(outcome({"scored": 3}, {"viral": 1, "non-viral": 2}), **found)
    assert next(summary(counted)) == (
        "3 sequences: 1 viral, 2 non-viral, 0 ambiguous; 5 proviruses in 2"
    )


def test_the_summary_of_a_bacterium_begins_with_its_proviruses():
    none_viral = replace(outcome({"scored": 3}, {"non-viral": 3}), proviruses=1, inserted=15)
    assert list(summary(none_viral))[:2] == [
        "no sequence is viral; 15 proviruses in 1",
        "3 sequences: 0 viral, 3 non-viral, 0 ambiguous",
    ]


def test_the_summary_names_another_rule_than_the_default():
    calls = {"viral": 1, "ambiguous": 1}
    usual = outcome({"scored": 2}, calls, rule="preset default")
    assert not any("rule" in line for line in summary(usual))
    strict = outcome({"scored": 2}, calls, rule="fdr 0.05, prevalence auto")
    assert "rule of the calls: fdr 0.05, prevalence auto" in list(summary(strict))


def test_the_summary_of_vectors_and_of_nothing():
    embedded = outcome({"scored": 1}, {}, ["sequences.tsv", "embeddings.h5"])
    assert next(summary(embedded)) == "1 sequence: 1 with a vector"
    assert next(summary(outcome({}, {}))) == "0 sequences"
