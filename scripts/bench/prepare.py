"""Compare the preparation of sequences with Biopython; measure the memory of an open index.

Our side reads one plain FASTA file of real genomes, cuts windows, translates six frames and builds
the index. The other side follows the same rule with Biopython, in the same process, on a part of
the file. The results are compared before any figure is printed. Throughputs are per second of CPU
time of one thread, so other work on the machine has little effect.

    python scripts/bench/prepare.py [--bases 40e6] [--shared ../shared]
"""

import argparse
import cProfile
import gzip
import math
import os
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import TypeVar

import numpy as np
from Bio import SeqIO
from Bio.Seq import Seq

from virnucpro.sequences.index import SequenceIndex, build_index
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec

Item = tuple[str, bytes, bytes]
Result = TypeVar("Result")

# The functions of each stage; they do not call each other.
STAGES = {
    "reader": ["_read_batches"],
    "content digest": ["add in spec.py"],
    "windows": ["tile_all"],
    "six frames": ["open_frames"],
    "distinct items": ["_frame_digests", "distinct_rows"],
    "columns written": ["append in columns.py", "close in columns.py"],
}
ITEMS_FOR_MEMORY = 2_000_000
UNIT_ROWS = 4096


def main() -> None:
    """Write the input files and print the figures."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        genomes = write_genomes(arguments.shared, folder / "genomes.fa", int(arguments.bases))
        part = write_part(genomes, folder / "part.fa", int(arguments.reference_bases))
        compare_rates(folder, genomes, part, arguments.window)
        compare_memory(folder)


def _arguments() -> argparse.Namespace:
    shared = Path(os.environ.get("VIRNUCPRO_SHARED", Path(__file__).parents[3] / "shared"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shared", type=Path, default=shared, help="folder with genomes/*/*.fa.gz")
    parser.add_argument("--bases", type=float, default=40e6, help="minimum bases for our side")
    parser.add_argument("--reference-bases", type=float, default=1e6, help="bases for Biopython")
    parser.add_argument("--window", type=int, default=500)
    return parser.parse_args()


def write_genomes(shared: Path, path: Path, least: int) -> Path:
    """Concatenate genomes of viruses and of cells alternately."""
    groups = ("virus", "bacteria", "archaea", "protozoa", "plant")
    lists = [sorted((shared / "genomes" / group).glob("*.fa.gz")) for group in groups]
    with path.open("wb") as stream:
        for genome in filter(None, chain.from_iterable(zip_longest(*lists))):
            stream.write(gzip.decompress(genome.read_bytes()))
            if stream.tell() > least * 1.02:
                break
    return path


def write_part(genomes: Path, path: Path, least: int) -> Path:
    """Return records from the start of the file, up to a number of bases."""
    taken = 0
    with path.open("w") as stream:
        for record in SeqIO.parse(genomes, "fasta"):
            SeqIO.write(record, stream, "fasta")
            taken += len(record)
            if taken >= least:
                break
    return path


def compare_rates(folder: Path, genomes: Path, part: Path, window: int) -> None:
    """Print both throughputs, their ratio, and the shares of our stages."""
    spec = IndexSpec("frames", Alphabet.NUCLEOTIDE, window, "published", 1)
    check = build_index(folder / "part", [str(part)], spec)
    theirs, seconds = timed(lambda: prepare_with_biopython(part, window))
    if theirs != list(items_of(check)):
        sys.exit("the two sides do not find the same items: no rate means anything")
    their_rate = int(check.record_lengths.sum()) / seconds
    builds = [
        timed(lambda i=i: build_index(folder / f"index-{i}", [str(genomes)], spec))  # type: ignore[misc]
        for i in range(3)
    ]
    index, seconds = min(builds, key=lambda build: build[1])
    our_rate = int(index.record_lengths.sum()) / seconds
    print(f"{index.record_lengths.sum():,} bases, {index.n_records:,} records", end=", ")
    print(f"{index.n_windows:,} windows, {index.n_items:,} items, {index.n_rows:,} rows")
    print(f"virnucpro   {our_rate / 1e6:8.2f} Mb/s   ({1e9 / our_rate:.1f} ns a base)")
    print(f"Biopython   {their_rate / 1e6:8.2f} Mb/s   ({1e9 / their_rate:.1f} ns a base)")
    print(f"ratio       {our_rate / their_rate:8.1f}")
    print_shares(lambda: build_index(folder / "profiled", [str(genomes)], spec))


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """Return the result of the work and its CPU seconds."""
    started = time.process_time()
    result = work()
    return result, time.process_time() - started


def items_of(index: SequenceIndex) -> Iterator[Item]:
    """Yield name, bases and peptide of every item."""
    bases = index.sequences(index.item_row, "nucleotide")
    peptides = index.sequences(index.item_row, "protein")
    names = index.item_names(np.arange(index.n_items))
    yield from zip(names, bases, peptides, strict=True)


def prepare_with_biopython(path: Path, window: int) -> list[Item]:
    """Read, cut, translate and number the distinct items with Biopython."""
    items: list[Item] = []
    for record in SeqIO.parse(path, "fasta"):
        sequence = record.seq.upper()
        for k, (start, end) in enumerate(published_windows(len(sequence), window), 1):
            piece = sequence[start:end]
            for strand, letter in ((piece, "F"), (reversed_strand(piece), "R")):
                for offset in range(3):
                    if residues := open_peptide(strand[offset:]):
                        bases = strand[offset : offset + 3 * len(residues) + 1]
                        name = f"{record.id}_chunk_{k}{letter}{offset + 1}"
                        items.append((name, bytes(bases), residues))
    distinct = list(dict.fromkeys(item[1:] for item in items))
    distinct.sort(key=lambda content: -len(content[1]))
    rows = {content: row for row, content in enumerate(distinct)}
    _ = [rows[item[1:]] for item in items]
    return items


def published_windows(length: int, window: int) -> Iterator[tuple[int, int]]:
    """Cut a record into windows by the published rule."""
    n = math.ceil(length / window)
    excess = n * window - length
    low = excess // n if n else 0
    need = excess - low * (n - 1)
    moved = 0
    for k in range(n):
        start = k * window - moved
        yield start, min(start + window, length)
        moved += low + 1 if k < need else low


def reversed_strand(piece: Seq) -> Seq:
    """Return the reverse complement; Biopython alone would also complement N."""
    if set(bytes(piece)) <= set(b"ACGT"):
        return piece.reverse_complement()
    return Seq(bytes(piece)[::-1].translate(bytes.maketrans(b"ACGT", b"TGCA")))


def open_peptide(frame: Seq) -> bytes:
    """Translate a frame; empty if it has a stop codon."""
    frame = frame[: len(frame) // 3 * 3]
    if not set(bytes(frame)) <= set(b"ACGT"):
        codons = (bytes(frame[i : i + 3]) for i in range(0, len(frame), 3))
        frame = Seq(b"".join(codon for codon in codons if set(codon) <= set(b"ACGT")))
    residues = bytes(frame.translate())
    return b"" if b"*" in residues else residues


def print_shares(work: Callable[[], object]) -> None:
    """Profile the work and print the share of each stage."""
    profile = cProfile.Profile(time.process_time)
    profile.runcall(work)
    stats = pstats.Stats(profile)
    times = {
        key: cumulative
        for (file, _, function), (_, _, _, cumulative, _) in stats.stats.items()  # type: ignore[attr-defined]
        for key in (function, f"{function} in {Path(file).name}")
    }
    total = stats.total_tt  # type: ignore[attr-defined]
    shares = {stage: sum(times.get(key, 0) for key in keys) for stage, keys in STAGES.items()}
    shares["everything else"] = total - sum(shares.values())
    print("our time:  ", ", ".join(f"{name} {t / total:.0%}" for name, t in shares.items()))
    print("bound by:  ", max(shares, key=lambda stage: shares[stage]))


RANK = f"""
import sys
from pathlib import Path
import numpy as np
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.partition import unit_bounds
index = SequenceIndex.open(Path(sys.argv[1]))
unit_bounds(index.row_lengths, {UNIT_ROWS}, 10**9)
first = index.n_rows // 2
rows = np.arange(first, min(first + {UNIT_ROWS}, index.n_rows))
index.sequences(rows, "nucleotide"), index.sequences(rows, "protein")
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(*(status[key].split()[0] for key in ("VmRSS", "RssAnon")))
"""


def compare_memory(folder: Path) -> None:
    """Print the memory of a rank with a large index above one with an empty index."""
    spec = IndexSpec("frames", Alphabet.NUCLEOTIDE, 300, "published", 1)
    (folder / "empty.fa").touch()
    build_index(folder / "empty", [str(folder / "empty.fa")], spec)
    reads = write_reads(folder / "reads.fa", ITEMS_FOR_MEMORY * 47 // 100)
    large, seconds = timed(lambda: build_index(folder / "large", [str(reads)], spec))
    print(f"{large.n_records:,} reads of 60 bases, {large.n_items:,} items: {seconds:.1f} s of CPU")
    empty, full = (
        np.array(
            subprocess.run(
                [sys.executable, "-c", RANK, str(folder / name)], check=True, capture_output=True
            ).stdout.split(),
            dtype=float,
        )
        / 1024
        for name in ("empty", "large")
    )
    resident, anonymous = full - empty
    print(f"a rank on it, one unit read: {full[0]:.1f} MB, {resident:.1f} MB more than on an empty")
    print(
        f"index, of which {anonymous:.1f} MB its own and the rest pages of files, shared by ranks"
    )


def write_reads(path: Path, n_reads: int) -> Path:
    """Write random reads of 60 bases, with more than two items each."""
    letters = np.frombuffer(b"ACGT", np.uint8)[
        np.random.default_rng(1).integers(0, 4, (n_reads, 60), np.uint8)
    ]
    with path.open("wb") as stream:
        stream.writelines(b">r%d\n%s\n" % (i, row.tobytes()) for i, row in enumerate(letters))
    return path


if __name__ == "__main__":
    main()
