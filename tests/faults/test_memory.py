"""Row 8: out of memory. Batches are split, too large rows quarantined."""

import os
from collections import Counter

import pytest
import torch

from virnucpro.encoders.encoder import TorchEncoder
from virnucpro.run_dir import RunDirectory


@pytest.fixture
def memory_of(tmp_path, monkeypatch, one_process):
    """Return a function that limits the memory of the encoders of some views to `room` tokens.

    Sequences of 64 tokens must fit. It returns a list of the attempts: encoder and tokens.
    """
    encode, attempts = TorchEncoder.encode, []
    monkeypatch.setattr("virnucpro.compute.rank_encoder._ORDINARY_TOKENS", 64)

    def limit(room, views=("nucleotide", "protein")):
        def limited(self, batch):
            attempts.append((self.name, batch.total))
            if self.view in views and batch.total > room:
                text = "CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0"
                raise torch.OutOfMemoryError(text)
            return encode(self, batch)

        monkeypatch.setattr(TorchEncoder, "encode", limited)
        return attempts

    return limit


def test_batches_that_do_not_fit_are_split_and_later_ones_are_smaller(
    few_fasta, deep, called, memory_of, tmp_path, undisturbed_deep, difference_of
):
    attempts, run = memory_of(512), RunDirectory(tmp_path / "run")
    command = ("predict", few_fasta, "-o", run.root, "--devices", "cpu:1", *deep)
    called(*command, code=0)
    assert difference_of(undisturbed_deep, run.root) == []
    failed = Counter(name for name, tokens in attempts if tokens > 512)
    # From a budget of 2,048: the first batch and its two halves, once for each length class.
    assert all(3 <= failed[name] <= 9 for name in ("mini-dnabert-s", "mini-esm2")), failed


@pytest.mark.slow  # test_row_embedder.py shows it without a run
def test_a_row_that_does_not_fit_alone_is_quarantined_with_the_reason(
    few_fasta, deep, called, memory_of, tmp_path, undisturbed_deep, tables
):
    memory_of(150, views=("protein",))
    run = tmp_path / "run"
    called("predict", few_fasta, "-o", run, "--devices", "cpu:1", *deep, code=2)
    quarantined = tables(run / "quarantine.tsv")
    reason = "does not fit into the memory for mini-esm2, even alone (1.50 GiB more needed)"
    assert all(reason in row["evidence"] for row in quarantined)
    assert {row["reason"] for row in quarantined} == {"out_of_memory"}
    tokens = [int(row["evidence"].split()[3]) for row in quarantined]
    assert 150 < min(tokens) <= max(tokens) <= 162
    names = {row["seq_name"] for row in quarantined}
    before, after = tables(undisturbed_deep / "predictions.tsv"), tables(run / "predictions.tsv")
    assert [row["seq_name"] for row in after] == [row["seq_name"] for row in before]
    for old, new in zip(before, after, strict=True):
        if old["seq_name"] in names:
            continue
        assert (new["status"], new["call"]) == (old["status"], old["call"])
        assert float(new["score"]) == pytest.approx(float(old["score"]), abs=2e-4)


def test_a_too_large_sequence_does_not_stop_the_others(called, memory_of, tmp_path, tables):
    """It is a unit by itself and the first one, so no batch has fitted before it."""
    memory_of(500)
    fasta, run = tmp_path / "in.faa", tmp_path / "run"
    short = "".join(f">s{number}\n{'LAGVSERTID' * 3}{'K' * number}\n" for number in range(40))
    fasta.write_text(f">long\n{'LAGVSERTIDPKQNFYMHWC' * 7000}\n{short}")
    done = called("embed", fasta, "-e", "mini-deep/protein", "-o", run, "--devices", "cpu:1")
    assert done.returncode == 2, done.stderr
    assert "failed" not in done.stderr
    (quarantined,) = tables(run / "quarantine.tsv")
    assert (quarantined["seq_name"], quarantined["reason"]) == ("long", "out_of_memory")
    assert "a sequence of 140,002 tokens does not fit" in quarantined["evidence"]
    assert not (run / "missing.tsv").exists()


MEMORY_FILLS_UP = """
import sys

if "--multiprocessing-fork" in sys.orig_argv:
    from itertools import count
    from pathlib import Path

    from virnucpro.encoders.composition.encoder import CompositionEncoder

    start, calls, full = CompositionEncoder.start, count(), Path({full!r})

    def limited(self, batch):
        if sum(map(len, batch)) > 300 and (full.exists() or next(calls) >= 2):
            full.touch()
            raise MemoryError
        return start(self, batch)

    CompositionEncoder.start = limited
"""
"""Limits the memory of ranks to 300 bases after two batches, and from then on."""


def test_rows_that_have_fitted_are_not_quarantined_when_memory_fills_up(
    virnucpro, called, one_process, monkeypatch, tmp_path, tables
):
    """Another process takes memory for a while: the rank fails, and so does its restart."""
    (tmp_path / "sitecustomize.py").write_text(MEMORY_FILLS_UP.format(full=str(tmp_path / "full")))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    fasta, run = tmp_path / "in.fa", RunDirectory(tmp_path / "run")
    letters = "ACGTTGCATCAGGCTA" * 40
    lengths = [*range(501, 601), *[70] * 100]
    fasta.write_text("".join(f">p{i}\n{letters[:n]}\n" for i, n in enumerate(lengths)))
    command = ("embed", fasta, "-e", "mini/nucleotide", "-o", run.root, "--devices", "cpu:1")
    done = virnucpro(*command, "--max-restarts", "1", code=2)
    assert "tokens does not fit into the memory for " in done.stderr
    assert not (run.root / "quarantine.tsv").exists()
    assert len(tables(run.root / "missing.tsv")) > 0
    called(*command, "--resume", code=0)
