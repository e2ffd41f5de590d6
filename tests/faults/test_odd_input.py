"""Row 22: a huge record, many tiny ones, unusual names: bounded memory."""

import random
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from cases import slow
from programs import VIRNUCPRO, run_captured
from samples import OPEN_CODONS, random_records

from virnucpro.cli.main import main
from virnucpro.sequences.index import SequenceIndex

# Prints the peak memory of its process in kB. getrusage would include the parent's memory, because
# a process starts as a copy of its parent.
MEASURED = """
import pathlib, sys
from virnucpro.cli.main import main
code = main(sys.argv[1:])
print(pathlib.Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
sys.exit(code)
"""


def peak_kb(*arguments):
    done = run_captured(sys.executable, "-c", MEASURED, *arguments, code=0)
    return int(done.stdout.split()[-1])


def tiny_records(path, number):
    path.write_text(random_records(number, seed=22, letters="ACGT", least=24, most=24, name="t"))
    return path


@pytest.mark.parametrize(
    ("few", "many"),
    [(3_000, 15_000), slow(30_000, 300_000)],
)
def test_many_tiny_records_need_bounded_memory(few, many, tmp_path):
    """Rows are identified by digests of 16 bytes, and sorted: measured 115 bytes per item."""
    small = peak_kb("frames", tiny_records(tmp_path / "few.fa", few), "-o", tmp_path / "few")
    large = peak_kb("frames", tiny_records(tmp_path / "many.fa", many), "-o", tmp_path / "many")
    text = (tmp_path / "many" / "many_identified_protein.faa").read_bytes()
    items = text.count(b">")
    assert b">t0_chunk_1F" in text
    assert b">t%d_chunk_1" % (many - 1) in text
    print(f"{few:,} -> {many:,} records, {items:,} items: {small} -> {large} kB")
    assert (large - small) * 1024 < 150 * items + (2 << 20)


@pytest.mark.parametrize("megabases", [3, slow(60)])
def test_a_huge_record_needs_bounded_memory(megabases, tmp_path):
    path = tmp_path / "huge.fa"
    line = "".join(random.Random(2).choices("ACGT", k=1_000_000)) + "\n"
    path.write_text(">huge\n" + line * megabases)
    (tmp_path / "one.fa").write_text(">one\n" + line[:1000])
    small = peak_kb("frames", tmp_path / "one.fa", "-o", tmp_path / "one")
    large = peak_kb("frames", path, "-o", tmp_path / "huge")
    print(f"{megabases} Mb: {small} -> {large} kB")
    assert (large - small) * 1024 < 6 * megabases * 1_000_000 + (32 << 20)


@pytest.fixture(scope="module")
def chromosome(tmp_path_factory):
    """FASTA file of one record of 300,000,123 random bases, and a short one."""
    path, dice = tmp_path_factory.mktemp("chromosome") / "in.fa", random.Random(3)
    bases = bytes(b"ACGT"[number % 4] for number in range(256))
    with path.open("wb") as stream:
        stream.write(b">chr1\n")
        for _ in range(300):
            stream.write(dice.randbytes(1_000_000).translate(bases) + b"\n")
        stream.write(b"ACGTGCA" * 17 + b"ACGT\n>short\n" + b"ACGTGCATT" * 50 + b"\n")
    yield path
    path.unlink()


