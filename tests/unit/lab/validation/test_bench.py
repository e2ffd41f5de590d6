import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from cases import slow

from virnucpro.cli.main import main
from virnucpro.encoders.esm2.config import Esm2Config
from virnucpro.encoders.registry import PUBLISHED
from virnucpro.errors import DeviceError, UsageError
from virnucpro.lab.validation import bench
from virnucpro.lab.validation.bench import measure_bundle, measure_model
from virnucpro.lab.validation.options import BenchOptions


@pytest.fixture
def brief():
    return BenchOptions("cpu", "fp32", seconds=0.1)


def test_figures_are_consistent(brief):
    for figures in measure_bundle("mini-deep", brief):
        assert figures.seconds > 0
        assert figures.repeats >= 3
        assert 1 <= figures.batches <= 8
        assert 1 <= figures.sequences <= figures.tokens
        assert figures.tokens <= 8 * figures.batch_tokens
        derived = figures.as_dict()
        assert derived["tokens_per_second"] == pytest.approx(figures.tokens / figures.seconds)
        assert derived["sequences_per_second"] == pytest.approx(figures.sequences / figures.seconds)


def test_a_model_is_measured_without_a_download(called, monkeypatch):
    monkeypatch.setitem(PUBLISHED, "esm2_t6_8M_UR50D", Esm2Config(2, 32, 4))
    command = ["bench", "-m", "esm2_t6_8M_UR50D", "--device", "cpu", "--lengths", "12"]
    (printed,) = json.loads(called(*command, "--seconds", "0.1", "--json", code=0).stdout)
    assert printed["encoder"] == "esm2_t6_8M_UR50D"
    assert printed["tokens"] == 14 * printed["sequences"]


def test_the_table_of_a_bundle_has_a_section_per_encoder(capsys):
    assert main(["bench", "-b", "mini-deep", "--device", "cpu", "--seconds", "0.1"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("mini-dnabert-s on cpu, fp32, CPU threads: 1\n")
    assert "\n\nmini-esm2 on cpu" in printed
    assert len(re.findall(r"batches of up to 2,048 tokens: \d, ", printed)) == 2
    assert len(re.findall(r"each measured \d+ times or more\n", printed)) == 2
    assert len(re.findall(r"\ntokens/s +[\d,]+\nsequences/s +[\d,.]+", printed)) == 2


@pytest.mark.parametrize(
    ("measure", "name", "free", "message"),
    [
        (measure_model, "esm2_t48_15B_UR50D", 23 * 10**9, r"85\.1 GB.*one batch.*23\.0 GB free"),
        (measure_bundle, "mini-deep", 10**8, r"mini-dnabert-s.*one batch.*0\.1 GB free"),
    ],
)
def test_an_encoder_that_does_not_fit_is_neither_written_nor_loaded(
    monkeypatch, brief, measure, name, free, message
):
    monkeypatch.setattr(bench, "free_bytes", lambda _: free)
    for step in ("write_random_encoder", "load_encoder"):
        monkeypatch.setattr(bench, step, lambda *_: pytest.fail("written or loaded"))
    with pytest.raises(DeviceError, match=f"{message}.*Use a device"):
        measure(name, brief)


@pytest.mark.parametrize(("longest", "measured"), [(60.0, "3 times or more"), slow(0.0, "once")])
def test_each_batch_is_measured_three_times_unless_long(monkeypatch, capsys, longest, measured):
    monkeypatch.setattr(bench, "_LONG_BATCH", longest)
    command = ["bench", "-b", "mini-deep", "--device", "cpu", "--lengths", "100"]
    assert main([*command, "--seconds", "0.001"]) == 0
    assert capsys.readouterr().out.count(f" tokens: 1, each measured {measured}\n") == 2


class Slow:
    """An encoder with given durations of its batches on the clock `now`."""

    name, dim, view = "slow", 1, "protein"

    def __init__(self, *durations):
        self.now, self._durations = 0.0, iter(durations)

    def tokenise(self, sequences):
        return [np.arange(len(one)) for one in sequences]

    def vectors(self, batch):
        self.now += 0.5 + next(self._durations)
        return np.zeros((len(batch), self.dim), np.float32)


def test_the_shortest_measurement_of_a_batch_counts(monkeypatch, brief):
    encoder = Slow(3.0, 1.0, 2.0)
    monkeypatch.setattr(bench, "time", SimpleNamespace(perf_counter=lambda: encoder.now))
    monkeypatch.setattr(bench, "load_encoder", lambda *_: encoder)
    monkeypatch.setattr(bench, "_SEQUENCES", 2)
    (figures,) = measure_model("esm2_t6_8M_UR50D", brief)
    assert figures.seconds == 1.5
    assert (figures.sequences, figures.batches, figures.repeats) == (2, 1, 3)


def test_an_unknown_model_is_wrong_usage(brief):
    with pytest.raises(UsageError, match="esm2_t6_8M_UR50D"):
        measure_model("esm3", brief)
    assert main(["bench", "-m", "esm3", "--device", "cpu"]) == 64


def test_the_help_page_names_every_model(called):
    printed = "".join(called("bench", "--help").stdout.split())
    assert [name for name in PUBLISHED if name not in printed] == []
