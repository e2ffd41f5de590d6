"""Other rules for the calls of a finished run: rescore, and a resume with another rule."""

import errno
import json
import random
import shutil
from collections import Counter
from dataclasses import replace

import pytest
from cases import mostly_slow
from samples import copy_of, files_in

from virnucpro.cli.main import main
from virnucpro.compute.predict import predict
from virnucpro.joined import remove
from virnucpro.run.execution import Execution
from virnucpro.run.predict_job import predict_job
from virnucpro.run.run import run_lock
from virnucpro.run_dir import RunDirectory

pytestmark = pytest.mark.usefixtures("one_process")
TABLES = ("predictions.tsv", "tracks/windows.tsv")


@pytest.fixture(scope="module")
def fasta(tmp_path_factory):
    """Records of different composition and length, one too short for a score."""
    dice = random.Random(12)
    path = tmp_path_factory.mktemp("input") / "in.fa"
    with path.open("w") as stream:
        for number in range(24):
            gc = dice.uniform(0.3, 0.7)
            shares = [1 - gc, gc, gc, 1 - gc]
            bases = "".join(dice.choices("ACGT", shares, k=dice.randint(150, 1500)))
            stream.write(f">r{number}\n{bases}\n")
        stream.write(">short\nACGT\n")
    return str(path)


def begin(fasta, folder, *rule):
    command = ["predict", fasta, "-o", str(folder), "--devices", "cpu:1", "-q"]
    return main([*command, *rule])


