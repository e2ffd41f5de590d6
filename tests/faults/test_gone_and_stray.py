"""Rows 14 and 15: lost segments, and files of other origin."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from cases import mostly_slow, slow

from virnucpro.cli.main import main
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex
from virnucpro.store.segment import commit_segment, read_segment

pytestmark = pytest.mark.usefixtures("one_process")


def records_of_rows(run, first, last):
    index = SequenceIndex.open(run.index)
    items = np.flatnonzero((index.item_row >= first) & (index.item_row < last))
    windows = np.searchsorted(index.window_first_item, items, side="right") - 1
    pieces = np.flatnonzero((index.piece_row >= first) & (index.piece_row < last))
    records = [
        np.searchsorted(index.record_first_window, windows, side="right") - 1,
        np.searchsorted(index.record_first_piece, pieces, side="right") - 1,
    ]
    return set(index.record_names(np.concatenate(records)))


@pytest.mark.parametrize("what", [slow("segment"), "shard"])
def test_lost_segments_are_listed_and_recomputed(
    what, copy_of_run, undisturbed, few_fasta, called, tables, difference_of, capsys
):
    run = RunDirectory(copy_of_run)
    _, path = run.segments()[1]
    rows = read_segment(path).rows
    if what == "segment":
        path.unlink()
    else:
        shutil.rmtree(path.parent)
    assert main(["verify", str(run.root)]) == 2
    assert main(["aggregate", str(run.root), "-q"]) == 2
    listed = {row["seq_name"] for row in tables(run.missing)}
    all_names = {row["seq_name"] for row in tables(run.predictions)}
    gone = records_of_rows(run, rows[0], rows[-1] + 1) if what == "segment" else all_names
    assert listed == gone
    assert {r["seq_name"] for r in tables(run.predictions) if r["status"] == "missing"} == gone
    assert "have no result yet" in capsys.readouterr().err

    called("predict", few_fasta, "-o", run.root, "--resume", "--devices", "cpu:1", code=0)
    assert difference_of(undisturbed, run.root) == []
    assert not run.missing.exists()


def an_old_version(path, segment):
    commit_segment(path, segment)
    path.write_bytes(path.read_bytes().replace(b"segment 1\n", b"segment 7\n", 1))


STRAYS = {
    "another run's segment": (
        lambda path, segment: commit_segment(path, replace(segment, fingerprint="e" * 64)),
        "belongs to a run with fingerprint e",
    ),
    "a segment of other rows": (
        lambda path, segment: commit_segment(path, replace(segment, rows=segment.rows + 1)),
        "its rows are not",
    ),
    "another version's segment": (an_old_version, "schema version 7, but this program reads 1"),
    "a foreign file": (
        lambda path, _: path.write_bytes(b"notes of a meeting\n" * 99),
        "not a segment of virnucpro",
    ),
}


@pytest.mark.parametrize("kind", mostly_slow(STRAYS, "another run's segment", "a foreign file"))
def test_a_stray_file_is_refused_by_name_and_never_merged(
    kind, copy_of_run, undisturbed, difference_of, called
):
    put, reason = STRAYS[kind]
    run = RunDirectory(copy_of_run)
    _, path = run.segments()[0]
    stray = run.shards / "rank-9999" / path.name
    stray.parent.mkdir()
    put(stray, read_segment(path))
    content = stray.read_bytes()
    path.rename(run.root / "kept")
    printed = called("aggregate", run.root, "-q", code=2).stderr
    assert str(stray) in printed
    assert reason in printed
    (run.root / "kept").rename(path)
    assert main(["aggregate", str(run.root), "-q"]) == 0
    assert difference_of(undisturbed, run.root) == []

    assert f"{stray}: " in called("verify", run.root, "--repair", code=1).stdout
    assert stray.read_bytes() == content
    stray.unlink()
    assert main(["verify", str(run.root)]) == 0


def test_leftovers_and_other_files_are_ignored(
    copy_of_run, undisturbed, few_fasta, called, difference_of
):
    run = RunDirectory(copy_of_run)
    _, path = run.segments()[0]
    ours = path.with_name(f"{path.name}.4711-0123abcd.tmp")
    others = [
        path.with_name("unit-000001.h5.bak"),
        path.with_name("notes.tmp"),
        run.shards / "unit-000001.h5",
        run.root / "notes.txt",
    ]
    for file in (ours, *others):
        file.write_bytes(path.read_bytes()[:900])
    assert main(["verify", str(run.root)]) == 0
    called("predict", few_fasta, "-o", run.root, "--resume", "--devices", "cpu:1", code=0)
    assert difference_of(undisturbed, run.root) == []
    assert not ours.exists()
    assert all(file.exists() for file in others)


@pytest.mark.parametrize("command", [["aggregate"], ["predict", "tests/data/example.fa", "-o"]])
def test_a_run_of_another_version_is_refused(command, copy_of_run, capsys):
    run = RunDirectory(copy_of_run)
    content = json.loads(run.run_json.read_text()) | {"schema_version": 99}
    run.run_json.write_text(json.dumps(content))
    assert main([*command, str(run.root)]) == 1
    assert "another format: rerun the command of the run" in capsys.readouterr().err


def test_a_truncated_run_json_does_not_delete_the_run(copy_of_run, few_fasta, called):
    run = RunDirectory(copy_of_run)
    text = run.run_json.read_text()
    run.run_json.write_text(text[: len(text) // 2])
    printed = called("predict", few_fasta, "-o", run.root, "--resume", code=1).stderr
    assert "has no valid run/run.json" in printed
    assert "empty this one" not in printed
    assert run.run_json.read_text() == text[: len(text) // 2]
