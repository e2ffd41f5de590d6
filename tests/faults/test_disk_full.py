"""Row 11: a full disk in each stage of a run."""

import json
import os
import re
import shutil
import subprocess

import pytest
from programs import segments_in

from virnucpro.cli.main import main
from virnucpro.compute.preflight import space_needed
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex

KB = 1024

# The stage in which the disk fills, and the kB that are left from then on.
EARLY = [("reading sequences", left) for left in (0, 4, 8, 12, 20, 40, 60, 72, 80)]
RANKS = [("computing", left) for left in (0, 4, 12, 16, 24, 36, 44, 60, 72)]
TABLES = [("writing tables", left) for left in (0, 4, 8, 12)]
VECTORS = [("writing embeddings", left) for left in (0, 4, 16, 32, 48, 60)]
OFTEN = {EARLY[2], RANKS[4], TABLES[2], VECTORS[3]}


def fill(disk, left):
    room = os.statvfs(disk)
    free = room.f_bavail * room.f_frsize
    with (disk / "filler").open("wb") as stream:
        stream.write(bytes(max(0, free - left * KB)))


MOMENTS = [
    pytest.param(
        stage,
        left,
        marks=() if (stage, left) in OFTEN else pytest.mark.slow,
        id=f"{stage.replace(' ', '_')}-{left}k",
    )
    for stage, left in (*EARLY, *RANKS, *TABLES, *VECTORS)
]


@pytest.mark.parametrize(("stage", "left"), MOMENTS)
def test_a_full_disk_is_a_clear_error_and_a_resume_completes(
    stage, left, disk, few_fasta, undisturbed, reporting, called, difference_of, computing_here
):
    folder = disk("4m") / "run"
    if stage.startswith("writing"):
        shutil.copytree(undisturbed, folder)
        for path in RunDirectory(folder).reports:  # they would be removed, and leave room
            path.unlink()
    before = {name: (folder / name).read_bytes() for name in outputs(folder)}
    words = ["predict", few_fasta, "-o", folder, "--devices", "cpu:1", "--resume", "--embeddings"]
    command = [*map(str, words)]
    reporting(lambda text: text.startswith(stage) and fill(folder.parent, left))
    printed = called(*command, code=1).stderr
    error = printed[printed.index("virnucpro: error:") :]
    assert "No space left on device" in printed
    assert str(folder) in printed
    assert "free" in error
    assert "--resume" in error or stage == "reading sequences"
    assert "Traceback" not in printed
    if stage == "computing":
        assert "bytes of disk" in printed
    if stage == "writing embeddings":
        assert re.search(r"need more than [\d,]+ bytes", error)
    for name, content in before.items():  # the former file or its equal successor
        assert (folder / name).read_bytes() == content
    assert not list(folder.rglob("*.tmp"))
    committed = written(folder)

    (folder.parent / "filler").unlink()
    reporting(lambda _: None)
    with computing_here():
        assert main([*command, "-q"]) == 0
    assert difference_of(undisturbed, folder) == []
    assert (folder / "embeddings.h5").is_file()
    now = written(folder)
    assert {path: now[path] for path in committed} == committed


def outputs(folder):
    return [path.name for path in folder.glob("*.tsv")] + [
        path.name for path in folder.glob("*.h5")
    ]


def written(folder):
    return segments_in(folder)


def test_a_run_that_needs_more_disk_than_is_free_is_refused_at_the_start(
    disk, few_fasta, undisturbed, called, difference_of, one_process
):
    small = disk("240k")
    folder = small / "run"
    words = ["predict", few_fasta, "-o", folder, "--devices", "cpu:1", "--resume", "--embeddings"]
    command = [*map(str, words), "-q"]
    printed = called(*command, code=1).stderr
    assert "needs about" in printed
    assert "are free" in printed
    assert "--embeddings none" in printed
    assert not RunDirectory(folder).launches.exists()
    embed = ["embed", few_fasta, "-e", "mini/nucleotide", "-o", disk("240k") / "run", "-q"]
    printed = called(*map(str, embed), code=1).stderr
    assert "are free" in printed
    assert "--embeddings" not in printed  # `embed` has no run without vectors
    subprocess.run(["mount", "-o", "remount,size=4m", small], check=True)
    assert main(command) == 0
    assert difference_of(undisturbed, folder) == []


@pytest.mark.parametrize("vectors", [True, False])
def test_the_disk_estimate_is_sufficient_and_close(undisturbed, vectors):
    index = SequenceIndex.open(undisturbed / "run" / "index")
    run = RunDirectory(undisturbed)
    encoders = json.loads(run.run_json.read_text())["encoders"]
    needed = space_needed(
        index,
        units=len(run.segments()),
        rows=index.n_rows,
        row_bytes=2 * sum(one["dim"] for one in encoders) if vectors else 0,
    )
    segments = sum(path.stat().st_size for _, path in run.segments())
    tables = [path for path in undisturbed.iterdir() if path.suffix in {".tsv", ".txt", ".csv"}]
    written = sum(path.stat().st_size for path in tables)
    assert written <= needed["tables"] <= 3 * written
    letters = sum(path.stat().st_size for path in undisturbed.glob("*.fasta"))
    written += needed["sequences"]  # which calls a run will have is not known before it
    assert letters <= needed["sequences"] <= index.record_lengths.sum() + 120 * index.n_records
    if vectors:
        assert segments <= needed["segments"] <= 1.5 * segments
        whole = (undisturbed / "embeddings.h5").stat().st_size
        headers = 8 * KB  # their size depends on the run by less than this
        assert whole - headers <= needed["embeddings.h5"] <= 1.5 * whole
    else:
        assert needed["embeddings.h5"] == 0
        assert sum(needed.values()) < segments + written + 64 * KB


def test_the_advice_about_a_full_disk_names_no_resume_beside_force(
    disk, few_fasta, undisturbed, reporting, called
):
    folder = disk("4m") / "run"
    shutil.copytree(undisturbed, folder)
    words = ["predict", few_fasta, "-o", folder, "--devices", "cpu:1", "--force"]
    reporting(lambda text: text == "reading sequences" and fill(folder.parent, 0))
    told = called(*words, code=1).stderr
    assert told.rstrip().endswith("free disk space, then rerun the command")
