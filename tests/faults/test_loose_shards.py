"""`aggregate -o`: shards outside of their run, with the run, its index, or neither."""

import os
import shutil
from dataclasses import replace

import h5py
import numpy as np
import pytest

from virnucpro.cli.main import main
from virnucpro.run_dir import RunDirectory
from virnucpro.store.segment import commit_segment, read_segment

pytestmark = pytest.mark.usefixtures("one_process")


@pytest.fixture
def surviving(undisturbed, tmp_path):
    """Copies of all segments except the first, outside of their run."""
    folder = tmp_path / "surviving"
    folder.mkdir()
    _, *kept = RunDirectory(undisturbed).segments()
    for _, path in kept:
        shutil.copy(path, folder / path.name)
    return folder


def stored(path):
    with h5py.File(path) as file:
        return file["sequence_ids"].asstr()[:].tolist(), file["embeddings"][:]


def test_all_shards_of_a_run_give_its_own_embeddings_file(undisturbed, tmp_path):
    out, shards = tmp_path / "out.h5", undisturbed / "run" / "shards"
    assert main(["aggregate", str(shards), "-o", str(out), "--index", str(undisturbed)]) == 0
    assert out.read_bytes() == (undisturbed / "embeddings.h5").read_bytes()
    out.unlink()
    (tmp_path / "index").symlink_to(undisturbed / "run" / "index")
    assert main(["aggregate", str(shards), "-o", str(out), "--index", str(tmp_path / "index")]) == 0
    names, vectors = stored(out)
    wanted_names, wanted = stored(undisturbed / "embeddings.h5")
    assert names == wanted_names
    np.testing.assert_array_equal(vectors, wanted)


def test_surviving_segments_are_joined_and_gaps_listed(surviving, undisturbed, tmp_path, capsys):
    out = tmp_path / "out.h5"
    gone = read_segment(RunDirectory(undisturbed).segments()[0][1]).rows
    paths = sorted(map(str, surviving.iterdir()), reverse=True)
    assert main(["aggregate", *paths, "-o", str(out)]) == 2
    printed = capsys.readouterr()
    assert printed.out == f"first_row\tlast_row\n{gone[0]}\t{gone[-1]}\n"
    assert f"{len(gone)} rows have no segment" in printed.err
    names, vectors = stored(out)
    segments = [read_segment(path) for path in sorted(surviving.iterdir())]
    assert names == [str(row) for segment in segments for row in segment.rows]
    np.testing.assert_array_equal(vectors, np.concatenate([one.embeddings for one in segments]))

    assert main(["aggregate", *paths, "-o", str(out), "--index", str(undisturbed)]) == 2
    names, vectors = stored(out)
    wanted_names, wanted = stored(undisturbed / "embeddings.h5")
    empty = np.isnan(vectors).all(axis=1)
    assert names == wanted_names
    assert 0 < empty.sum() < len(names)
    np.testing.assert_array_equal(vectors[~empty], wanted[~empty])


def test_completeness_is_unknown_without_an_index(undisturbed, tmp_path, called):
    command = [
        "aggregate",
        str(undisturbed / "run" / "shards"),
        "-o",
        str(tmp_path / "out.h5"),
        "-q",
    ]
    assert "the last rows may be missing" in called(*command, code=2).stderr
    assert called(*command, "--index", undisturbed, code=0).stderr == ""


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("", "is a folder: name a file"),
        ("gone/out.h5", "does not exist. Make it, or choose"),
    ],
)
def test_an_impossible_output_is_refused_before_segments_are_read(
    output, message, undisturbed, tmp_path, called
):
    command = ["aggregate", str(undisturbed / "run" / "shards"), "-o", str(tmp_path / output)]
    assert message in called(*command, code=64).stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["other run", "unequal copy", "row beyond"])
def test_foreign_segments_are_refused_by_name_and_the_old_output_is_kept(
    kind, surviving, undisturbed, tmp_path, called
):
    out = tmp_path / "out.h5"
    out.write_bytes(b"former")
    gone, kept, *_ = (path for _, path in RunDirectory(undisturbed).segments())
    original = gone if kind == "other run" else kept
    bad = surviving / "copies" / original.name
    bad.parent.mkdir()
    segment = read_segment(original)
    changes = {
        "other run": {"fingerprint": "e" * 64},
        "unequal copy": {"scores": segment.scores[:, ::-1].copy()},
        "row beyond": {"rows": segment.rows + 10_000},
    }
    commit_segment(bad, replace(segment, **changes[kind]))
    command = ["aggregate", str(surviving), str(bad.parent), "-o", str(out)]
    assert str(bad) in called(*command, "--index", undisturbed, code=1).stderr
    assert out.read_bytes() == b"former"


def test_the_index_of_another_run_is_refused(surviving, copy_of_run, tmp_path, capsys):
    run = RunDirectory(copy_of_run)
    for path in surviving.iterdir():
        commit_segment(path, replace(read_segment(path), fingerprint="e" * 64))
    command = ["aggregate", str(surviving), "-o", str(tmp_path / "out.h5")]
    assert main([*command, "--index", str(run.root)]) == 1
    assert "pass the folder of the run that wrote the segments" in capsys.readouterr().err
    assert not (tmp_path / "out.h5").exists()


