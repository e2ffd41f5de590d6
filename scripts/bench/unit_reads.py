"""Measure how much a rank reads from disk for the sequences of one unit, with an empty page cache.

python scripts/bench/unit_reads.py [--records 100000] [--rows 2048] [--folder DIR]
"""

import argparse
import os
import tempfile
from pathlib import Path

import numpy as np

from virnucpro.sequences.index import SequenceIndex, build_index
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec


def main() -> None:
    """Build an index of random contigs, read three units, print the bytes read for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=2048, help="rows per unit")
    parser.add_argument("--folder", type=Path, help="working folder, on a disk")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder, fasta = Path(name) / "index", Path(name) / "random.fa"
        write_contigs(fasta, given.records)
        spec = IndexSpec("frames", Alphabet.NUCLEOTIDE, 300, "even", 11)
        n_rows = build_index(folder, [str(fasta)], spec).n_rows
        size = (folder / "bases.npy").stat().st_size
        print(f"{n_rows:,} rows, {size / 1e6:,.0f} MB of bases")
        for part in (0.1, 0.5, 0.9):
            first = int(n_rows * part)
            forget(folder)
            index = SequenceIndex.open(folder)
            before = bytes_read()
            rows = np.arange(first, first + given.rows)
            letters = sum(map(len, index.sequences(rows, "protein"))) / 1e6
            read = (bytes_read() - before) / 1e6
            print(f"from row {first:,}: {read:.1f} MB read for {letters:.2f} MB of residues")


def write_contigs(path: Path, n_records: int) -> None:
    """Write random contigs of 300 to 4,000 bases, with many open frames."""
    dice = np.random.default_rng(0)
    letters = np.frombuffer(b"ACGT" * 4 + b"ACGC" * 3, np.uint8)
    with path.open("wb") as stream:
        for number in range(n_records):
            bases = letters[dice.integers(0, len(letters), dice.integers(300, 4000))]
            stream.write(b">r%d\n%s\n" % (number, bases.tobytes()))


def forget(folder: Path) -> None:
    """Remove the files of a folder from the page cache."""
    os.sync()
    for path in folder.iterdir():
        with path.open("rb") as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bytes_read() -> int:
    """Return the bytes that this process has read from disks."""
    return int(Path("/proc/self/io").read_text().partition("\nread_bytes: ")[2].split()[0])


if __name__ == "__main__":
    main()