@pytest.fixture(scope="module")
def finished(fasta, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert begin(fasta, folder) == 0
    return folder


run = copy_of("finished")


@pytest.fixture(scope="module")
def middle(finished):
    """A probability that half of the records reach."""
    rows = (finished / "predictions.tsv").read_text().splitlines()
    column = rows[0].split("\t").index("probability")
    known = sorted(
        float(row.split("\t")[column]) for row in rows[1:] if row.split("\t")[column] != "NA"
    )
    assert known[0] < known[len(known) // 2] < known[-1]
    return (known[len(known) // 2] + known[len(known) // 2 - 1]) / 2


def content(folder):
    return {name: (folder / name).read_bytes() for name in TABLES}


def rule_of(folder):
    return json.loads((folder / "run" / "run.json").read_text())["calls"]


def test_changed_calls_are_counted(run, middle, tables, capsys):
    before = {row["seq_name"]: row["call"] for row in tables(run / "predictions.tsv")}
    assert main(["rescore", str(run), "--threshold", str(middle), "-q"]) == 0
    rows = tables(run / "predictions.tsv")
    now = {row["seq_name"]: row["call"] for row in rows}
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split("\t") == ["before", "now", "sequences"]
    printed = {tuple(line.split("\t")[:2]): int(line.split("\t")[2]) for line in lines}
    assert printed == Counter((before[name], now[name]) for name in before)
    assert sum(printed.values()) == 25
    assert printed["not_scored", "not_scored"] == 1
    for row in rows:
        above = row["probability"] != "NA" and float(row["probability"]) >= middle
        abstains = row["reason"] not in {"NA", "uncertain"}
        assert (row["call"] == "viral") == (above and not abstains)
    assert 0 < Counter(now.values())["viral"] < 24
    assert rule_of(run)["threshold"] == middle


def test_a_rescore_without_room_is_known_as_incomplete(run, middle, monkeypatch, capsys, called):
    """Tables of the former rule beside the new rule in run.json are not reported as results."""

    def full(*_arguments, **_options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("virnucpro.run.outputs.write_tables", full)
        assert main(["rescore", str(run), "--threshold", str(middle), "-q"]) == 1
    capsys.readouterr()
    assert "aggregate" in called("status", run, code=2).stdout
    assert f"virnucpro aggregate {run}" in called("report", run, "-q", code=1).stderr
    assert main(["aggregate", str(run), "-q"]) == 0
    assert main(["report", str(run), "-q"]) == 0
    assert main(["status", str(run)]) == 0
    assert rule_of(run)["threshold"] == middle


def test_scores_are_not_computed_again(run, middle, finished):
    segments = RunDirectory(run).segments_file
    before = segments.stat().st_mtime_ns
    assert main(["rescore", str(run), "--threshold", str(middle), "-q"]) == 0
    assert segments.stat().st_mtime_ns == before
    assert content(run)["tracks/windows.tsv"] == content(finished)["tracks/windows.tsv"]
    assert content(run)["predictions.tsv"] != content(finished)["predictions.tsv"]


RULES = [
    ("--preset", "conservative"),
    ("--fdr", "0.3", "--prevalence", "0.2"),
    ("--threshold", "0.35", "--preset", "sensitive"),
    ("--prevalence", "auto"),
]


@pytest.mark.parametrize("rule", mostly_slow(RULES, RULES[1]))
def test_the_tables_equal_those_of_a_run_begun_with_the_rule(rule, run, fasta, tmp_path):
    assert main(["rescore", str(run), "-q", *rule]) == 0
    assert begin(fasta, tmp_path / "begun", *rule) == 0
    assert content(run) == content(tmp_path / "begun")
    assert rule_of(run) == rule_of(tmp_path / "begun")


@pytest.mark.parametrize("rule", RULES)
def test_a_resume_with_another_rule_gives_the_same_tables(rule, run, fasta, tmp_path):
    resumed = shutil.copytree(run, tmp_path / "resumed")
    assert main(["rescore", str(run), "-q", *rule]) == 0
    assert begin(fasta, resumed, "--resume", *rule) == 0
    assert content(resumed) == content(run)
    assert rule_of(resumed) == rule_of(run)
    assert len(json.loads((resumed / "run" / "run.json").read_text())["launches"]) == 1


def test_a_resume_without_a_rule_keeps_that_of_the_run(run, fasta, middle):
    assert main(["rescore", str(run), "--threshold", str(middle), "-q"]) == 0
    rescored = content(run)
    assert begin(fasta, run, "--resume") == 0
    assert content(run) == rescored
    assert main(["aggregate", str(run), "-q"]) == 0
    assert content(run) == rescored


def test_a_rescored_run_is_verified_and_can_be_rescored_to_the_default(run, finished, capsys):
    assert main(["rescore", str(run), "--fdr", "0", "--prevalence", "0.01", "-q"]) == 0
    assert content(run) != content(finished)
    assert main(["verify", str(run)]) == 0
    capsys.readouterr()
    assert main(["rescore", str(run), "--preset", "default", "-q"]) == 0
    assert content(run) == content(finished)
    assert main(["verify", str(run)]) == 0


def test_options_that_are_not_given_stay(run, fasta, capsys):
    assert main(["rescore", str(run), "--fdr", "0.1", "--prevalence", "0.3"]) == 0
    assert "writing tables by the rule fdr 0.1, prevalence 0.3\n" in capsys.readouterr().err
    assert main(["rescore", str(run), "--fdr", "0.2"]) == 0
    assert "the rule fdr 0.2, prevalence 0.3 (the rest as before)\n" in capsys.readouterr().err
    assert (rule_of(run)["fdr"], rule_of(run)["prevalence"]) == (0.2, 0.3)
    assert begin(fasta, run, "--resume", "--preset", "sensitive") == 0
    assert (rule_of(run)["preset"], rule_of(run)["prevalence"]) == ("sensitive", 0.3)
    tables = content(run)
    assert main(["rescore", str(run), "-q"]) == 0
    assert content(run) == tables
    assert begin(fasta, run, "--resume", "--prevalence", "0.4") == 0
    assert (rule_of(run)["preset"], rule_of(run)["prevalence"]) == ("sensitive", 0.4)
    assert main(["rescore", str(run), "--prevalence", "0.5", "-q"]) == 0
    assert (rule_of(run)["preset"], rule_of(run)["prevalence"]) == ("sensitive", 0.5)


def test_tables_of_another_rule_are_found_by_verify(run, finished, called):
    assert main(["rescore", str(run), "--threshold", "0", "-q"]) == 0
    shutil.copy(finished / "predictions.tsv", run)
    assert "predictions.tsv" in called("verify", run, code=1).stdout


def test_records_without_a_score_yet_stay_missing(run, tables):
    _, segment = RunDirectory(run).segments()[0]
    remove(segment)
    main(["rescore", str(run), "--threshold", "0", "-q"])
    rows = tables(run / "predictions.tsv")
    missing = {row["seq_name"] for row in rows if row["status"] == "missing"}
    assert missing == {row["seq_name"] for row in tables(run / "missing.tsv")} != set()
    assert {row["call"] for row in rows if row["status"] == "missing"} == {"not_scored"}


def test_an_embed_run_is_refused_unchanged(tmp_path, capsys):
    proteins, folder = tmp_path / "in.faa", tmp_path / "embedded"
    proteins.write_text(">a\nMKLV\n")
    command = ["embed", str(proteins), "-o", str(folder), "-e", "mini-deep/protein"]
    assert main([*command, "--devices", "cpu:1", "-q"]) == 0
    before = files_in(folder)
    assert main(["rescore", str(folder), "--threshold", "0.5"]) == 64
    assert "only runs of predict have calls" in capsys.readouterr().err
    assert files_in(folder) == before


@pytest.fixture(scope="module")
def uncalibrated(fasta, tmp_path_factory):
    job = predict_job(fasta, embeddings="none")
    job = replace(job, classifier={**job.classifier, "calibration": None})
    folder = tmp_path_factory.mktemp("uncalibrated") / "run"
    predict(job, Execution(folder, devices="cpu:1", in_process=True))
    return folder


@pytest.mark.parametrize(
    "rule", [("--preset", "sensitive"), ("--fdr", "0.1"), ("--prevalence", "auto")]
)
def test_a_rule_that_needs_a_calibration_is_refused_unchanged(rule, uncalibrated, tmp_path, called):
    run = shutil.copytree(uncalibrated, tmp_path / "run")
    before = files_in(run)
    assert "has no calibration" in called("rescore", run, *rule, code=64).stderr
    assert files_in(run) == before


def test_a_threshold_of_the_score_needs_no_calibration(uncalibrated, tmp_path, tables):
    run = shutil.copytree(uncalibrated, tmp_path / "run")
    for threshold in (0.0, 1.0):
        assert main(["rescore", str(run), "--threshold", str(threshold), "-q"]) == 0
        rows = [row for row in tables(run / "predictions.tsv") if row["status"] == "scored"]
        assert {row["probability"] for row in rows} == {"NA"}
        expected = {"viral"} if threshold == 0 else {"non-viral", "ambiguous"}
        assert {row["call"] for row in rows} <= expected
    assert main(["verify", str(run)]) == 0


def test_a_run_in_use_and_a_folder_without_a_run_are_refused(run, tmp_path, called):
    before = files_in(run)
    with run_lock(RunDirectory(run)):
        assert "another process" in called("rescore", run, "--threshold", "0.5", code=1).stderr
    assert files_in(run) == before
    assert str(tmp_path) in called("rescore", tmp_path, "--threshold", "0.5", code=1).stderr


WRONG = [
    (["--threshold", "1.5"], "'1.5' is not a number from 0 to 1"),
    (["--threshold", "high"], "'high' is not a number from 0 to 1"),
    (["--threshold", "nan"], "'nan' is not a number from 0 to 1"),
    (["--fdr", "-0.1"], "number from 0 to 1"),
    (["--fdr", "0.1", "--threshold", "0.5"], "are two rules"),
    (["--prevalence", "0"], "'0' is not a number between 0 and 1, or auto"),
    (["--prevalence", "1"], "not a number between 0 and 1, or auto"),
    (["--prevalence", "some"], "'some' is not"),
    (["--preset", "strict"], "invalid choice: 'strict'"),
]


@pytest.mark.parametrize(("rule", "told"), WRONG)
@pytest.mark.parametrize("command", [["rescore", "run"], ["predict", "x.fa", "-o", "run"]])
def test_a_wrong_rule_is_wrong_usage(command, rule, told, tmp_path, monkeypatch, called):
    monkeypatch.chdir(tmp_path)
    done = called(*command, *rule, code=64)
    assert told in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_unprintable_change_is_a_warning(run, monkeypatch, capsys):
    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("builtins.print", fail)
    assert main(["rescore", str(run), "--threshold", "0.5", "-q"]) == 0
    assert "could not be printed" in capsys.readouterr().err


def test_a_failed_rescore_leaves_no_report_of_earlier_tables(run, monkeypatch):
    reports = RunDirectory(run).reports
    assert all(path.exists() for path in reports)

    def stop(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("virnucpro.run.outputs.write_gaps", stop)
        assert main(["rescore", str(run), "--preset", "sensitive", "-q"]) == 1
    assert not any(path.exists() for path in reports)
    assert main(["rescore", str(run), "--preset", "sensitive", "-q"]) == 0
    assert all(path.exists() for path in reports)
