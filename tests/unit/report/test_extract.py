"""Files of called records: FASTA and FASTQ."""

import gzip
import os
from pathlib import Path

import dnaio
import numpy as np
import pytest

from virnucpro.classifier.regions import Regions
from virnucpro.report import extract
from virnucpro.report.extract import RecordIds, extract_texts, virus_texts, write_texts
from virnucpro.sequences.index import build_index
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec

RECORDS = [("a", "acgu" * 30), ("b\x1b[31m", "ACG"), ("a", "NNN"), ("empty", ""), ("", "GATTACA")]
SCORE = np.array([0.97314, 0.5, np.nan, np.nan, 1.0], np.float32)
PROBABILITY = np.array([0.99116, 0.25, np.nan, np.nan, 1.0])
WANTED = f"""\
>records|a|1 probability=0.9912 score=0.9731 name=a length=120 file=records.fa record=1
{"ACGT" * 20}
{"ACGT" * 10}
>records|a|3 probability=NA score=NA name=a length=3 file=records.fa record=3
NNN
>empty probability=NA score=NA name=empty length=0 file=records.fa record=4
>unnamed_5 probability=1.0000 score=1.0000 name=unnamed_5 length=7 file=records.fa record=5
GATTACA
"""


@pytest.fixture(scope="module")
def index(index_records):
    return index_records(RECORDS)


@pytest.mark.parametrize("name", ["viral.fasta", "viral.fasta.gz"])
def test_chosen_records_are_written_in_input_order(index, tmp_path, name):
    chosen = np.array([True, False, True, True, True])
    write_texts(tmp_path / name, extract_texts(RecordIds(index), chosen, SCORE, PROBABILITY))
    data = (tmp_path / name).read_bytes()
    assert (gzip.decompress(data) if name.endswith("gz") else data).decode() == WANTED
    write_texts(
        tmp_path / f"again-{name}", extract_texts(RecordIds(index), chosen, SCORE, PROBABILITY)
    )
    assert (tmp_path / f"again-{name}").read_bytes() == data


@pytest.mark.parametrize("name", ["viral.fasta", "viral.fasta.gz"])
def test_without_a_record_the_file_is_empty(index, tmp_path, name):
    write_texts(
        tmp_path / name, extract_texts(RecordIds(index), np.zeros(5, bool), SCORE, PROBABILITY)
    )
    data = (tmp_path / name).read_bytes()
    assert (gzip.decompress(data) if name.endswith("gz") else data) == b""


def test_control_characters_of_names_are_encoded(index, tmp_path):
    write_texts(
        tmp_path / "b.fasta", extract_texts(RecordIds(index), np.arange(5) == 1, SCORE, PROBABILITY)
    )
    header, _, bases = (tmp_path / "b.fasta").read_text().partition(" probability=0.2500 ")
    assert header == ">b%1B[31m"
    assert bases == "score=0.5000 name=b%1B[31m length=3 file=records.fa record=2\nACG\n"


READS = [("r/1", "ACGTN" * 90, "!~@>+" * 90), ("s", "", ""), ("r/1", "GG", "@I")]


@pytest.fixture(scope="module")
def reads(tmp_path_factory):
    """Reads of two files, whose names have white space and other unusual characters."""
    folder = tmp_path_factory.mktemp("reads")
    text = "".join(f"@{name} comment\n{bases}\n+\n{marks}\n" for name, bases, marks in READS)
    names = ("a b.fq", "\u2003\x1b\udce9%.fq")
    for name in names:
        (folder / name).write_text(text)
    spec = IndexSpec("windows", Alphabet.NUCLEOTIDE, 300, "even", 1)
    return build_index(folder / "index", [str(folder / name) for name in names], spec)


@pytest.mark.parametrize("at_once", [80, 1 << 20])
@pytest.mark.parametrize("name", ["viral.fastq", "viral.fastq.gz"])
def test_fastq_has_letters_and_qualities_of_the_input(reads, tmp_path, name, at_once, monkeypatch):
    monkeypatch.setattr(extract, "_LETTERS_AT_ONCE", at_once)
    score = np.linspace(0, 1, 6, dtype=np.float32)
    write_texts(
        tmp_path / name,
        extract_texts(RecordIds(reads), np.ones(6, bool), score, score / 2, fastq=True),
    )
    with dnaio.open(tmp_path / name) as stream:
        found = [(one.name, one.sequence, one.qualities) for one in stream]
    files = ("a%20b.fq", "%E2%80%83%1B%E9%.fq")
    origins = [(file, place, read) for file in files for place, read in enumerate(READS, 1)]
    assert found == [
        (
            (
                f"{file.removesuffix('.fq')}|{read}{f'|{place}' if read == 'r/1' else ''} "
                f"probability={score[number] / 2:.4f} score={score[number]:.4f} name={read} "
                f"length={len(bases)} file={file} record={place}"
            ),
            bases,
            marks,
        )
        for number, (file, place, (read, bases, marks)) in enumerate(origins)
    ]


