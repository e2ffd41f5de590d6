"""``virnucpro launch``: a folder of files; launches are stopped, killed and resumed."""

import contextlib
import gzip
import json
import os
import pty
import random
import signal
import subprocess
import time
from argparse import Namespace
from pathlib import Path

import pytest
from cases import slow
from programs import VIRNUCPRO, run_captured, started, wait_until, with_fault
from samples import random_records

from virnucpro.cli.commands.launch_command import _advise
from virnucpro.cli.main import main
from virnucpro.launch.orchestrator import LauncherOrchestrator
from virnucpro.launch.results import FileResult
from virnucpro.run_dir import RunDirectory

VIRUSES = "viruses.fasta"
DEADLINE = 60.0
SIZES = {1: 160, 2: 40, 3: 10, 4: 10}


def fasta(seed, n_records):
    return random_records(n_records, seed=seed, least=160, name=f"r{seed}_")


def rows_of(out, tables):
    return {row["file"]: row for row in tables(out / "launch.tsv")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Names that differ only in their endings or folders; two broken files."""
    folder = tmp_path_factory.mktemp("in")
    (folder / "sub").mkdir()
    (folder / "a.fa").write_text(fasta(1, 5))
    (folder / "a.fa.gz").write_bytes(gzip.compress(fasta(2, 6).encode()))
    (folder / "sub" / "a.fa").write_text(fasta(3, 4))
    (folder / "stops.fa").write_text(">s\nTAGTAGATAATGA\n>t\nA\n")
    (folder / "torn.fa.gz").write_bytes(gzip.compress(fasta(4, 50).encode())[:-200])
    (folder / "text.fa").write_text("no sequences\n")
    return folder


def test_a_launch_reports_broken_files_and_predicts_the_others(
    folder, tmp_path, called, tables, difference_of, capsys, computing_here
):
    out = tmp_path / "out"
    command = ["launch", "--input-dir", folder, "--pattern", "**/*.fa*", "-o", out]
    first = called(*command, "--devices", "cpu:2", code=2)
    rows = rows_of(out, tables)
    assert {name: (row["status"], row["sequences"]) for name, row in rows.items()} == {
        "a.fa": ("done", "5"),
        "a.fa.gz": ("done", "6"),
        "sub/a.fa": ("done", "4"),
        "stops.fa": ("done", "2"),
        "text.fa": ("failed", "NA"),
        "torn.fa.gz": ("failed", "NA"),
    }
    assert "InputError: " in rows["text.fa"]["error"]
    assert "torn.fa.gz" in rows["torn.fa.gz"]["error"]
    assert [line.split()[0] for line in first.stdout.splitlines()[1:]] == list(rows)
    assert "6 files: 4 done, 2 failed" in first.stderr
    assert not (out / "text.fa").exists()

    done = [name for name, row in rows.items() if row["status"] == "done"]
    assert {rows[name]["proviruses"] for name in done} == {"0"}

    for name in done:
        lengths = [int(row["length"]) for row in tables(out / name / "predictions.tsv")]
        assert int(rows[name]["sequences_1_to_3_kb"]) == sum(1000 <= n < 3000 for n in lengths)
        classes = [int(cell) for column, cell in rows[name].items() if column.startswith("viral_")]
        assert sum(classes) == int(rows[name]["viral"])

    # A normal run folder: the same numbers, and every command accepts it.
    alone = tmp_path / "alone"
    with computing_here():
        done = called("predict", folder / "a.fa.gz", "-o", alone, "--devices", "cpu:1", "-q")
    assert done.returncode == 0, done.stderr
    assert difference_of(alone, out / "a.fa.gz") == []
    assert "predict, complete" in called("status", out / "a.fa.gz", code=0).stdout
    assert main(["verify", str(out / "sub" / "a.fa")]) == 0
    resume = ["-o", str(out / "a.fa.gz"), "--resume", "-q", "--embeddings", "none"]
    assert main(["predict", str(folder / "a.fa.gz"), *resume]) == 0

    # Again: one file is repaired, one has other sequences, the rest is done.
    segments = {path: path.stat().st_mtime_ns for path in out.rglob("segments.bin")}
    assert segments
    kept = (folder / "a.fa").read_text()
    (folder / "a.fa").write_text(fasta(9, 5))
    (folder / "text.fa").write_text(fasta(5, 3))
    capsys.readouterr()
    again = called(*command, "--devices", "cpu:1", "-q")
    (folder / "a.fa").write_text(kept)
    assert again.returncode == 2
    assert again.stdout == ""
    rows = rows_of(out, tables)
    assert {name: row["status"] for name, row in rows.items()} == {
        "a.fa": "failed",
        "a.fa.gz": "skipped",
        "sub/a.fa": "skipped",
        "stops.fa": "skipped",
        "text.fa": "done",
        "torn.fa.gz": "failed",
    }
    assert "FingerprintError: " in rows["a.fa"]["error"]
    assert f"{out / 'a.fa'}: the content of" in rows["a.fa"]["error"]
    assert rows["a.fa"]["error"].endswith("delete its folder (predict, embed: --force).")
    assert "differs from the input of the run" in again.stderr
    assert all(path.stat().st_mtime_ns == at for path, at in segments.items())


@pytest.fixture(scope="module")
def long_files(tmp_path_factory):
    """A large file, f1.fa, and small ones."""
    folder = tmp_path_factory.mktemp("long")
    for seed, n_records in SIZES.items():
        (folder / f"f{seed}.fa").write_text(fasta(seed, n_records))
    return folder


def segments_of(out):
    """Return the paths of all segments."""
    runs = (RunDirectory(one) for one in out.iterdir() if one.is_dir())
    return {path for run in runs for _, path in run.segments()}


def half_done(folder, out):
    """Start a launch and wait until it has committed a unit of the large file.

    The worker of this file then waits for its end, in the first two launches or attempts.
    """
    fired = out.with_name("fired")
    before = fired.read_bytes() if fired.exists() else b""
    plan = {"point": "commit", "number": 1, "folder": "f1.fa", "how": "sleep", "times": 2}
    command = [*with_fault(fired, **plan), "launch", "--input-dir", folder]
    process = started(*command, "-o", out, "--devices", "cpu:2", stdout=subprocess.DEVNULL)
    wait_until(lambda: fired.exists() and fired.read_bytes() != before, process)
    return process


@pytest.mark.parametrize(
    "signum",
    [signal.SIGKILL, slow(signal.SIGTERM), slow(signal.SIGINT)],
)
def test_a_killed_launch_and_a_killed_worker_are_resumed(
    signum, long_files, tmp_path, tables, called, no_orphan, ranks_of
):
    out = tmp_path / "out"
    with half_done(long_files, out) as process:
        assert len(ranks_of(process)) == 2
        process.send_signal(signum)
        process.communicate(timeout=DEADLINE)
        assert process.returncode in {-signal.SIGKILL, 128 + signum}
        no_orphan(process.pid)
    ended = segments_of(out)
    assert "predict, incomplete" in called("status", out / "f1.fa", code=2).stdout
    assert "launch, " in (printed := called("status", out, code=2).stdout)
    assert "left" in printed
    assert set(rows_of(out, tables)) == {f"f{number}.fa" for number in SIZES}

    with half_done(long_files, out) as process:
        worker = json.loads(RunDirectory(out / "f1.fa").status_json.read_text())["pid"]
        assert worker in ranks_of(process)
        os.kill(worker, signal.SIGKILL)
        _, message = process.communicate(timeout=60)
        assert process.returncode == 0, message
        no_orphan(process.pid)
    assert {path for path in ended if path.exists()} == set()  # joined
    assert {path.name for path in ended} <= {path.name for path in segments_of(out)}
    rows = rows_of(out, tables)
    assert {row["status"] for row in rows.values()} <= {"done", "skipped"}
    assert {name: row["attempts"] for name, row in rows.items() if row["attempts"] != "1"} == {
        "f1.fa": "2"
    }
    assert "f1.fa is retried" in message
    for number, n_records in SIZES.items():
        answered = tables(out / f"f{number}.fa" / "predictions.tsv")
        assert len(answered) == n_records
        assert {row["status"] for row in answered} == {"scored"}
    assert main(["verify", str(out / "f1.fa")]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("how", ["sleep", "deadlock in C", "SIGSTOP"])
def test_a_worker_that_hangs_in_a_batch_is_replaced(how, long_files, tmp_path, tables):
    out = tmp_path / "out"
    plan = {"point": "commit", "folder": "f1.fa", "how": how, "times": 1}
    done = run_captured(
        *with_fault(tmp_path / "fired", **plan),
        *("launch", "--input-dir", long_files, "-o", out),
        *("--devices", "cpu:2", "--progress-timeout", "3"),
    )
    assert done.returncode == 0, done.stderr
    assert "f1.fa is retried: worker " in done.stderr
    assert "it made no progress within 3 s" in done.stderr
    rows = rows_of(out, tables)
    assert [row["status"] for row in rows.values()] == ["done"] * len(SIZES)
    assert rows["f1.fa"]["attempts"] != "1"
    stacks = "".join(log.read_text() for log in out.glob("launch.logs/*"))
    assert ("in fire" in stacks) == (how != "SIGSTOP")


@pytest.mark.parametrize(
    ("signum", "whole_group"), [slow(signal.SIGTERM, False), (signal.SIGINT, True)]
)
def test_a_signal_ends_a_launch_and_leaves_a_table(signum, whole_group, tmp_path, no_orphan):
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for number in range(3):
        (folder / f"f{number}").write_text("sleep 60")
    worker = Path(__file__).parents[1] / "data" / "launch_workers.py"
    command = [*VIRNUCPRO, "launch", "--input-dir", folder, "-o", out, "--devices", "cpu:2"]
    with started(*command, "--worker", f"{worker}:Obedient") as process:
        logs = lambda: "".join(log.read_text() for log in out.glob("launch.logs/*"))  # noqa: E731
        wait_until(lambda: logs().count("sleeping") >= 2, process)
        os.killpg(process.pid, signum) if whole_group else process.send_signal(signum)
        _, message = process.communicate(timeout=DEADLINE)
        assert process.returncode == 128 + signum
        assert "Rerun the command" in message
        assert "Traceback" not in message
        no_orphan(process.pid)
    content = json.loads((out / "launch.json").read_text())
    assert {one["status"] for one in content["files"]} == {"left"}


WORDS = Path(__file__).parents[2] / "scripts" / "word_counts.py"


def read_terminal(terminal):
    """Read a terminal until all writers have closed it: Linux then returns EIO."""
    shown = b""
    with contextlib.suppress(OSError):
        while data := os.read(terminal, 1 << 16):
            shown += data
    os.close(terminal)
    return shown


def test_a_custom_worker_shows_a_table_on_a_terminal(tmp_path):
    """A worker unrelated to sequences, given by its file."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(6):
        (folder / f"text{number}.md").write_text("many words, many meanings " * (number + 1))
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [
            *(*VIRNUCPRO, "launch", "--input-dir", folder),
            *("-o", tmp_path / "out", "--devices", "cpu:2"),
            *("--worker", f"{WORDS}:WordStatistics", "--set", "shortest=5"),
        ],
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "120"},
    ) as process:
        os.close(theirs)
        shown = read_terminal(ours).decode()
        output = process.stdout.read()
    assert process.returncode == 0
    assert "Status" in shown
    assert "6 of 6 tasks" in shown
    header, *rows = (line.split() for line in output.splitlines())
    assert header[:4] == ["file", "words", "distinct", "most_common"]
    assert rows[2][:4] == ["text2.md", "6", "2", "words"]
    assert len(rows) == 6