def predicted(path, folder, *options):
    """Predict a file; return the peak memory of the command and of its worker, in bytes."""
    words = ["predict", path, "-o", folder, "--devices", "cpu:1", "-q", *options]
    process = subprocess.Popen([*VIRNUCPRO, *map(str, words)])
    peaks = {}
    while process.poll() is None:
        with suppress(OSError, IndexError):  # a process has just ended
            lists = Path(f"/proc/{process.pid}/task").glob("*/children")
            for pid in [process.pid, *" ".join(map(Path.read_text, lists)).split()]:
                status = Path(f"/proc/{pid}/status").read_text()
                peaks[int(pid)] = int(status.partition("VmHWM:")[2].split()[0]) << 10
        time.sleep(0.02)
    assert process.returncode == 0
    return peaks.pop(process.pid), max(peaks.values(), default=0)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_record_of_300_mb_is_answered_in_the_memory_that_the_limits_state(
    chromosome, tmp_path, tables
):
    """25 s on a core with AVX-512. docs/limits.md: 370 MB for 60 Mb; performance.md: worker."""
    peak, peak_of_worker = predicted(chromosome, tmp_path / "run")
    print(f"peak memory {peak >> 20} MiB, worker {peak_of_worker >> 20} MiB")
    first, second = tables(tmp_path / "run" / "predictions.tsv")
    assert first["length"] == "300000123"
    assert first["n_windows"] == first["n_scored"] == "600001"
    assert (first["status"], first["call"], second["n_windows"]) == ("scored", "non-viral", "1")
    with (tmp_path / "run" / "tracks" / "windows.tsv").open() as stream:
        header, *lines = (line.split("\t")[:4] for line in stream)
    assert header == ["seq_name", "window", "start", "end"]
    assert lines[0] == ["chr1", "chr1_chunk_1", "1", "500"]
    assert lines[600_000] == ["chr1", "chr1_chunk_600001", "299999624", "300000123"]
    assert lines[600_001:] == [["short", "short_chunk_1", "1", "450"]]
    assert peak < 370 / 60 * 300_000_123 + (64 << 20)
    assert 20 << 20 < peak_of_worker < 160 << 20


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_record_above_the_largest_length_is_answered_in_little_memory(
    chromosome, tmp_path, tables
):
    peak, _ = predicted(chromosome, tmp_path / "run", "--max-record", "1000000")
    print(f"peak memory {peak >> 20} MiB")
    first, second = tables(tmp_path / "run" / "predictions.tsv")
    assert (first["length"], first["n_windows"], first["score"]) == ("300000123", "0", "NA")
    assert (first["status"], first["call"]) == ("too_long", "not_scored")
    assert (second["status"], second["n_windows"]) == ("scored", "1")
    assert peak < 128 << 20


def test_records_with_unusual_names_keep_their_order(tmp_path, tables):
    """Few distinct sequences keep the embedding short: 600 records share about 100 rows."""
    dice = random.Random(7)
    genes = ["".join(dice.choices(OPEN_CODONS, k=80)) for _ in range(20)]
    names = [
        "n" * 10_000,
        "\u03b1\u03b2-Fl\u00fcgel\U0001f9ec",
        "same",
        "same",
        '"quoted"',
        "'",
        "#hash",
        "a,b;c|d",
        *(f"r{number}" for number in range(600)),
    ]
    path, folder = tmp_path / "odd.fa", tmp_path / "run"
    with path.open("w") as stream:
        for number, name in enumerate(names):
            stream.write(f">{name}\ttab  and more\t\n{genes[number % 20]}\n")
    command = ["predict", str(path), "-o", str(folder), "--devices", "cpu:1", "-q"]
    assert main(command) == 0
    rows = tables(folder / "predictions.tsv")
    names[names.index("#hash")] = "%23hash"
    assert [row["seq_name"] for row in rows] == names
    assert {row["status"] for row in rows} == {"scored"}
    assert all(row["score"] == rows[number % 20]["score"] for number, row in enumerate(rows))
    assert SequenceIndex.open(folder / "run" / "index").n_rows < 200


def test_control_characters_reach_no_output(tmp_path, capfd):
    path, folder = tmp_path / "odd.fa", tmp_path / "run"
    path.write_bytes(b">a\x1b]0;title\x07 x\n%b\n>b\xc2\x9b2J\nACGT\n>c\nA\n" % (b"GCC" * 40))
    assert main(["predict", str(path), "-o", str(folder), "--devices", "cpu:1", "-q"]) == 0
    warnings = [line for line in capfd.readouterr().err.splitlines() if "warning" in line]
    assert len(warnings) == 1
    assert "sequence names with control characters, or" in warnings[0]
    for table in (*folder.glob("*.tsv"), *folder.glob("*.txt"), *folder.glob("*.csv")):
        text = table.read_text()
        assert text.replace("\n", "").replace("\t", "").isprintable(), table
    assert "\na%1B]0;title%07\t" in (folder / "predictions.tsv").read_text()
    assert main(["verify", str(folder)]) == 0
