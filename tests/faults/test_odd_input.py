"""Row 22: a huge record, many tiny ones, unusual names: bounded memory."""

import random
import sys

import pytest
from cases import slow
from programs import run_captured
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
    assert SequenceIndex.open(folder / "index").n_rows < 200


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
