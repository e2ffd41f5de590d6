"""Synthetic sequences, and where tests keep small indexes."""

import csv
import random
from pathlib import Path

from virnucpro.sequences.index import SequenceIndex, build_index

CODONS = [a + b + c for a in "ACGT" for b in "ACGT" for c in "ACGT"]
CODING = [codon for codon in CODONS if codon not in {"TAA", "TAG", "TGA"}]
OPEN_CODONS = [codon for codon in CODONS if codon[0] != "T"]
QUICK = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""An in-memory file system, if there is one, is faster for many small indexes."""


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


def write_fasta(path, sequences) -> str:
    """Write sequences as records r0, r1 and so on; return the path."""
    path.write_bytes(b"".join(b">r%d\n%s\n" % pair for pair in enumerate(sequences)))
    return str(path)


def index_of(folder, sequences, spec) -> SequenceIndex:
    """Build the index of sequences in a folder."""
    return build_index(folder / "index", [write_fasta(folder / "in.fa", sequences)], spec)
