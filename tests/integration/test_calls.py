"""Answers of the embedded bundle on sequences that a classifier must not call by accident."""

import gzip
import json
import random
from pathlib import Path

import pytest
from cases import mostly_slow

from virnucpro.cli.main import main

pytestmark = pytest.mark.usefixtures("one_process")


@pytest.fixture
def answers(tmp_path, tables):
    """Return a function that predicts named sequences and returns the rows by name."""

    def predict(records, *options):
        fasta = tmp_path / "in.fa"
        fasta.write_text("".join(f">{name}\n{bases}\n" for name, bases in records.items()))
        words = ["predict", str(fasta), "-o", str(tmp_path / "run"), "--devices", "cpu:1", "-q"]
        assert main([*words, *options]) == 0
        return {row["seq_name"]: row for row in tables(tmp_path / "run" / "predictions.tsv")}

    return predict


def genome(folder, name):
    (path,) = folder.glob(f"*/{name}*.fa.gz")
    text = gzip.decompress(path.read_bytes()).decode()
    return "".join(text.split(">")[1].split("\n")[1:])


def test_tiny_and_unknown_sequences_get_no_call(answers):
    dice = random.Random(1)
    row = answers(
        {
            "three": "ACG",
            "short": "".join(dice.choices("ACGT", k=59)),
            "unknown": "N" * 400,
            "half": "N" * 400 + "".join(dice.choices("ACGT", k=500)) + "N" * 400,
        }
    )
    assert (row["three"]["call"], row["three"]["status"]) == ("not_scored", "too_short")
    assert (row["short"]["call"], row["short"]["status"]) == ("not_scored", "too_short")
    assert (row["unknown"]["call"], row["unknown"]["status"]) == ("not_scored", "ambiguous_bases")
    assert row["half"]["call"] != "viral"


def test_repeats_are_ambiguous_and_flagged(answers):
    satellite = "".join(random.Random(6).choices("ACGT", k=359))
    row = answers({"repeat": "ACGAC" * 200, "single": "A" * 1000, "satellite": satellite * 28})
    for name in ("repeat", "single", "satellite"):
        assert (row[name]["call"], row[name]["reason"]) == ("ambiguous", "low_complexity")
        assert "low_complexity" in row[name]["flags"]


def test_a_few_scored_windows_of_many_are_ambiguous(answers):
    dice = random.Random(2)
    bases = "".join(dice.choices("ACGT", k=1_000))
    row = answers({"gap": bases + ("A" + "N" * 19) * 200})  # shorter runs are in windows
    assert (row["gap"]["call"], row["gap"]["reason"]) == ("ambiguous", "few_windows")
    assert "ambiguous_bases" in row["gap"]["flags"]


@pytest.mark.shared
@pytest.mark.parametrize(
    "kingdom", mostly_slow(["plant", "vertebrate", "fungi", "invertebrate"], "plant")
)
def test_host_dna_is_not_viral(kingdom, shared, answers):
    """Every window is scored; in earlier versions one window of six hundred decided."""
    folder = shared / "genomes-2" / kingdom
    paths = sorted(folder.glob("*.fa.gz"))[:3]
    names = [path.name.removesuffix(".fa.gz") for path in paths]
    records = {name: genome(folder.parent, name)[:60_000] for name in names}
    for name, row in answers(records).items():
        assert float(row["scored_fraction"]) > 0.9, name
        assert row["call"] != "viral", name


@pytest.mark.shared
def test_the_genes_of_a_yeast_are_not_viral_and_the_doubt_is_told(shared, tmp_path, capfd):
    """462 of the 1,004 were called at a prevalence of 35 %."""
    path, run = shared / "cases" / "yeast_cds.fa.gz", tmp_path / "run"
    assert main(["predict", str(path), "-o", str(run), "--devices", "cpu:1", "--no-report"]) == 0
    told = capfd.readouterr().err
    assert ": 0 viral," in told
    assert "the scores fit neither" in told
    found = json.loads((run / "run" / "run.json").read_text())["prevalence"]
    assert found["value"] < 0.002
    assert found["high"] > 0.3
    assert main(["rescore", str(run), "--prevalence", "0.35"]) == 0
    assert "viral (given); 4" in capfd.readouterr().err


@pytest.mark.shared
def test_a_shuffled_genome_is_not_viral(shared, answers):
    dice = random.Random(3)
    bases = list(genome(shared / "genomes", "BAC0006")[:30_000])
    dice.shuffle(bases)
    row = answers({"shuffled": "".join(bases)})["shuffled"]
    assert row["call"] != "viral"


def test_well_known_viruses_are_viral_and_bacteria_are_not(tmp_path, tables):
    """The README's example: SARS-CoV-2, HIV-1, phiX174 and parts of bacteria."""
    example = Path(__file__).parents[1] / "data" / "example.fa"
    words = ["predict", str(example), "-o", str(tmp_path / "run"), "--devices", "cpu:1", "-q"]
    assert main(words) == 0
    calls = {row["seq_name"]: row["call"] for row in tables(tmp_path / "run" / "predictions.tsv")}
    viruses = {"NC_001422.1", "NC_001802.1", "NC_045512.2"}
    assert {calls[name] for name in viruses} == {"viral"}
    assert "viral" not in {call for name, call in calls.items() if name not in viruses}
