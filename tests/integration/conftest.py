"""Running the program as users do, and reading what it wrote."""

import csv
import random
import subprocess
import sys
from pathlib import Path

import pytest

TOLERANCE = 2e-4
"""Scores are printed with four decimals: the last one may differ by rounding."""


def read_table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


def differences(left: list[dict[str, str]], right: list[dict[str, str]]) -> list[str]:
    """Where two tables differ by more than rounding. A best window may change among equals."""
    found = [] if len(left) == len(right) else [f"{len(left)} rows, {len(right)} rows"]
    for number, (one, other) in enumerate(zip(left, right, strict=False)):
        for column, value in one.items():
            if value == other[column] or column.startswith("best_"):
                continue
            numbers = column == "score" and "NA" not in {value, other[column]}
            if numbers and abs(float(value) - float(other[column])) <= TOLERANCE:
                continue
            found.append(f"row {number}, {column}: {value!r}, {other[column]!r}")
    return found


@pytest.fixture
def tables():
    """Read a TSV file into dicts."""
    return read_table


@pytest.fixture
def difference_of():
    """Where the predictions of two run folders differ."""

    def compare(left: Path, right: Path) -> list[str]:
        return differences(
            read_table(left / "predictions.tsv"), read_table(right / "predictions.tsv")
        ) + differences(read_table(left / "windows.tsv"), read_table(right / "windows.tsv"))

    return compare


@pytest.fixture
def virnucpro():
    """Run the command line in a process of its own; returns the finished process."""

    def run(*arguments, **options) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "virnucpro", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            **options,
        )

    return run


@pytest.fixture(scope="session")
def small_fasta(tmp_path_factory) -> Path:
    """A few dozen records of every kind: coding-like, repeated, short, ambiguous, stop-ridden."""
    dice = random.Random(20)
    codons = [a + b + c for a in "ACGT" for b in "ACGT" for c in "ACGT"]
    coding = [codon for codon in codons if codon not in ("TAA", "TAG", "TGA")]
    records = [
        (f"open_{number}", "".join(dice.choices(coding, k=dice.randint(40, 900))))
        for number in range(48)
    ]
    records += [
        ("repeat", records[3][1]),
        ("repeat", records[3][1]),
        ("one_base", "A"),
        ("empty", ""),
        ("all_n", "N" * 700),
        ("stops", "TAGATAACTGATTAGCTAATCAGTTATCTA" * 30),
        ("some_n", "N".join(dice.choices(coding, k=200))),
    ]
    path = tmp_path_factory.mktemp("input") / "small.fa"
    path.write_text("".join(f">{name} of a test\n{bases}\n" for name, bases in records))
    return path
