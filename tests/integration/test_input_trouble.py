"""Invalid records in runs of several machines and in launches."""

import json

import pytest

from virnucpro.cli.main import main

pytestmark = [pytest.mark.timeout(110), pytest.mark.usefixtures("one_process")]

GENE = b"ATGGCCAAAGGTCCC" * 60
MIXED = b">a\n%s\n>p\nMKVLEQ\n>g\nAC-GT\n>\n%s\n" % (GENE, GENE[:400])
STATUSES = ["scored", "invalid_letters", "too_short", "scored"]


@pytest.fixture
def mixed(tmp_path):
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "mixed.fa"
    path.write_bytes(MIXED)
    return path


def test_a_planned_run_answers_the_same_records(mixed, tmp_path, tables, capsys, called):
    one, many = tmp_path / "one", tmp_path / "many"
    warned = called("predict", mixed, "-o", one, "--devices", "cpu:1", "-q", code=0).stderr
    assert main(["plan", str(mixed), "-o", str(many), "--ranks", "2", "--kind", "cpu", "-q"]) == 0
    printed = capsys.readouterr().err
    for kind in ("invalid_letters", "gaps (- and .) were removed", "sequences without a name"):
        assert kind in warned
        assert kind in printed
    assert main(["work", str(many), "--task", "0/1", "--devices", "cpu:1", "-q"]) == 0
    assert main(["merge", str(many), "-q"]) == 0
    assert [row["status"] for row in tables(many / "predictions.tsv")] == STATUSES
    for name in ("predictions.tsv", "windows.tsv", "viral.fasta"):
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
    parameters = json.loads((out / "mixed.fa" / "run.json").read_text())["parameters"]
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
    assert json.loads((one / "run.json").read_text())["prevalence"] is None
    printed = called("predict", short, "-o", one, "--devices", "cpu:1", "--force", code=0).stderr
    assert "scored: 1 too short. Sequences of fewer than 60 bases have no score" in printed
    assert "assumed" not in printed
    many = str(tmp_path / "many")
    assert main(["plan", str(short), "-o", many, "--ranks", "1", "--kind", "cpu", "-q"]) == 0
    assert main(["work", many, "--task", "0/1", *cpu]) == 0
    assert main(["merge", many, "-q"]) == 0
    assert main(["merge", many, "-q", "--fail-empty"]) == 1
    launch = ["launch", "--input-dir", str(tmp_path / "in"), "-o", str(tmp_path / "out"), *cpu]
    assert main([*launch, "--fail-empty"]) == 1
    (tmp_path / "in" / "gene.fa").write_bytes(b">g\n%s\n" % GENE)
    assert main([*launch, "--fail-empty"]) == 0


def test_chosen_records_without_a_score_keep_their_letters(mixed, tmp_path):
    run = tmp_path / "run"
    words = ["predict", str(mixed), "-o", str(run), "--devices", "cpu:1", "-q"]
    assert main([*words, "--extract", "not_scored"]) == 0
    assert (run / "not_scored.fasta").read_text() == (
        f">p probability=NA score=NA length=6 file={mixed.name} record=2\nMKVLEQ\n"
        f">g probability=NA score=NA length=4 file={mixed.name} record=3\nACGT\n"
    )
