"""Exit codes and messages for bad input: the table of docs/bad-input.md, and unusual input."""

import bz2
import gzip
import io
import json
import os
import random
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from virnucpro.cli.main import main

pytestmark = pytest.mark.usefixtures("one_process")

PAGE = Path(__file__).parents[2] / "docs" / "bad-input.md"
GENE = b"ATGGCCAAAGGTCCC" * 60
COMPLEX = "".join(random.Random(8).choices("ACGT", k=400)).encode()
PROTEIN = b"MKVLEQFFPIWHDRSY" * 10


def _fastq(name, letters):
    return b"@%s\n%s\n+\n%s\n" % (name, letters, b"I" * len(letters))


FILES = {
    "mixed.fa": b">a\n%s\n>p1\nMKVLEQFFPI\n>b\nACGT\n" % GENE,
    "gaps.fa": b">g\nACGT--AC..GT--\n>a\n%s\n" % GENE,
    "gaps.fq": _fastq(b"g", b"ACGT-ACGT") + _fastq(b"a", GENE),
    "odd.fq": _fastq(b"a", GENE) + b"@r1\nACGT\n+\nII I\n",
    "noisy.fq": b"".join(
        b"@%s\n%s\n+\n%s\n" % (name, COMPLEX * 3, b"./" * 600) for name in (b"a", b"b")
    ),
    "names.fa": b">a\n%s\n>b\nAC\n>a\nACC\n" % GENE,
    "again.fa": b">a\n%s\n" % GENE,
    "unnamed.fa": b">a\n%s\n> \nACGT\n" % GENE,
    "empty.fa": b"",
    "blank.fa": b"\n \r\n\t\n",
    "empty.fa.gz": gzip.compress(b""),
    "control.fa": b">a\x1bb\n%s\n" % GENE,
    "short.fa": b">a\n%s\n>b\n%s\n" % (COMPLEX, COMPLEX[:99]),
    "tiny.fa": b">a\nACGT\n>b\nACC\n",
    "inner.faa": b">p1\nMKV*LEQ\n>p2\nMKVLEQ*\n",
    "peptides.faa": b">p1\nGATTACATAC\n>p2\nACGTACGTAC\n",
    "dna.fa": b">a\n%s\n" % COMPLEX,
    "protein.fa": b">p1\nMKVLEQFFPI\n",
    "protein.faa": b">p1\n%s\n>p2\n%s\n" % (PROTEIN, PROTEIN),
    "digits.fa": b">a\n1 ACGTACGTAC\n11 ACGT\n",
    "absent.fa": None,
    "junk.fa": bytes(range(256)) * 40,
    "notes.fa": b"dear diary\n",
    "nul.fa": b">a\0b\nACGT\n",
    "cut.fa.gz": gzip.compress(b">a\n" + os.urandom(4000).hex().encode())[:-300],
    "cut.fq": b"@r1\nACGT\n+\nIIII\n@r2\nACGT\n",
    "few.fq": b"@r1\nACGT\n+\nIII\n",
}


class Row(NamedTuple):
    """A row of the page."""

    name: str
    command: str
    message: str
    code: int


def _rows():
    for line in PAGE.read_text().splitlines():
        if line.startswith("| `"):
            name, _, command, message, code = (
                cell.strip() for cell in line.strip("|").split(" | ")
            )
            yield Row(name.strip("`"), command.strip("`"), message.strip("`"), int(code))


ROWS = list(_rows())


def _make(name, folder):
    path = folder / name
    if name == "folder.fa":
        path.mkdir()
    elif FILES[name] is not None:
        path.write_bytes(FILES[name])


def test_the_page_lists_every_file():
    assert {row.name for row in ROWS} == {*FILES, "folder.fa"}


