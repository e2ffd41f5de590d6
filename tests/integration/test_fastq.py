"""Sequences of FASTQ inputs are written as FASTQ."""

import gzip
import random
import re

import dnaio
import pytest
from programs import take_apart
from samples import copy_of, read_table

from virnucpro.cli.main import main
from virnucpro.compute.preflight import space_needed
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex

pytestmark = pytest.mark.usefixtures("one_process")

ALL = ("--extract", "viral,ambiguous,non-viral,not_scored")
DEVICES = ("--devices", "cpu:1", "-q")


@pytest.fixture(scope="module")
def reads(small_fasta):
    """Name, letters and qualities; the last two reads have gaps and a letter that is no base."""
    dice = random.Random(7)
    entries = [entry.split("\n") for entry in small_fasta.read_text().split(">")[1:]]
    pairs = [(name, bases) for name, bases, _ in entries]
    pairs += [("gaps", "--ACGT" * 40), ("invalid", "MKV")]
    marks = [chr(number) for number in range(33, 127)]
    return [(name, bases, "".join(dice.choices(marks, k=len(bases)))) for name, bases in pairs]


@pytest.fixture(scope="module")
def inputs(reads, tmp_path_factory):
    """The reads as FASTQ, and again: in lower case, with Windows line ends, compressed."""
    folder = tmp_path_factory.mktemp("reads")
    text = "".join(f"@{name}\n{bases}\n+\n{marks}\n" for name, bases, marks in reads)
    (folder / "a b.fq").write_text(text)
    odd = "".join(f"@{name}\r\n{s.lower()}\r\n+\r\n{q}\r\n" for name, s, q in reads)
    (folder / "again.fastq.gz").write_bytes(gzip.compress(odd.encode()))
    return [str(folder / "a b.fq"), str(folder / "again.fastq.gz")]


@pytest.fixture(scope="module")
def finished(inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fastq") / "run"
    assert main(["predict", *inputs, "-o", str(folder), *DEVICES, *ALL]) == 0
    return folder


run = copy_of("finished")


def sequences(run):
    """Return name and content of each file of sequences."""
    return {path.name: path.read_bytes() for path in run.glob("*.fast[aq]*")}


def test_reads_have_their_letters_and_qualities(finished, reads):
    kept = [
        [(a.upper(), b) for a, b in zip(bases, marks, strict=True) if a != "-"]
        for _, bases, marks in reads
    ]
    table = read_table(finished / "predictions.tsv")
    assert len(table) == 2 * len(reads)
    for call in ("viral", "ambiguous", "non-viral", "not_scored"):
        with dnaio.open(RunDirectory(finished).extract(call, fastq=True)) as stream:
            found = list(stream)
        assert len({one.id for one in found}) == len(found)
        chosen = [row for row in table if row["call"] == call]
        assert [
            re.sub(r"^\S+ (kind=virus )?|start=\d+ end=\d+ (topology=\S+ )?", "", one.name)
            for one in found
        ] == [
            f"probability={row['probability']} score={row['score']} name={row['seq_name']} "
            f"length={row['length']} file={row['file'].replace(' ', '%20')} record={row['record']}"
            for row in chosen
        ]
        for one, row in zip(found, chosen, strict=True):
            wanted = kept[int(row["record"]) - 1]
            assert list(zip(one.sequence, one.qualities, strict=True)) == wanted
    assert not [*finished.glob("*.fasta*")]


def test_the_disk_estimate_counts_the_qualities(finished):
    index = SequenceIndex.open(finished / "run" / "index")
    written = sum(len(content) for content in sequences(finished).values())
    needed = space_needed(index, units=0, rows=0, row_bytes=0)["sequences"]
    assert written <= needed <= 1.5 * written


def test_compress_replaces_the_files_and_verify_finds_changes(run, inputs, capsys, called):
    plain = sequences(run)
    assert main(["verify", str(run)]) == 0
    command = ["predict", *inputs, "-o", str(run), *DEVICES, *ALL, "--resume"]
    assert main([*command, "--compress"]) == 0
    packed = {name.removesuffix(".gz"): gzip.decompress(x) for name, x in sequences(run).items()}
    assert packed == plain
    assert all(name.endswith(".gz") for name in sequences(run))
    assert main(["verify", str(run)]) == 0
    (run / "viruses.fasta").write_text(">stray\nA\n")
    capsys.readouterr()
    assert "viruses.fasta: differs" in called("verify", run, code=1).stdout
    assert main(["aggregate", str(run), "-q"]) == 0
    assert not (run / "viruses.fasta").exists()


def test_rescore_and_repair_write_the_same_files(run, inputs, capsys):
    before = sequences(run)
    _, segment = take_apart(run).segments()[0]
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 255
    segment.write_bytes(content)
    assert main(["verify", str(run), "--repair"]) == 2
    assert not segment.exists()
    assert main(["predict", *inputs, "-o", str(run), *DEVICES, "--resume"]) == 0
    assert sequences(run) == before
    assert main(["rescore", str(run), "--threshold", "0", "-q"]) == 0
    assert sequences(run) != before
    assert sequences(run).keys() == before.keys()
    assert main(["verify", str(run)]) == 0
    assert main(["rescore", str(run), "--preset", "default", "-q"]) == 0
    assert sequences(run) == before


def test_fasta_among_the_inputs_or_force_gives_fasta(run, inputs, small_fasta):
    command = ["predict", "-o", str(run), *DEVICES, "--force", "--extract", "not_scored"]
    assert main([*command, inputs[0], str(small_fasta)]) == 0
    assert sequences(run).keys() == {"not_scored.fasta"}
    assert not SequenceIndex.open(run / "run" / "index").has_qualities
    assert main(["verify", str(run)]) == 0