@pytest.fixture
def other_run(few_fasta, tmp_path):
    """A run of other records with the same lengths and number of rows."""
    path = tmp_path / "other.fa"
    path.write_text(few_fasta.read_text().replace(">r", ">other"))
    folder = tmp_path / "other"
    command = ["predict", str(path), "-o", str(folder), "--devices", "cpu:1", "-q"]
    assert main([*command, "--embeddings"]) == 0
    return folder


def test_an_index_without_its_run_is_refused(undisturbed, other_run, tmp_path, capsys, called):
    out, shards = tmp_path / "out.h5", str(undisturbed / "run" / "shards")
    alone = shutil.copytree(other_run / "run" / "index", tmp_path / "alone" / "run" / "index")
    command = ["aggregate", shards, "-o", str(out), "--index"]
    assert "pass the folder of the run" in called(*command, alone, code=1).stderr
    for folder in (other_run / "run" / "logs", other_run / "nothing"):
        assert "pass the folder of the run" in called(*command, folder, code=1).stderr
    for folder in (other_run, other_run / "run" / "index"):
        assert main([*command, str(folder)]) == 1
        assert "pass the folder of the run that wrote the segments" in capsys.readouterr().err
    mixed = alone.parent.parent
    shutil.copy(undisturbed / "run" / "run.json", alone.parent)
    for folder in (mixed, alone):
        assert "is the index of another run" in called(*command, folder, code=1).stderr
    assert not out.exists()
    assert main([*command, str(undisturbed / "run" / "index")]) == 0
    assert out.read_bytes() == (undisturbed / "embeddings.h5").read_bytes()


@pytest.mark.parametrize("kind", ["fifo", "link", "dangling link", "loop"])
def test_an_output_that_is_not_a_regular_file_is_refused(kind, undisturbed, tmp_path, called):
    out, target = tmp_path / "out.h5", tmp_path / "target.h5"
    if kind == "fifo":
        os.mkfifo(out)
    else:
        out.symlink_to(out if kind == "loop" else target)
    if kind == "link":
        target.write_bytes(b"mine")
    before = out.lstat()
    assert (
        str(out) in called("aggregate", undisturbed / "run" / "shards", "-o", out, code=64).stderr
    )
    assert os.path.samestat(out.lstat(), before)
    assert kind != "link" or target.read_bytes() == b"mine"


@pytest.mark.parametrize("index", ["run", "index", None])
@pytest.mark.parametrize(
    "name",
    [
        *("predictions.tsv", "run/run.json", "run/run.lock", "run/index/new"),
        *("run/logs/embeddings.h5", "run/new.h5", "tracks/windows.tsv", "tracks/new.h5"),
    ],
)
def test_other_files_of_a_run_are_refused_as_output(name, index, copy_of_run, capsys):
    before = {path: path.stat().st_mtime_ns for path in copy_of_run.rglob("*")}
    command = ["aggregate", str(copy_of_run / "run" / "shards"), "-o", str(copy_of_run / name)]
    folder = {"run": copy_of_run, "index": copy_of_run / "run" / "index"}
    assert main([*command, *(["--index", str(folder[index])] if index else [])]) == 64
    assert "choose another output file, such as" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in copy_of_run.rglob("*")} == before


def test_the_embeddings_file_of_a_run_and_new_names_are_accepted_as_output(copy_of_run):
    wanted = (copy_of_run / "embeddings.h5").read_bytes()
    (copy_of_run / "embeddings.h5").unlink()
    command = [
        "aggregate",
        str(copy_of_run / "run" / "shards"),
        "--index",
        str(copy_of_run),
        "-q",
        "-o",
    ]
    for name in ("embeddings.h5", "mine.h5", "mine.h5"):
        assert main([*command, str(copy_of_run / name)]) == 0
        assert (copy_of_run / name).read_bytes() == wanted


def test_an_index_behind_a_symbolic_link_is_refused_as_output(copy_of_run, tmp_path, capsys):
    elsewhere = tmp_path / "elsewhere"
    (copy_of_run / "run" / "index").rename(elsewhere)
    (copy_of_run / "run" / "index").symlink_to(elsewhere)
    command = [
        "aggregate",
        str(copy_of_run / "run" / "shards"),
        "--index",
        str(copy_of_run / "run" / "index"),
    ]
    assert main([*command, "-o", str(elsewhere / "bases.bin")]) == 64
    assert "choose another output file, such as" in capsys.readouterr().err
    assert main([*command, "-q", "-o", str(tmp_path / "out.h5")]) == 0


def test_a_full_disk_error_of_aggregate_names_no_missing_option(undisturbed, disk, called):
    folder = disk("16k")
    printed = called(
        "aggregate", undisturbed / "run" / "shards", "-o", folder / "out.h5", code=1
    ).stderr
    assert "free disk space, then rerun the command\n" in printed
    assert "--resume" not in printed
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("arguments", [["a", "b"], ["a", "--index", "b"], []])
def test_wrong_usage_exits_64(arguments, called):
    assert called("aggregate", *arguments).returncode == 64
