"""Every script of scripts/bench/ runs at its smallest size, on synthetic genomes."""

import csv
import gzip
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "scripts" / "bench"
TOKENIZER = ROOT / "virnucpro/bundles/mini-deep/tokenizer.json"
HELPERS = {"bare_loop", "ceiling", "commands", "esm_peers"}
"""Modules that other scripts start or import."""
N_GROUPS = 5

CASES = {
    "aggregate": "--rows 200 --dim 8 --unit-rows 50 --repeats 1",
    "code_size": f"--run {ROOT}/tests/data/example.fa",
    "dispatch": "virnucpro --tasks 1000 --large 4 --repeat 1",
    "dnabert": f"--quick --turns 1 --windows 4 --tokenizer {TOKENIZER}",
    "encoders": "--quick --turns 1 --batches 1",
    "end_to_end": "--megabases .01 --devices cpu:1 --threads 1",
    "extract": "--residues 1000",
    "huggingface": "--quick --turns 1 --windows 8",
    "index_rows": "disk --items 1000",
    "outputs": "--records 100",
    "overhead": "--records 20 --turns 1",
    "prepare": "--bases 2e4 --reference-bases 1e4",
    "regions": "--genomes {shared}/genomes --repeats 1 "
    f"--viruses {ROOT}/tests/data/example.fa --hosts {ROOT}/tests/data/example.fa",
    "startup": "--repeats 1",
    "tokenisers": f"--sequences 20 --turns 1 --tokenizer {TOKENIZER}",
}
AFTER_TRAINING = {
    "accuracy": "--labels {trained}/labels.tsv --split train --exclude {trained}/exclude.bed "
    "--lengths 2048 10000 --errors .05",
    "kmer_cross_validation": "--out {trained}",
    "metagenome": "--labels {trained}/labels.tsv --split train --contigs 60 --viral .2 --draws 2",
    "oddities": "--labels {trained}/labels.tsv --split train --worst 3",
    "peers": "--out {trained} --lengths 1250 --pieces 100",
}

pytestmark = [pytest.mark.scripts, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def genomes(tmp_path_factory):
    """A collection like ../shared/genomes: five groups of each label to train, one to validate."""
    shared = tmp_path_factory.mktemp("shared")
    dice = np.random.default_rng(1)
    rows = []
    for number in range(2 * (N_GROUPS + 1)):
        viral, split = number % 2 == 0, "train" if number < 2 * N_GROUPS else "valid"
        n_bases = (50_000 if viral else 110_000) if split == "valid" else 6_000
        shares = (0.32, 0.18, 0.18, 0.32) if viral else (0.2, 0.3, 0.3, 0.2)
        bases = dice.choice(np.frombuffer(b"ACGT", np.uint8), n_bases, p=shares).tobytes()
        name, group = f"{'VIR' if viral else 'BAC'}{number}", "virus" if viral else "bacteria"
        path = shared / "genomes" / group / f"{name}.fa.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(b">%b\n%b\n" % (name.encode(), bases)))
        rows.append(
            {
                "id": name,
                "group": group,
                "realm": "Duplodnaviria" if viral else "-",
                "family": "-",
                "split_group": name,
                "split": split,
                "length": n_bases,
            }
        )
    with (shared / "genomes" / "genomes.tsv").open("w", newline="") as stream:
        table = csv.DictWriter(stream, rows[0], delimiter="\t")
        table.writeheader()
        table.writerows(rows)
    return shared


@pytest.fixture(scope="module")
def run(genomes):
    """Run a script; return its standard output."""

    def start(script, *arguments):
        done = subprocess.run(
            [sys.executable, script, *map(str, arguments)],
            env={**os.environ, "VIRNUCPRO_SHARED": str(genomes)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return start


@pytest.fixture(scope="module")
def trained(run, genomes, tmp_path_factory):
    """Return the output folder of scripts/train_mini.py."""
    out = tmp_path_factory.mktemp("trained")
    folder = genomes / "genomes"
    run(
        *(ROOT / "scripts/train_mini.py", "--genomes", folder, "--out", out),
        *("--devices", "cpu:1", "--draws", "5000"),
    )
    return out


@pytest.mark.parametrize("name", CASES)
def test_a_script_runs(name, run, genomes):
    words = [word.format(shared=genomes) for word in CASES[name].split()]
    assert run(BENCH / f"{name}.py", *words)


@pytest.mark.xdist_group("trained")
@pytest.mark.parametrize("name", AFTER_TRAINING)
def test_a_script_runs_after_a_training(name, run, trained):
    assert run(BENCH / f"{name}.py", *AFTER_TRAINING[name].format(trained=trained).split())


@pytest.mark.xdist_group("trained")
@pytest.mark.parametrize("words", ["accuracy.py", "accuracy.py --relatives", "metagenome.py"])
def test_a_script_reads_a_cross_validation(words, run, trained):
    script, *options = words.split()
    table = trained / "training/cross_validation.tsv"
    assert run(BENCH / script, "--held-out", table, *options)


def test_every_script_has_a_case():
    known = HELPERS | CASES.keys() | AFTER_TRAINING.keys()
    assert {path.stem for path in BENCH.glob("*.py")} == known