def test_stretches_have_their_qualities(reads, tmp_path):
    record, start, end, score = (np.array([value]) for value in (3, 100, 105, 0.25))
    one = np.ones(1, np.int64)
    regions = Regions(record, start, end, one > 0, one, one, score, score, score / 2)
    whole = np.arange(6) == 1
    numbers, topology = np.full(6, 0.5), np.zeros(6, np.uint8)
    of_records = whole, numbers, numbers, regions, topology
    write_texts(tmp_path / "v.fastq", virus_texts(RecordIds(reads), *of_records, fastq=True))
    assert (tmp_path / "v.fastq").read_text() == (
        "@a%20b|s kind=virus probability=0.5000 score=0.5000 start=1 end=0 topology=NA "
        "name=s length=0 file=a%20b.fq record=2\n\n+\n\n"
        "@%E2%80%83%1B%E9%|r/1|1|provirus_101_105 kind=provirus probability=0.1250 score=0.2500 "
        "start=101 end=105 topology=NA name=r/1 length=5 file=%E2%80%83%1B%E9%.fq record=1\n"
        "ACGTN\n+\n!~@>+\n"
    )


def test_viruses_are_whole_records_and_stretches_of_proviruses_in_input_order(index, tmp_path):
    one, start, end = (np.array(values) for values in ([1, 1], [99, 0], [120, 4]))
    inserted = Regions(np.zeros_like(one), start, end, one > 0, one, one, one, one, one / 4)
    viral = np.array([False, True, False, False, True])
    numbers = np.linspace(0, 1, 5)
    topology = np.array([1, 0, 0, 0, 2], np.uint8)
    write_texts(
        tmp_path / "v.fasta",
        virus_texts(RecordIds(index), viral, numbers / 2, numbers, inserted, topology),
    )
    assert (tmp_path / "v.fasta").read_text().splitlines() == [
        (
            ">records|a|1|provirus_1_4 kind=provirus probability=0.2500 score=1.0000 start=1 end=4 "
            "topology=provirus_candidate "
            "name=a length=4 file=records.fa record=1"
        ),
        "ACGT",
        (
            ">records|a|1|provirus_100_120 kind=provirus probability=0.2500 score=1.0000 "
            "start=100 end=120 topology=provirus_candidate "
            "name=a length=21 file=records.fa record=1"
        ),
        "TACGTACGTACGTACGTACGT",
        (
            ">b%1B[31m kind=virus probability=0.2500 score=0.1250 start=1 end=3 topology=NA "
            "name=b%1B[31m length=3 file=records.fa record=2"
        ),
        "ACG",
        (
            ">unnamed_5 kind=virus probability=1.0000 score=0.5000 start=1 end=7 topology=DTR "
            "name=unnamed_5 length=7 file=records.fa record=5"
        ),
        "GATTACA",
    ]


NAMES = {
    "a.fa": ["k1", "k2", "own"],
    "b.fa.gz": ["k1", "k2", "k2", "a|k1"],
    "c/s.fa": ["k1"],
    "d/s.fa": ["k1", "only"],
    "c/s.fna": ["k1"],
    "c_s.fa": ["k1"],
    "p.fa": ["b|c"] * 2,
    "p|b.fa": ["c"] * 2,
    "cut.fa": ["t", "t|provirus_5_9", "u|provirus_1_4", "u|provirus_5_9", "t|provirus_5"],
    "t.fa": ["k1", "provirus_5_9", "k1"],
}


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        (["a.fa"], "k1 k2 own"),
        (["a.fa", "b.fa.gz"], "a|k1|1 a|k2 own b|k1 b|k2|2 b|k2|3 b|a|k1"),
        (["b.fa.gz"], "k1 b|k2|2 b|k2|3 a|k1"),
        (["c/s.fa", "d/s.fa"], "c_s|k1 d_s|k1 only"),
        (["PWD/c/s.fa", "PWD/d/s.fa"], "c_s|k1 d_s|k1 only"),
        (["c/s.fa", "c/s.fna"], "s.fa|k1 s.fna|k1"),
        (["d/s.fa", "c/s.fa", "c_s.fa"], "d%2Fs.fa|k1 only c%2Fs.fa|k1 c_s.fa|k1"),
        (["p.fa", "p|b.fa"], "p|b|c|1 p|b|c|2 p%7Cb|c|1 p%7Cb|c|2"),
        (
            ["cut.fa"],
            "t cut|t|provirus_5_9 u|provirus_1_4 u|provirus_5_9 t|provirus_5",
        ),
        (["t.fa", "d/s.fa"], "t|k1|1 provirus_5_9 t|k1|3 s|k1 only"),
    ],
)
def test_an_id_is_the_name_or_begins_with_the_sample(files, wanted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = [file.replace("PWD", str(tmp_path)) for file in files]
    for file in map(os.path.relpath, files):
        text = "".join(f">{name}\nACGT\n" for name in NAMES[file]).encode()
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).write_bytes(gzip.compress(text) if file.endswith("gz") else text)
    spec = IndexSpec("windows", Alphabet.NUCLEOTIDE, 300, "even", 1)
    index = build_index(tmp_path / "index", files, spec)
    assert RecordIds(index).of(np.arange(index.n_records)) == wanted.split()
