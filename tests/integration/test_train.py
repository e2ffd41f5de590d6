"""A classifier is trained on labelled sequences, resumed after a kill, and used by predict."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from virnucpro.bundles.bundle import open_bundle
from virnucpro.cli.main import main

N_GROUPS = 6
DEADLINE = 60.0


def genome(n_bases, gc, seed):
    shares = [(1 - gc) / 2, gc / 2, gc / 2, (1 - gc) / 2]
    dice = np.random.default_rng(seed)
    return dice.choice(np.frombuffer(b"ACGT", np.uint8), n_bases, p=shares).tobytes().decode()


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    """Viruses with 35 % GC, hosts with 60 % GC; six groups of each, and one held-out genome."""
    folder = tmp_path_factory.mktemp("labelled")
    rows = []
    for number in range(N_GROUPS):
        for label, gc in (("viral", 0.35), ("non-viral", 0.6)):
            name = f"{label}-{number}"
            path = folder / f"{name}.fa"
            path.write_text(f">{name}\n{genome(4_000, gc, len(rows))}\n")
            rows.append([path.name, label, name, "train"])
    for label, gc in (("viral", 0.35), ("non-viral", 0.6)):
        path = folder / f"held-{label}.fa"
        path.write_text(f">held-{label}\n{genome(3_000, gc, 99)}\n")
        rows.append([path.name, label, f"held-{label}", "valid"])
    table = folder / "labels.tsv"
    with table.open("w", newline="") as stream:
        csv.writer(stream, delimiter="\t").writerows([["file", "label", "group", "split"], *rows])
    return table


def command(labels, folder, *options):
    words = ["train", "--labels", labels, "-o", folder, "--devices", "cpu:1", "-q", *options]
    return list(map(str, words))


@pytest.fixture(scope="module")
def trained(labels, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "toy"
    assert main(command(labels, folder)) == 0
    return folder


def test_the_bundle_predicts_sequences_of_unseen_groups(trained, labels, tmp_path, tables):
    bundle = open_bundle(str(trained / "bundle"))
    assert (bundle.name, bundle.items, bundle.classes) == ("toy", "window", ())
    inputs = [labels.parent / f"held-{label}.fa" for label in ("viral", "non-viral")]
    words = ["predict", *inputs, "-o", tmp_path / "run", "-b", trained / "bundle", "-q"]
    assert main([*map(str, words), "--devices", "cpu:1"]) == 0
    viral, other = tables(tmp_path / "run" / "predictions.tsv")
    assert float(viral["probability"]) > 0.9
    assert float(other["probability"]) < 0.1
    card = (trained / "bundle" / "CARD.md").read_text()
    assert "| 500 |" in card
    figures = bundle.metrics["cross_validation"]["500"]
    assert figures["auroc"] > 0.95


def test_a_killed_training_is_resumed_and_gives_the_same_bundle(trained, labels, tmp_path):
    folder = tmp_path / "toy"
    with subprocess.Popen([sys.executable, "-m", "virnucpro", *command(labels, folder)]) as process:
        deadline = time.monotonic() + DEADLINE
        while not list(folder.glob("vectors/shards/*/unit-*.h5")):
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    assert not (folder / "bundle").exists()
    assert main(command(labels, folder, "--resume")) == 0
    for name in ("head.safetensors", "bundle.json", "CARD.md", "training_set.tsv"):
        assert (folder / "bundle" / name).read_bytes() == (trained / "bundle" / name).read_bytes()


def test_an_equal_sequence_on_both_sides_is_refused(labels, tmp_path, capsys):
    text = labels.read_text().replace("held-viral.fa", "copy.fa")
    table = labels.with_name("leak.tsv")
    table.write_text(text)
    copy = labels.with_name("viral-3.fa").read_text().replace("viral-3", "copy")
    labels.with_name("copy.fa").write_text(copy)
    assert main(command(table, tmp_path / "toy")) == 1
    assert "copy (100%)" in capsys.readouterr().err
    assert not (tmp_path / "toy").exists()


def test_other_settings_are_refused(trained, labels, capsys):
    before = json.loads((trained / "train.json").read_bytes())
    assert main(command(labels, trained)) == 1
    assert "--resume" in capsys.readouterr().err
    assert main(command(labels, trained, "--resume", "--seed", "2")) == 1
    assert "other sequences or options" in capsys.readouterr().err
    assert json.loads((trained / "train.json").read_bytes()) == before


def test_too_few_groups_are_refused(labels, tmp_path, capsys):
    lines = labels.read_text().splitlines()
    few = [line for line in lines if not line.startswith(("viral-4", "viral-5"))]
    table = labels.with_name("few.tsv")
    table.write_text("\n".join(few) + "\n")
    assert main(command(table, tmp_path / "toy")) == 1
    assert "4 groups of viral sequences" in capsys.readouterr().err


def test_another_view_than_nucleotides_is_refused(labels, tmp_path, capsys):
    assert main(command(labels, tmp_path / "toy", "-e", "mini-deep/protein")) == 64
    assert "nucleotide encoder" in capsys.readouterr().err