@pytest.mark.parametrize("row", ROWS, ids=[row.command for row in ROWS])
def test_each_row_of_the_page_is_true(row, tmp_path, called, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _make(row.name, tmp_path)
    words = [*shlex.split(row.command), "-o", "run"]
    if words[0] in {"predict", "embed"}:
        words += ["--devices", "cpu:1"]
    done = called(*words)
    code, printed = done.returncode, done.stderr
    assert code == row.code
    assert "Traceback" not in printed
    place = 0
    for part in row.message.split("..."):
        assert part.strip() in printed[place:], printed
        place = printed.index(part.strip(), place)
    assert (tmp_path / "run").exists() == (code == 0)
    if words[0] == "predict" and code == 0:
        records = sum(FILES[name].count(b">") for name in words[1:3] if name in FILES)
        if row.name.endswith(".fq"):
            records = 2
        assert len((tmp_path / "run" / "predictions.tsv").read_text().splitlines()) == records + 1


@pytest.mark.parametrize(
    ("pack", "form", "pipe"),
    [(gzip.compress, "fasta", True), (bytes, "fastq", True), (bz2.compress, "fastq", False)],
    ids=["FASTA, gz, stdin", "FASTQ, stdin", "FASTQ, bz2"],
)
def test_invalid_records_are_answered_in_all_formats(
    pack, form, pipe, tmp_path, tables, capsys, monkeypatch
):
    records = [(b"a", GENE), (b"p", b"MKVLEQ"), (b"", b"AC-GT"), (b"a", b"ACGN")]
    text = b"".join(
        _fastq(name, letters) if form == "fastq" else b">%s\n%s\n" % (name, letters)
        for name, letters in records
    )
    path = tmp_path / "in"
    path.write_bytes(pack(text))
    if pipe:
        stream = io.TextIOWrapper(io.BytesIO(pack(text)))
        monkeypatch.setattr("sys.stdin", stream)
    words = ["predict", "-" if pipe else str(path), "-o", str(tmp_path / "run"), "-q"]
    assert main([*words, "--devices", "cpu:1"]) == 0
    rows = tables(tmp_path / "run" / "predictions.tsv")
    assert [(row["seq_name"], row["length"], row["status"]) for row in rows] == [
        ("a", "900", "scored"),
        ("p", "6", "invalid_letters"),
        ("unnamed_3", "4", "too_short"),
        ("a", "4", "too_short"),
    ]
    assert {row["call"] for row in rows[1:]} == {"not_scored"}
    assert {row["score"] for row in rows[1:]} == {"NA"}
    printed = capsys.readouterr().err
    assert printed.count("warning:") == 4
    assert "record 2 (p): 'L' (letter 4)" in printed


# name, content, statuses of its rows
ANSWERED = [
    ("one_base.fa", b">a\nA\n", ["too_short"]),
    ("all_n.fa", b">a\n" + b"N" * 900 + b"\n", ["ambiguous_bases"]),
    ("no_record.fa", b"", []),
    ("empty_record.fa", b">a\n>b\n" + GENE + b"\n", ["too_short", "scored"]),
    ("twice.fa", b">a\n" + GENE + b"\n>a\n" + GENE + b"\n", ["scored", "scored"]),
    ("windows.fa", b">a\r\n" + GENE.lower() + b"\r\n\r\n", ["scored"]),
    ("rna.fa", b">a\n" + GENE.replace(b"T", b"U"), ["scored"]),
    ("tab.fa", b">a\tb c\n" + GENE + b"\n", ["scored"]),
    ("unicode.fa", ">Fl\u00fcgelvirus_\u03b1\n".encode() + GENE + b"\n", ["scored"]),
    ("long_name.fa", b">" + b"x" * 10_000 + b"\n" + GENE + b"\n", ["scored"]),
    ("reads.fq", b"@a\n" + GENE + b"\n+\n" + b"I" * len(GENE) + b"\n", ["scored"]),
]


def test_unusual_but_valid_input_is_predicted(tmp_path, tables):
    """All cases are inputs of one run."""
    paths = [tmp_path / name for name, _, _ in ANSWERED]
    for path, (_, content, _) in zip(paths, ANSWERED, strict=True):
        path.write_bytes(content)
    run = tmp_path / "run"
    assert main(["predict", *map(str, paths), "-o", str(run), "--devices", "cpu:1", "-q"]) == 0
    rows = tables(run / "predictions.tsv")
    assert [row["status"] for row in rows] == [one for case in ANSWERED for one in case[2]]
    same_gene = {row["score"] for row in rows if row["status"] == "scored"}
    assert len(same_gene) == 1
    assert "Fl\u00fcgelvirus_\u03b1" in {row["seq_name"] for row in rows}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "required"),
        (["predict"], "required"),
        (["predict", "a.fa", "-o", "x", "--window", "0"], "--window"),
        (["predict", "a.fa", "-o", "x", "--resume", "--force"], "give one of them"),
        (["fly"], "unknown command"),
    ],
)
def test_wrong_usage_exits_64(arguments, message, called):
    done = called(*arguments, code=64)
    assert message in done.stderr


@pytest.mark.slow
def test_a_record_of_three_million_bases_is_predicted(tmp_path, tables):
    path = tmp_path / "large.fa"
    path.write_text(">large\n" + "".join(random.Random(3).choices("ACGT", k=3_000_000)))
    run = tmp_path / "run"
    assert main(["predict", str(path), "-o", str(run), "-q"]) == 0
    (row,) = tables(run / "predictions.tsv")
    assert row["length"] == "3000000"
    assert row["n_windows"] == "6000"


