import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from virnucpro.cli.main import main
from virnucpro.encoders.ceiling import LAID_OUT, TORCH_MM
from virnucpro.encoders.packed import pack
from virnucpro.encoders.registry import PUBLISHED
from virnucpro.errors import DeviceError, UsageError
from virnucpro.pipeline.validation import bench
from virnucpro.pipeline.validation.bench import STAGES, Measuring, measure_bundle, measure_model


@pytest.fixture
def brief():
    return Measuring("cpu", "fp32", seconds=0.1)


def test_figures_hang_together(brief):
    for figures in measure_bundle("mini", brief):
        assert tuple(figures.seconds) == STAGES
        assert min(figures.seconds.values()) > 0
        assert figures.turns >= 3
        assert 1 <= figures.batches <= 8
        assert 1 <= figures.sequences <= figures.tokens
        assert 0 < figures.unused < 0.2
        assert figures.tokens <= 8 * figures.batch_tokens
        total = sum(figures.seconds.values())
        assert figures.tokens_per_second == pytest.approx(figures.tokens / total)
        assert figures.share_of_ceiling == pytest.approx(figures.rate / figures.ceiling)
        assert figures.ceiling == max(figures.ceilings.values())
        assert 0.01 < figures.share_of_ceiling <= 1.05


@pytest.mark.parametrize(
    "model", ["esm2_t6_8M_UR50D", pytest.param("dnabert_s", marks=pytest.mark.slow)]
)
def test_no_encoder_is_faster_than_its_ceiling(monkeypatch, model):
    """What encoders multiply with is faster than torch.mm, which is no ceiling of theirs."""
    monkeypatch.setattr(bench, "BATCH_TOKENS", {"cpu": 512})  # the published size takes its time
    figures = measure_model(model, Measuring("cpu", "fp32", lengths="20", seconds=0.1))
    assert 0.1 < figures.share_of_ceiling <= 1.05


def test_a_model_is_measured_without_a_download(capsys):
    command = ["bench", "-m", "esm2_t6_8M_UR50D", "--device", "cpu", "--lengths", "12"]
    assert main([*command, "--seconds", "0.2", "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert said["encoder"] == "esm2_t6_8M_UR50D"
    assert said["tokens"] == 14 * said["sequences"]
    assert said["linear_operations"] == 2 * 6 * 12 * 320 * 320
    assert said["attention_operations"] == 4 * 6 * 320 * 14


def test_the_table_is_for_people(capsys):
    assert main(["bench", "-b", "mini", "--device", "cpu", "--seconds", "0.1"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("mini-dnabert-s on cpu, fp32, 1 CPU thread\n")
    assert "mini-esm2 on cpu" in said
    assert len(re.findall(r"in \d batch(?:es)? of up to 2,048 \(\d+\.\d% left unused\)", said)) == 2
    assert len(re.findall(r"each done \d+ times or more\n", said)) == 2
    assert all(f"time to {stage}" in said for stage in STAGES)
    ways = f"(?:{TORCH_MM}|{LAID_OUT})"
    assert len(re.findall(rf"\nceiling +\S+ GFLOP/s  {ways}, at a layer's shapes", said)) == 2


def test_what_does_not_fit_is_refused_before_anything_is_written(monkeypatch, brief):
    monkeypatch.setattr(bench, "free_bytes", lambda _: 23 * 10**9)
    monkeypatch.setattr(bench, "write_random_encoder", lambda *_: pytest.fail("written"))
    with pytest.raises(DeviceError, match=r"85\.1 GB.*one batch.*23\.0 GB free.*Use a device"):
        measure_model("esm2_t48_15B_UR50D", brief)


def test_a_bundle_that_does_not_fit_is_refused_before_anything_is_loaded(monkeypatch, brief):
    monkeypatch.setattr(bench, "free_bytes", lambda _: 10**8)
    monkeypatch.setattr(bench, "load_encoder", lambda *_: pytest.fail("loaded"))
    with pytest.raises(DeviceError, match=r"mini-dnabert-s.*one batch.*0\.1 GB free.*Use a device"):
        measure_bundle("mini", brief)


@pytest.mark.parametrize("longest", [60.0, 0.0])
def test_every_batch_is_done_often_enough_whatever_the_time(monkeypatch, capsys, longest):
    monkeypatch.setattr(bench, "_LONG_BATCH", longest)
    command = ["bench", "-b", "mini", "--device", "cpu", "--lengths", "400", "--seconds", "0.001"]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(one["batches"], one["turns"]) for one in found] == [(1, 3 if longest else 1)] * 2
    assert main(command) == 0
    said = capsys.readouterr().out
    assert said.count("in 1 batch of up to") == 2
    assert said.count("a lower bound: a batch that takes more than a minute") == 2 * (not longest)
    assert said.count("each done once\n") == 2 * (not longest)


class Slow:
    """An encoder whose batches take as long as is said: `now` is its time."""

    name, dim, view = "slow", 1, "protein"

    def __init__(self, *times):
        self.now, self._times = 0.0, iter(times)

    def tokenise(self, sequences):
        return [np.arange(len(one)) for one in sequences]

    def collate(self, batch):
        return pack(batch)

    def encode(self, batch):
        self.now += next(self._times)
        return torch.zeros(len(batch), self.dim)


def test_the_least_of_several_times_counts(monkeypatch):
    encoder = Slow(3.0, 1.0, 2.0)
    monkeypatch.setattr(bench, "time", SimpleNamespace(perf_counter=lambda: encoder.now))
    course = bench._Course(encoder, torch.device("cpu"), [b"MKV", b"AG"], 100)
    tries = []
    course.run(0.0, lambda: tries.append(encoder.now))
    assert tries == [3.0, 4.0, 6.0]
    assert course.seconds == {"tokenise": 0.0, "collate": 0.0, "encode": 1.0, "fetch": 0.0}
    assert (len(course.done), course.turns) == (1, 3)


def test_first_batches_lie_all_over():
    assert bench._spread(8).tolist() == [0, 4, 2, 6, 1, 5, 3, 7]
    for n in (1, 2, 3, 9, 100):
        assert sorted(bench._spread(n).tolist()) == list(np.arange(n))


def test_an_unknown_model_is_wrong_usage(capsys, brief):
    with pytest.raises(UsageError, match="esm2_t6_8M"):
        measure_model("esm3", brief)
    assert main(["bench", "-m", "esm3", "--device", "cpu"]) == 64


def test_the_help_page_names_every_model(capsys):
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    said = "".join(capsys.readouterr().out.split())
    assert [name for name in PUBLISHED if name not in said] == []
