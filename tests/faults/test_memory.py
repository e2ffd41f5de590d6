"""Row 8: out of memory. Batches are split, budgets are stored, too large rows quarantined."""

import os
from collections import Counter

import pytest

from virnucpro.run_dir import RunDirectory

pytestmark = pytest.mark.timeout(110)

ALLOCATOR = """
import sys

if "--multiprocessing-fork" in sys.orig_argv:
    import os

    import torch
    from virnucpro.encoders.encoder import Encoder

    encode = Encoder.encode

    def limited(self, batch):
        tokens = batch.total
        with open({attempts!r}, "a+") as stream:
            stream.write(f"{{self.name}} {{tokens}}\\n")
            stream.seek(0)
            calls = len(stream.readlines())
        if self.view in {views!r} and tokens > {room} and calls > {after}:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0")
        return encode(self, batch)

    Encoder.encode = limited
"""
"""Makes the encoders of all ranks raise above a number of tokens, and logs all attempts."""


@pytest.fixture
def memory_of(tmp_path, monkeypatch):
    """Return a function that limits the ranks' memory to `room` tokens after some calls.

    It returns a function that lists the attempts: encoder and tokens.
    """

    def limit(room, views=("nucleotide", "protein"), after=0):
        attempts = tmp_path / "attempts"
        (tmp_path / "sitecustomize.py").write_text(
            ALLOCATOR.format(attempts=str(attempts), views=views, room=room, after=after)
        )
        monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
        return lambda: [
            (name, int(tokens))
            for name, tokens in map(str.split, attempts.read_text().splitlines())
        ]

    return limit


@pytest.mark.timeout(220)  # three runs of the program
def test_batches_that_do_not_fit_are_split_and_the_budget_is_remembered(
    few_fasta, deep, virnucpro, memory_of, tmp_path, undisturbed_deep, difference_of
):
    attempts, run = memory_of(512), RunDirectory(tmp_path / "run")
    command = ("predict", few_fasta, "-o", run.root, "--devices", "cpu:1", *deep)
    done = virnucpro(*command)
    assert done.returncode == 0, done.stderr
    assert difference_of(undisturbed_deep, run.root) == []
    before = attempts()
    failed = Counter(name for name, tokens in before if tokens > 512)
    # From a budget of 2,048: the first batch and its two halves, once for each length class.
    assert all(3 <= failed[name] <= 9 for name in ("mini-dnabert-s", "mini-esm2")), failed
    for _, segment in run.segments()[:2]:
        segment.unlink()
    done = virnucpro(*command, "--resume")
    assert done.returncode == 0, done.stderr
    assert difference_of(undisturbed_deep, run.root) == []
    again = attempts()[len(before) :]
    assert again
    assert max(tokens for _, tokens in again) <= 512


def test_a_row_that_does_not_fit_alone_is_quarantined_with_the_reason(
    few_fasta, deep, virnucpro, memory_of, tmp_path, undisturbed_deep, tables
):
    memory_of(150, views=("protein",))
    run = tmp_path / "run"
    done = virnucpro("predict", few_fasta, "-o", run, "--devices", "cpu:2", *deep)
    assert done.returncode == 2, done.stderr
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


def test_a_sequence_too_large_for_any_device_does_not_stop_the_others(
    virnucpro, memory_of, tmp_path, tables
):
    """It is a unit by itself and the first one, so no batch has fitted before it."""
    memory_of(500)
    fasta, run = tmp_path / "in.faa", tmp_path / "run"
    short = "".join(f">s{number}\n{'LAGVSERTID' * 3}{'K' * number}\n" for number in range(40))
    fasta.write_text(f">long\n{'LAGVSERTIDPKQNFYMHWC' * 7000}\n{short}")
    done = virnucpro("embed", fasta, "-e", "mini-deep/protein", "-o", run, "--devices", "cpu:1")
    assert done.returncode == 2, done.stderr
    assert "failed" not in done.stderr
    (quarantined,) = tables(run / "quarantine.tsv")
    assert (quarantined["seq_name"], quarantined["reason"]) == ("long", "out_of_memory")
    assert "a sequence of 140,002 tokens does not fit" in quarantined["evidence"]
    assert not (run / "missing.tsv").exists()


@pytest.mark.timeout(220)  # a restart of a rank, and a second run
def test_rows_that_have_fitted_are_not_quarantined_when_memory_fills_up(
    virnucpro, memory_of, monkeypatch, tmp_path, tables
):
    """Another process takes memory for a while: the rank fails; its restart reads the sizes."""
    memory_of(300, after=20)
    fasta, run = tmp_path / "in.faa", RunDirectory(tmp_path / "run")
    lengths = [*range(501, 601), *[70] * 100]
    letters = "LAGVSERTIDPKQNFYMHWC" * 30
    fasta.write_text("".join(f">p{i}\n{letters[:n]}\n" for i, n in enumerate(lengths)))
    command = ("embed", fasta, "-e", "mini-deep/protein", "-o", run.root, "--devices", "cpu:1")
    done = virnucpro(*command, "--max-restarts", "1")
    assert done.returncode == 2, done.stderr
    assert "rows of up to 602 tokens fitted" in done.stderr
    assert not (run.root / "quarantine.tsv").exists()
    assert len(tables(run.root / "missing.tsv")) > 0
    monkeypatch.delenv("PYTHONPATH")
    done = virnucpro(*command, "--resume")
    assert done.returncode == 0, done.stderr