def test_a_file_that_became_a_named_pipe_fails_alone(tmp_path, tables, monkeypatch, called):
    """The pipe has no writer: to open it would block the worker."""
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for name in ("a.fa", "b.fa"):
        (folder / name).write_text(fasta(1, 3))
    listed = LauncherOrchestrator._share_of

    def replaced(*arguments):
        files = listed(*arguments)
        (folder / "a.fa").unlink()
        os.mkfifo(folder / "a.fa")
        return files

    monkeypatch.setattr(LauncherOrchestrator, "_share_of", replaced)
    called("launch", "--input-dir", folder, "-o", out, "--devices", "cpu:1", "-q", code=2)
    rows = rows_of(out, tables)
    assert {name: row["status"] for name, row in rows.items()} == {"a.fa": "failed", "b.fa": "done"}
    assert "a.fa is no regular file any more" in rows["a.fa"]["error"]
    for command in (["verify"], ["aggregate"], ["rescore", "--fdr", "0.1"]):
        told = called(*command, out, code=1).stderr
        assert "or that of a file of launch" in told


def test_predict_is_advised_for_a_file_that_kills_its_worker(tmp_path, capsys):
    def advice(*errors):
        results = [FileResult(str(tmp_path / "a.fa"), "failed", error=error) for error in errors]
        _advise(results, Namespace(input_dir=tmp_path, outdir=Path("out")))
        return capsys.readouterr().err

    assert advice("InputError: a.fa: empty", "") == ""
    printed = advice(
        "worker 1 was killed by SIGSEGV. The worker was running this task (attempt 3)."
    )
    assert f"virnucpro predict {tmp_path / 'a.fa'} -o out/a.fa --resume" in printed


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--devices", "cpu:0"], 64, "cpu:N"),
        (["--worker", "no.such"], 64, "cannot be imported"),
        (["--bundle", "no-such"], 64, "no-such"),
        (["--pattern", "*.nothing"], 1, "no file matches"),
        (["--worker", f"{WORDS}:WordStatistics", "--bundle", "mini"], 64, "--set"),
        (["--worker", f"{WORDS}:WordStatistics", "--fdr", "0.1"], 64, "--set"),
        (["--worker", f"{WORDS}:WordStatistics", "--set", "nonsense=1"], 1, "shortest"),
    ],
)
def test_early_errors_have_their_exit_code(folder, tmp_path, called, arguments, code, message):
    command = ["launch", "--devices", "cpu:2", "--input-dir", str(folder)]
    command += ["-o", str(tmp_path / "out")]
    assert message in called(*command, "-q", *arguments, code=code).stderr