# --- several machines, and launches


MIXED = b">a\n%s\n>p\nMKVLEQ\n>g\nAC-GT\n>\n%s\n" % (GENE, GENE[:400])
STATUSES = ["scored", "invalid_letters", "too_short", "scored"]


@pytest.fixture
def mixed(tmp_path):
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "mixed.fa"
    path.write_bytes(MIXED)
    return path


def test_a_task_answers_the_same_records(mixed, tmp_path, tables, called):
    one, many = tmp_path / "one", tmp_path / "many"
    warned = called("predict", mixed, "-o", one, "--devices", "cpu:1", "-q", code=0).stderr
    task = ("predict", mixed, "-o", many, "--task", "0/1", "--devices", "cpu:1", "-q")
    printed = called(*task, code=0).stderr
    for kind in ("invalid_letters", "gaps (- and .) were removed", "sequences without a name"):
        assert kind in warned
        assert kind in printed
    assert main(["aggregate", str(many), "-q"]) == 0
    assert [row["status"] for row in tables(many / "predictions.tsv")] == STATUSES
    for name in ("predictions.tsv", "tracks/windows.tsv", "viruses.fasta"):
        assert (many / name).read_bytes() == (one / name).read_bytes()


def test_a_launch_answers_mixed_files_and_fails_proteins_alone(mixed, tmp_path, tables, capsys):
    (mixed.parent / "protein.fa").write_bytes(b">p\nMKVLEQ\n")
    (mixed.parent / "empty.fa").write_bytes(b"")
    out = tmp_path / "out"
    words = ["launch", "--input-dir", str(mixed.parent), "-o", str(out), "--devices", "cpu:1"]
    assert main([*words, "--min-length", "60"]) == 2
    printed = capsys.readouterr()
    assert "this looks like a protein" in printed.out + printed.err
    rows = {row["file"]: row for row in tables(out / "launch.tsv")}
    states = {name.rpartition("/")[2]: row["status"] for name, row in rows.items()}
    assert states == {"mixed.fa": "done", "protein.fa": "failed", "empty.fa": "done"}
    answered = tables(out / "mixed.fa" / "predictions.tsv")
    assert [row["status"] for row in answered] == STATUSES
    assert tables(out / "empty.fa" / "predictions.tsv") == []
    parameters = json.loads((out / "mixed.fa" / "run" / "run.json").read_text())["parameters"]
    assert parameters["min_length"] == 60
    details = (out / "launch.json").read_text()
    assert "They have the status invalid_letters" in details
    assert "inputs without sequences: 1" in details


def test_a_run_without_a_score_fails_on_request(tmp_path, called):
    (tmp_path / "in").mkdir()
    short, empty = tmp_path / "in" / "short.fa", tmp_path / "in" / "empty.fa"
    short.write_bytes(b">a\nACGT\n")
    empty.write_bytes(b"")
    one, cpu = tmp_path / "one", ["--devices", "cpu:1", "-q"]
    for path in (short, empty):
        words = ["predict", str(path), "-o", str(one), *cpu, "--force"]
        assert "error" not in called(*words, code=0).stderr
        assert "error: no sequence has a result" in called(*words, "--fail-empty", code=1).stderr
    assert json.loads((one / "run" / "run.json").read_text())["prevalence"] is None
    printed = called("predict", short, "-o", one, "--devices", "cpu:1", "--force", code=0).stderr
    assert "scored: 1 too short. Sequences of fewer than 60 bases have no score" in printed
    assert "assumed" not in printed
    many = str(tmp_path / "many")
    assert main(["predict", str(short), "-o", many, "--task", "0/1", *cpu]) == 0
    assert main(["aggregate", many, "-q"]) == 0
    assert main(["aggregate", many, "-q", "--fail-empty"]) == 1
    launch = ["launch", "--input-dir", str(tmp_path / "in"), "-o", str(tmp_path / "out"), *cpu]
    assert main([*launch, "--fail-empty"]) == 1
    (tmp_path / "in" / "gene.fa").write_bytes(b">g\n%s\n" % GENE)
    assert main([*launch, "--fail-empty"]) == 0


def test_chosen_records_without_a_score_keep_their_letters(mixed, tmp_path):
    run = tmp_path / "run"
    words = ["predict", str(mixed), "-o", str(run), "--devices", "cpu:1", "-q"]
    assert main([*words, "--extract", "not_scored"]) == 0
    assert (run / "not_scored.fasta").read_text() == (
        f">p probability=NA score=NA name=p length=6 file={mixed.name} record=2\nMKVLEQ\n"
        f">g probability=NA score=NA name=g length=4 file={mixed.name} record=3\nACGT\n"
    )
