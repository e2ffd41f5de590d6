"""Row 13: a flipped byte or a truncated file of a run is detected, or has no effect."""

import json
import os
import random
from itertools import cycle, islice

import pytest
from cases import slow
from programs import segments_in

from virnucpro.cli.main import main
from virnucpro.run.calls import call_run
from virnucpro.run.outputs import write_tables
from virnucpro.run.run import reopened
from virnucpro.run.verify import verify_run
from virnucpro.run_dir import RunDirectory
from virnucpro.store.coverage import survey

pytestmark = pytest.mark.usefixtures("one_process")

PASSING = {
    *("run.lock", "status.json", "launches", "logs", "report.html"),
    *("virnucpro_mqc.json", "virnucpro_calls_mqc.json", "virnucpro_scores_mqc.json"),
}
"""Files that no result depends on after a run has ended; reports are made from the segments."""


def files_of(run):
    return sorted(path for path in run.root.rglob("*") if path.is_file())


def kind_of(run, path):
    of_machine = path.is_relative_to(run.machine)
    return path.relative_to(run.machine if of_machine else run.root).parts[0]


def tables_of(folder):
    return {
        path.name: path.read_bytes()
        for path in (*folder.iterdir(), *folder.glob("tracks/*"))
        if path.suffix in {".tsv", ".txt", ".csv", ".fasta", ".bed", ".gff3", ".bedgraph"}
    }


def rederived(run, folder):
    """Return the tables that `aggregate` writes for the present segments."""
    folder.mkdir()
    with reopened(run) as opened:
        coverage = survey(run, opened.bounds, opened.manifest.fingerprint)
        assert coverage.complete
        write_tables(RunDirectory(folder), opened.manifest, call_run(opened, coverage))
    return tables_of(folder)


def flips(run, n_flips):
    """Return positions in all files, the same number in each file if it is long enough."""
    dice = random.Random(13)
    files = [path for path in files_of(run) if path.stat().st_size]
    for path in islice(cycle(files), n_flips):
        yield path, dice.randrange(path.stat().st_size), dice.randrange(1, 256)


@pytest.mark.parametrize("n_flips", [40, slow(500)])
def test_a_flipped_byte_is_detected_or_harmless(n_flips, copy_of_run, tmp_path):
    run = RunDirectory(copy_of_run)
    original = rederived(run, tmp_path / "original")
    assert original == tables_of(run.root)
    found, harmless = 0, []
    for number, (path, position, mask) in enumerate(flips(run, n_flips)):
        content = path.read_bytes()
        path.write_bytes(
            content[:position] + bytes([content[position] ^ mask]) + content[position + 1 :]
        )
        problems = verify_run(run).problems
        if problems:
            assert any(one.path in {path, path.parent} for one in problems), (path, problems)
            found += 1
        else:
            harmless.append(path)
            if kind_of(run, path) not in PASSING:
                assert rederived(run, tmp_path / str(number)) == original, (path, position)
        path.write_bytes(content)
    assert found + len(harmless) == n_flips
    assert {kind_of(run, path) for path in harmless} <= {*PASSING, "run.json", "index"}
    assert not [path for path in harmless if path.suffix in {".npy", ".h5"}]
    assert found > n_flips / 2
    assert verify_run(run).problems == ()


@pytest.mark.parametrize("part", ["thresholds", "labels", "counts", "encoders"])
def test_an_edited_run_json_is_refused(part, copy_of_run, capsys):
    run = RunDirectory(copy_of_run)
    before, mark, after = run.run_json.read_text().partition(f'"{part}": ')
    position = next(number for number, letter in enumerate(after) if letter.isalnum())
    other = "x" if after[position].isalpha() else str(9 - int(after[position]))
    run.run_json.write_text(f"{before}{mark}{after[:position]}{other}{after[position + 1 :]}")
    assert [one.path for one in verify_run(run).problems] == [run.run_json]
    assert main(["aggregate", str(run.root)]) == 1
    assert "run.json has been changed since it was written" in capsys.readouterr().err


@pytest.mark.parametrize("share", [slow(0.0), slow(0.5), 1.0])
def test_a_truncated_file_is_detected(share, copy_of_run):
    run = RunDirectory(copy_of_run)
    for path in files_of(run):
        if kind_of(run, path) in PASSING or not path.stat().st_size:
            continue
        content = path.read_bytes()
        path.write_bytes(content[: min(int(len(content) * share), len(content) - 2)])
        problems = verify_run(run).problems
        assert any(one.path in {path, path.parent} for one in problems), path
        path.write_bytes(content)


def test_repair_removes_only_damaged_segments_and_a_resume_recomputes_them(
    copy_of_run, undisturbed, few_fasta, tmp_path, called, difference_of
):
    run = RunDirectory(copy_of_run)
    (_, flipped), (_, torn), *whole = run.segments()
    with flipped.open("r+b") as stream:
        stream.seek(7000)
        byte = stream.read(1)[0]
        os.pwrite(stream.fileno(), bytes([byte ^ 64]), 7000)
    os.truncate(torn, 700)
    foreign = run.segment(3, 77)
    foreign.parent.mkdir()
    foreign.write_bytes(whole[0][1].read_bytes())
    before = {path.name: path.read_bytes() for _, path in whole}

    report = json.loads(called("verify", run.root, "--json", code=1).stdout)
    assert {one["path"] for one in report["problems"]} == {str(flipped), str(torn), str(foreign)}
    report = json.loads(called("verify", run.root, "--repair", "--json", code=1).stdout)
    assert report["removed"] == [str(flipped), str(torn)]
    assert [one["path"] for one in report["problems"]] == [str(foreign)]
    foreign.unlink()
    assert main(["verify", str(run.root)]) == 2
    assert set(run.segments()) == set(whole)

    called("predict", few_fasta, "-o", run.root, "--resume", "--devices", "cpu:1", code=0)
    assert main(["verify", str(run.root)]) == 0
    assert difference_of(undisturbed, run.root) == []
    assert before.items() <= segments_in(run.root).items()


DEPENDENT = ("probability", "fdr", "call", "tier", "reason", "likely_source")
"""Columns that depend on all records of a table, through the prevalence of the input."""


def test_a_flipped_segment_is_never_aggregated(copy_of_run, called, tables):
    run = RunDirectory(copy_of_run)
    right = {row["seq_name"]: row for row in tables(run.predictions)}
    for row in right.values():
        for name in DEPENDENT:
            del row[name]
    unit, path = run.segments()[2]
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    done = called("aggregate", run.root, code=2)
    assert f"unit-{unit:06d}.h5: truncated or altered" in done.stderr
    rows = tables(run.predictions)
    assert len(rows) == len(right)
    answered = [row for row in rows if row["status"] == "scored"]
    for row in answered:
        assert 0 <= float(row["fdr"]) <= 1
        for name in DEPENDENT:
            del row[name]
    assert answered == [right[row["seq_name"]] for row in answered]
    missing = {row["seq_name"] for row in rows if row["status"] == "missing"}
    assert missing == {row["seq_name"] for row in tables(run.missing)} != set()


def test_repair_is_refused_while_another_process_works_in_the_folder(copy_of_run, called):
    from virnucpro.run.run import run_lock

    run = RunDirectory(copy_of_run)
    _, path = run.segments()[0]
    path.write_bytes(b"")
    with run_lock(run):
        assert "another process" in called("verify", run.root, "--repair", code=1).stderr
        assert path.exists()
        assert "outputs not checked" in called("verify", run.root, code=1).stdout
    assert main(["verify", str(run.root), "--repair"]) == 2
    assert not path.exists()
