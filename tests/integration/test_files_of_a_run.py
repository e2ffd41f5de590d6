"""Which files a finished run has, and that every reader finds in them what it needs."""

import json
import os
import shutil

import pytest
from samples import random_records

import virnucpro
from virnucpro.folder_lock import folder_lock
from virnucpro.joined import members, open_file
from virnucpro.run_dir import RunDirectory

TABLES = {
    *("predictions.tsv", "viruses.fasta", "regions.tsv"),
    *(f"tracks/{name}" for name in ("windows.tsv", "regions.bed", "regions.gff3")),
    "tracks/scores.bedgraph",
}
OF_A_SAMPLE = TABLES | {
    *("run/run.json", "run/index/columns.bin", "run/segments.bin", "run/virnucpro_mqc.json"),
}
OF_A_REPORT = {"report.html", "run/virnucpro_calls_mqc.json", "run/virnucpro_scores_mqc.json"}


def files_in(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def tables_in(folder):
    names = sorted(files_in(folder) & TABLES)
    return {name: (folder / name).read_bytes() for name in names}


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples")
    for name, n_records in (("gut", 70), ("sea", 5)):
        (folder / f"{name}.fa").write_text(random_records(n_records, seed=name, most=60))
    (folder / "empty.fa").touch()
    return folder


@pytest.fixture(scope="module")
def launched(samples, tmp_path_factory):
    """A finished launch. Do not write to it."""
    from virnucpro.cli.main import main

    out = tmp_path_factory.mktemp("launched") / "out"
    assert main(launch(samples, out)) == 0
    return out


def launch(samples, out, *options):
    words = ("launch", "--input-dir", samples, "-o", out, "--devices", "cpu:1", *options)
    return [*map(str, words)]


@pytest.fixture
def out(launched, tmp_path):
    return shutil.copytree(launched, tmp_path / "out")


@pytest.fixture
def run(out):
    """The run of a sample with several units, as `launch` leaves it."""
    found = RunDirectory(out / "gut.fa")
    assert len(found.segments()) > 2
    return found


def test_the_files_of_each_sample_of_a_finished_launch(launched):
    for name in ("gut.fa", "sea.fa"):
        assert files_in(launched / name) == OF_A_SAMPLE
    assert files_in(launched / "empty.fa") <= OF_A_SAMPLE
    assert not list(launched.rglob("*.lock"))


def test_the_files_of_a_finished_predict(samples, tmp_path, called):
    called("predict", samples / "gut.fa", "-o", tmp_path / "run", code=0)
    assert files_in(tmp_path / "run") == OF_A_SAMPLE | OF_A_REPORT


@pytest.mark.usefixtures("fonts")
def test_every_reader_reads_a_finished_sample(run, samples, tmp_path, called):
    before = tables_in(run.root)
    called("verify", run.root, code=0)
    status = json.loads(called("status", run.root, "--json", code=0).stdout)
    assert (status["state"], status["units_done"]) == ("complete", status["units_total"])
    assert status["ranks"]["0"]["state"] == "succeeded"
    called("plot", run.root, "-o", tmp_path / "scores.png", code=0)
    called("report", run.root, "-o", tmp_path / "report.html", code=0)
    called("aggregate", run.root, code=0)
    assert tables_in(run.root) == before
    called("rescore", run.root, "--threshold", "0.01", code=0)
    assert tables_in(run.root) != before
    called("rescore", run.root, "--preset", "default", code=0)
    assert tables_in(run.root) == before
    called("predict", samples / "gut.fa", "-o", run.root, "--resume", code=0)
    assert tables_in(run.root) == before
    assert len(virnucpro.read_predictions(run.root)) == 70


@pytest.mark.usefixtures("one_process")
def test_vectors_are_read_from_joined_segments(samples, tmp_path, called):
    run = RunDirectory(tmp_path / "run")
    words = ("predict", samples / "gut.fa", "-o", run.root, "--embeddings=fp16")
    called(*words, "--devices", "cpu:1", code=0)
    before = run.embeddings.read_bytes()
    called("aggregate", run.root, code=0)
    assert run.embeddings.read_bytes() == before
    for source in (run.root, run.segments_file):
        joined = tmp_path / "joined.h5"
        called("aggregate", source, "-o", joined, "--index", run.root, code=0)
        assert joined.read_bytes() == before
        joined.unlink()
    called("aggregate", run.segments_file, "-o", run.segments_file, code=64)
    assert called("verify", run.root, code=0).stdout.endswith("units valid\n")


def flipped(path):
    content = bytearray(path.read_bytes())
    content[3000] ^= 64
    path.write_bytes(content)


def without_directory(path):
    os.truncate(path, path.stat().st_size - 100)


DAMAGES = {"flipped": flipped, "truncated": without_directory, "removed": os.unlink}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_joined_segments_are_named_and_computed_again(damage, run, samples, called):
    before = tables_in(run.root)
    DAMAGES[damage](run.segments_file)
    found = called("verify", run.root, code=2 if damage == "removed" else 1)
    name = {"flipped": "segments.bin/unit-000000.h5:", "truncated": "segments.bin:"}.get(damage)
    if name is not None:
        assert name in found.stdout
        called("verify", run.root, "--repair", code=2)
    called("predict", samples / "gut.fa", "-o", run.root, "--resume", "-q", code=0)
    assert tables_in(run.root) == before
    assert run.segments_file.exists()
    assert not run.shards.exists()
    called("verify", run.root, code=0)


def test_a_kill_between_the_join_and_the_removal_is_harmless(run, samples, called):
    before = files_in(run.root)
    run.shard(0).mkdir(parents=True)
    for unit, path in run.segments():
        with open_file(path) as source:
            run.segment(0, unit).write_bytes(source.read())
    run.segments_file.with_name("segments.bin.7-00112233.tmp").touch()
    called("verify", run.root, code=0)
    called("status", run.root, code=0)
    called("predict", samples / "gut.fa", "-o", run.root, "--resume", "-q", code=0)
    assert files_in(run.root) == before | OF_A_REPORT


def test_foreign_files_among_the_segments_are_kept(run, samples, called):
    stray = run.shard(0) / "unit-000001.h5"
    stray.parent.mkdir(parents=True)
    stray.write_text("my notes")
    called("predict", samples / "gut.fa", "-o", run.root, "--resume", "-q", code=0)
    assert stray.read_text() == "my notes"


def test_many_segments_are_not_joined(samples, tmp_path, called, monkeypatch):
    monkeypatch.setattr("virnucpro.run.outputs._MOST_JOINED", 1000)
    run = RunDirectory(tmp_path / "run")
    called("predict", samples / "gut.fa", "-o", run.root, code=0)
    assert not run.segments_file.exists()
    assert len(run.segments()) > 2
    called("verify", run.root, code=0)
    monkeypatch.undo()
    called("aggregate", run.root, code=0)
    assert len(members(run.segments_file)) == len(run.segments())


def rows_of(out, tables):
    return {row["file"]: row for row in tables(out / "launch.tsv")}


def test_a_finished_launch_starts_no_worker(samples, out, called, tables):
    first = json.loads((out / "launch.json").read_text())["files"]
    shutil.rmtree(out / "launch.logs")
    called(*launch(samples, out), code=0)
    assert not (out / "launch.logs").exists()
    rows = rows_of(out, tables)
    assert {(row["status"], row["worker"]) for row in rows.values()} == {("skipped", "NA")}
    again = json.loads((out / "launch.json").read_text())["files"]
    for file in (*first, *again):
        for passing in ("folder", "units_computed"):
            del file["result"]["details"][passing]
    assert [file["result"] for file in again] == [file["result"] for file in first]


def edited(samples, out):
    (samples / "sea.fa").write_text(">edited\n" + "ACGT" * 200 + "\n")


def edited_in_place(samples, out):
    """The same size, inode and time of modification, as after `cp -p` onto it."""
    path = samples / "sea.fa"
    about = path.stat()
    path.write_bytes(path.read_bytes()[:-2] + b"N\n")
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


@pytest.mark.parametrize("edit", [edited, edited_in_place])
def test_an_edited_input_of_a_finished_launch_is_told(
    edit, launched, samples, tmp_path, called, tables
):
    ours, out = tmp_path / "samples", tmp_path / "out"
    shutil.copytree(samples, ours)
    called(*launch(ours, out), code=0)
    edit(ours, out)
    assert "sea.fa" in called(*launch(ours, out), code=2).stderr
    rows = rows_of(out, tables)
    assert {name: row["status"] for name, row in rows.items()} == {
        "gut.fa": "skipped",
        "sea.fa": "failed",
        "empty.fa": "skipped",
    }
    assert "differs from the input of the run" in rows["sea.fa"]["error"]


@pytest.mark.parametrize("name", ["tracks/windows.tsv", "predictions.tsv", "run/segments.bin"])
def test_a_lost_or_cut_file_of_a_finished_launch_is_written_again(name, samples, out, called):
    path = out / "gut.fa" / name
    before = tables_in(out / "gut.fa")
    path.unlink()
    called(*launch(samples, out), code=0)
    assert path.exists()
    assert tables_in(out / "gut.fa") == before
    if name.endswith(".tsv"):
        os.truncate(path, 10)
        called(*launch(samples, out), code=0)
        assert tables_in(out / "gut.fa") == before


def test_another_rule_calls_the_files_of_a_finished_launch_again(samples, out, called, tables):
    called(*launch(samples, out, "--fdr", "0.2"), code=0)
    rows = rows_of(out, tables)
    assert {row["rule"] for row in rows.values()} == {"fdr 0.2"}
    assert {row["worker"] for row in rows.values()} == {"0"}
    for options in ((), ("--fdr", "0.2")):
        called(*launch(samples, out, *options), code=0)
        rows = rows_of(out, tables)
        assert {row["rule"] for row in rows.values()} == {"fdr 0.2"}
        assert {row["worker"] for row in rows.values()} == {"NA"}


def test_a_sample_in_which_another_program_works_is_not_skipped(samples, out, called, tables):
    with folder_lock(RunDirectory(out / "gut.fa").lock, "Wait."):
        called(*launch(samples, out), code=2)
    rows = rows_of(out, tables)
    assert (rows["gut.fa"]["status"], rows["sea.fa"]["status"]) == ("failed", "skipped")
    assert "uses this folder" in rows["gut.fa"]["error"]
