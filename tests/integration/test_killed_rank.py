"""SIGKILL of the only rank: the tables list the gaps, a resume fills them."""

import json
import os
import signal

import numpy as np
import pytest
from cases import slow
from programs import segments_in, started, wait_until, with_fault
from samples import random_records

from virnucpro.cli.main import main
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex
from virnucpro.store.segment import read_segment

pytestmark = [pytest.mark.timeout(100), pytest.mark.usefixtures("one_process")]
DEADLINE = 60.0


@pytest.fixture(scope="module")
def many_fasta(tmp_path_factory):
    """Enough units for a kill in the middle of a run."""
    path = tmp_path_factory.mktemp("input") / "many.fa"
    path.write_text(random_records(180, seed=5))
    return path


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, many_fasta):
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    command = ["predict", str(many_fasta), "-o", str(folder), "--devices", "cpu:1", "-q"]
    assert main(command) == 0
    return folder


def uncovered_records(folder):
    """Return the rows without a segment, from the files."""
    run = RunDirectory(folder)
    index = SequenceIndex.open(run.index)
    covered = np.zeros(index.n_rows, bool)
    for _, path in run.segments():
        covered[read_segment(path).rows] = True
    open_items = np.flatnonzero(~covered[index.item_row])
    windows = np.searchsorted(index.window_first_item, open_items, side="right") - 1
    records = np.searchsorted(index.record_first_window, windows, side="right") - 1
    of_pieces = np.searchsorted(
        index.record_first_piece, np.flatnonzero(~covered[index.piece_row]), side="right"
    )
    return set(index.record_names(np.union1d(records, of_pieces - 1)))


def kill_the_rank(folder, segments, process):
    """SIGKILL the rank, which is stuck, when its shard has a number of segments."""
    run = RunDirectory(folder)
    wait_until(lambda: len(list(run.shard(0).glob("unit-*.h5"))) >= segments, process)
    os.kill(json.loads(run.status_json.read_bytes())["ranks"]["0"]["pid"], signal.SIGKILL)


@pytest.mark.parametrize(("segments", "again"), [(1, 1), slow(1, 3), slow(3, 2)])
def test_the_tables_list_the_gaps_and_a_resume_fills_them(
    segments,
    again,
    many_fasta,
    undisturbed,
    tmp_path,
    called,
    tables,
    difference_of,
):
    folder = tmp_path / "run"
    fault = {"point": "commit", "number": segments, "how": "sleep", "rank": 0}
    command = [*with_fault(tmp_path / "fired", **fault), "predict", many_fasta, "-o", folder]
    options = ("--devices", "cpu:1", "--max-restarts", "0")
    with started(*command, *options) as process:
        kill_the_rank(folder, segments, process)
        _, message = process.communicate(timeout=DEADLINE)
    assert process.returncode == 2, message
    assert "SIGKILL" in message

    status = json.loads((folder / "run" / "status.json").read_text())["ranks"]
    assert status["0"]["exit"] == "SIGKILL"

    listed = [row["seq_name"] for row in tables(folder / "missing.tsv")]
    assert set(listed) == uncovered_records(folder)
    assert len(set(listed)) == len(listed)
    answers = tables(folder / "predictions.tsv")
    assert {row["seq_name"] for row in answers if row["status"] == "missing"} == set(listed)
    kept = segments_in(folder)

    command = ("predict", many_fasta, "-o", folder, "--devices", f"cpu:{again}")
    called(*command, "--resume", code=0)
    assert difference_of(undisturbed, folder) == []
    assert not (folder / "missing.tsv").exists()
    assert kept.items() <= segments_in(folder).items()
