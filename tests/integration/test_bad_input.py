"""Exit codes and messages for bad input."""

import gzip
import os

import pytest

from virnucpro.cli.main import main

GENE = b"ATGGCCAAAGGTCCC" * 60


def _directory(path):
    path.mkdir()


def _truncated(path):
    path.write_bytes(gzip.compress(b">a\n" + os.urandom(4000).hex().encode())[:-300])


# name, function that makes it, exit code, parts of the message
CASES = [
    ("absent.fa", lambda _: None, 1, ["absent.fa"]),
    ("folder.fa", _directory, 1, ["folder.fa", "director"]),
    ("junk.fa", lambda path: path.write_bytes(bytes(range(256)) * 40), 1, ["junk.fa"]),
    ("cut.fa.gz", _truncated, 1, ["cut.fa.gz"]),
    ("protein.fa", lambda path: path.write_bytes(b">p1\nMKVLEQFFPI\n"), 1, ["protein.fa", "p1"]),
    ("gaps.fa", lambda path: path.write_bytes(b">g\nACGT--ACGT\n"), 1, ["gaps.fa", "g", "-"]),
    ("notes.fa", lambda path: path.write_bytes(b"dear diary\n"), 1, ["notes.fa"]),
    (
        "cut.fq",
        lambda path: path.write_bytes(b"@r1\nACGT\n+\nIIII\n@r2\nACGT\n"),
        1,
        ["cut.fq"],
    ),
]


@pytest.mark.parametrize(("name", "make", "code", "message"), CASES, ids=[row[0] for row in CASES])
def test_bad_input_is_refused_with_a_reason_and_leaves_nothing(
    name, make, code, message, tmp_path, capsys
):
    path = tmp_path / name
    make(path)
    assert main(["predict", str(path), "-o", str(tmp_path / "run")]) == code
    printed = capsys.readouterr().err
    assert "virnucpro: error:" in printed
    assert "Traceback" not in printed
    for text in message:
        assert text in printed
    assert not (tmp_path / "run").exists()


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


@pytest.mark.timeout(110)
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
        (["predict", "a.fa", "-o", "x", "--resume", "--force"], "not allowed with"),
        (["fly"], "unknown command"),
    ],
)
def test_wrong_usage_exits_64(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 64
    assert message in capsys.readouterr().err


def test_a_folder_with_other_files_is_not_touched(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("text")
    (tmp_path / "a.fa").write_bytes(b">a\n" + GENE)
    for option in ([], ["--force"], ["--resume"]):
        code = main(["predict", str(tmp_path / "a.fa"), "-o", str(tmp_path), *option])
        assert code == 1
        assert "a.fa" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.fa", "thesis.txt"]


@pytest.mark.timeout(110)
@pytest.mark.slow
def test_a_record_of_three_million_bases_is_predicted(tmp_path, tables):
    import random

    path = tmp_path / "large.fa"
    path.write_text(">large\n" + "".join(random.Random(3).choices("ACGT", k=3_000_000)))
    run = tmp_path / "run"
    assert main(["predict", str(path), "-o", str(run), "-q"]) == 0
    (row,) = tables(run / "predictions.tsv")
    assert row["length"] == "3000000"
    assert row["n_windows"] == "6000"
