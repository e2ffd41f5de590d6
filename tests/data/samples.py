"""Synthetic sequences, and where tests keep small indexes."""

import csv
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import strategies as st

from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex, build_index
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec

CODONS = [a + b + c for a in "ACGT" for b in "ACGT" for c in "ACGT"]
CODING = [codon for codon in CODONS if codon not in {"TAA", "TAG", "TGA"}]
OPEN_CODONS = [codon for codon in CODONS if codon[0] != "T"]
QUICK = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""An in-memory file system, if there is one, is faster for many small indexes."""

CALIBRATION = {
    "lines": [
        {"min_windows": 1, "min_bases": 0, "slope": 1.0, "intercept": 0.0},
        {"min_windows": 2, "min_bases": 600, "slope": 1.5, "intercept": 0.1},
    ],
    "prevalence": 0.5,
    "presets": {
        "sensitive": {"viral": 0.5, "non_viral": 0.3},
        "default": {"viral": 0.7, "non_viral": 0.4},
        "conservative": {"viral": 0.9, "non_viral": 0.5},
    },
    "min_bases": 100,
    "min_scored": 0.5,
    "gc": [0.2, 0.75],
}
"""As a bundle's manifest has it."""


def random_records(n_records, *, seed, letters=CODING, least=60, most=160, name="r") -> str:
    """Return FASTA records of `least` to `most` random letters or codons."""
    dice = random.Random(seed)
    return "".join(
        f">{name}{number}\n{''.join(dice.choices(letters, k=dice.randint(least, most)))}\n"
        for number in range(n_records)
    )


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table of tab-separated columns."""
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


def files_in(folder: Path) -> dict[str, bytes]:
    """Return the content of each file of a folder, without run.lock."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "run.lock"
    }


def copy_of(name):
    """Return a fixture: a copy of the run of another fixture, which a test may change."""

    @pytest.fixture
    def copied(request, tmp_path) -> Path:
        return shutil.copytree(request.getfixturevalue(name), tmp_path / "run", symlinks=True)

    return copied


def write_fasta(path, sequences) -> str:
    """Write sequences as records r0, r1 and so on; return the path."""
    path.write_bytes(b"".join(b">r%d\n%s\n" % pair for pair in enumerate(sequences)))
    return str(path)


def any_spec(kind, least, most, genetic_codes=(1, 4, 11)):
    """Return a strategy of specifications with windows of `least` to `most` bases."""
    return st.builds(
        IndexSpec,
        st.just(kind),
        st.just(Alphabet.NUCLEOTIDE),
        st.integers(least, most),
        st.sampled_from(["published", "even"]),
        st.sampled_from(genetic_codes),
    )


def index_of(folder, sequences, spec) -> SequenceIndex:
    """Build the index of sequences in a folder."""
    return build_index(folder / "index", [write_fasta(folder / "in.fa", sequences)], spec)


def items_of(item_row: Sequence[int]) -> SimpleNamespace:
    """Return a substitute for a SequenceIndex whose items have the given rows and odd names."""
    rows = np.asarray(item_row, np.int64)
    return SimpleNamespace(
        input_names=(),
        n_items=len(rows),
        item_row=rows,
        without_vector=lambda rows: np.zeros(len(rows), np.bool_),
        item_names=lambda items: [
            f"récord\0{item}" if item % 7 == 0 else f"r_chunk_{item}F1" for item in items
        ],
    )


def empty_run(folder):
    """Return the paths of a run in `folder`, which exists, with the folder for the machine."""
    run = RunDirectory(folder)
    run.machine.mkdir(parents=True, exist_ok=True)
    return run
