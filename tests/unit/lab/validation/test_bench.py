import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from virnucpro.cli.main import main
from virnucpro.lab.validation import bench
from virnucpro.lab.validation.bench import measure_throughput
from virnucpro.lab.validation.options import BenchOptions

DEEP = ("bench", "-b", "mini-deep", "--device", "cpu", "--seconds", "0.1")


def test_figures_are_consistent(capsys):
    assert main([*DEEP, "--lengths", "12", "--json"]) == 0
    for figures in json.loads(capsys.readouterr().out):
        seconds = figures["seconds"]
        assert seconds > 0
        assert 1 <= figures["sequences"] <= figures["tokens"]
        assert figures["tokens_per_second"] == pytest.approx(figures["tokens"] / seconds)
        assert figures["sequences_per_second"] == pytest.approx(figures["sequences"] / seconds)


def test_the_table_of_a_bundle_has_a_row_for_each_encoder(capsys):
    assert main([*DEEP]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["encoder", "device", "precision"]
    assert [re.split("  +", row)[:3] for row in rows] == [
        ["mini-dnabert-s", "cpu", "fp32"],
        ["mini-esm2", "cpu", "fp32"],
    ]


class Slow:
    """An encoder with given durations of its batches on the clock `now`."""

    name, dim, view = "slow", 1, "protein"

    def __init__(self, *durations):
        self.now, self._durations = 0.0, iter(durations)

    def tokenise(self, sequences):
        return [np.arange(len(one)) for one in sequences]

    def vectors(self, batch):
        self.now += next(self._durations)
        return np.zeros((len(batch), self.dim), np.float32)


def test_the_shortest_measurement_of_a_batch_counts(monkeypatch):
    encoder = Slow(3.0, 1.0, 2.0)
    monkeypatch.setattr(bench, "time", SimpleNamespace(perf_counter=lambda: encoder.now))
    monkeypatch.setattr(bench, "load_encoder", lambda *_: encoder)
    monkeypatch.setattr(bench, "_SEQUENCES", 2)
    (figures,) = measure_throughput(
        BenchOptions(device="cpu", precision="fp32", encoder="mini-deep/protein", seconds=5.0)
    )
    assert figures.seconds == 1.0
    assert figures.sequences == 2
