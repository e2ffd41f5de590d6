"""The training script, on genomes small enough to train in seconds."""

import csv
import gzip
import importlib
from pathlib import Path

import numpy as np
import pytest
import torch

from virnucpro.bundles.bundle import open_bundle

SCRIPTS = Path(__file__).parents[3] / "scripts"
FIELDS = ["id", "group", "family", "split_group", "split"]
GENOMES = [
    ("V1", "virus", "Aviridae", "train"),
    ("V2", "virus", "Bviridae", "train"),
    ("V3", "virus", "Cviridae", "valid"),
    ("V4", "virus", "Microviridae", "train"),
    ("B1", "bacteria", "Afamily", "train"),
    ("B2", "organelle", "Bfamily", "train"),
    ("B3", "bacteria", "Cfamily", "valid"),
]


def write_genome(path, share_of_gc, rng):
    letters = np.frombuffer(b"ACGT", np.uint8)
    gc, at = share_of_gc / 2, (1 - share_of_gc) / 2
    sequence = letters[rng.choice(4, size=4000, p=[at, gc, gc, at])].tobytes()
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(b">" + path.name.encode() + b"\n" + sequence + b"\n"))


@pytest.fixture
def genomes(tmp_path):
    """Genomes rich in G and C, which have few stops."""
    folder = tmp_path / "genomes"
    folder.mkdir()
    rng = np.random.default_rng(0)
    with (folder / "genomes.tsv").open("w", newline="") as stream:
        table = csv.writer(stream, delimiter="\t")
        table.writerow(FIELDS)
        for name, group, family, split in GENOMES:
            table.writerow([name, group, family, family, split])
            write_genome(folder / group / f"{name}.fa.gz", 0.9 if group == "virus" else 0.8, rng)
    (folder / "phage_like_regions.bed").write_text("B1\tB1.fa.gz\t500\t900\n")
    return folder


@pytest.fixture
def train(genomes, tmp_path, monkeypatch):
    """Run the script's main function; the number of threads is restored."""
    monkeypatch.syspath_prepend(SCRIPTS)
    script = importlib.import_module("train_mini")
    threads = torch.get_num_threads()

    def run(name):
        out = tmp_path / name
        options = ["--steps", "3", "--windows", "80"]
        script.main(["--genomes", str(genomes), "--out", str(out), *options])
        return open_bundle(str(out))

    yield run
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bundle(train):
    first, second = train("first"), train("second")
    assert first.fingerprint == second.fingerprint
    assert first.metrics == second.metrics
    assert set(first.metrics["windows"]) == {"300", "500"}
    counts = first.provenance["counts"]
    assert counts["training_genomes_viral"] == 2  # Microviridae are left out
    assert "--steps 3" in (first.path / "CARD.md").read_text()