@pytest.mark.slow
@pytest.mark.shared
@pytest.mark.timeout(1500)
def test_a_killed_launch_of_152_genomes_is_resumed(shared, tmp_path, tables, no_orphan):
    rows = tables(shared / "genomes" / "genomes.tsv")
    chosen = [row for row in rows if (row["group"], row["split"]) == ("virus", "valid")]
    names = [f"{row['id']}.fa.gz" for row in chosen]
    assert len(names) == 152
    folder, out = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to(shared / "genomes" / "virus" / name)
    broken = folder / names[70]
    whole = broken.read_bytes()
    broken.unlink()
    broken.write_bytes(whole[: len(whole) // 2])
    command = [*VIRNUCPRO, "launch", "--input-dir", folder, "-o", out]
    command += ["--pattern", "*.fa.gz", "--devices", "cpu:2"]
    with started(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while len(list(out.glob("*/predictions.tsv"))) < 30:
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
        process.wait()
        no_orphan(process.pid)
    before = segments_of(out)
    finished = {path.parent.name for path in out.glob("*/predictions.tsv")}
    run_captured(*command, timeout=1200, code=2)
    assert before.items() <= segments_of(out).items()
    table = rows_of(out, tables)
    assert sorted(table) == sorted(names)
    assert [name for name, row in table.items() if row["status"] == "failed"] == [names[70]]
    assert names[70] in table[names[70]]["error"]
    assert finished <= {name for name, row in table.items() if row["status"] == "skipped"}
    assert all(row["status"] in {"done", "skipped", "failed"} for row in table.values())
    for name in random.Random(1).sample(sorted(set(names) - {names[70]}), 5):
        assert main(["verify", str(out / name)]) == 0


def ids_of(path):
    return [line[1:].split()[0] for line in path.read_text().splitlines() if line[0] == ">"]


def test_three_samples_with_the_contig_names_of_megahit_have_unique_ids(tmp_path, small_fasta):
    """Equal ids are refused by CheckV and samtools faidx."""
    contigs = [part.partition("\n")[2] for part in small_fasta.read_text().split(">")[1:]]
    source = tmp_path / "in"
    files = [source / f"s{number}" / "final.contigs.fa" for number in (1, 2, 3)]
    for number, file in enumerate(files):
        order = contigs[number:] + contigs[:number]
        text = "".join(f">k141_{n} flag=1\n{bases}" for n, bases in enumerate(order))
        file.parent.mkdir(parents=True)
        file.write_text(text)
    out, joined = tmp_path / "out", tmp_path / "joined"
    options = ["--devices", "cpu:1", "-q", "--prevalence", "0.5"]
    command = ["launch", "--input-dir", str(source)]
    assert main([*command, "--pattern", "**/*.fa", "-o", str(out), *options]) == 0
    assert main(["predict", *map(str, files), "-o", str(joined), *options]) == 0
    samples = {f"{file.parent.name}_final.contigs" for file in files}
    ids_in_joined = ids_of(joined / VIRUSES)
    assert len(set(ids_in_joined)) == len(ids_in_joined)
    assert {name.partition("|")[0] for name in ids_in_joined} == samples
    assert main(["rescore", str(joined), "--threshold", "0", "-q"]) == 0
    assert {*ids_in_joined} < {*ids_of(joined / VIRUSES)}

    on_top = {path.name for path in joined.iterdir()}
    assert on_top == {"predictions.tsv", VIRUSES, "regions.tsv", "report.html", "tracks", "run"}
    assert {path.name for path in (out / files[0].relative_to(source)).iterdir()} == on_top - {
        "report.html"
    }
    tracks = {path.name for path in (joined / "tracks").iterdir()}
    assert tracks == {"windows.tsv", "regions.bed", "regions.gff3", "scores.bedgraph"}
