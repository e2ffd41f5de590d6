"""One run that several tasks compute: tables equal to those of one process, whatever happens."""

import errno
import fcntl
import json
import os
import shutil
import signal
import socket
import sys
import time
from pathlib import Path

import h5py
import pytest
from cases import TWO_THREADS, slow
from programs import VIRNUCPRO, started, stuck_after, wait_until
from samples import copy_of, random_records

from virnucpro.cli.main import main
from virnucpro.compute.rounds import read_latest_round, write_round
from virnucpro.run.part_states import settled_parts
from virnucpro.run_dir import RunDirectory

pytestmark = pytest.mark.usefixtures("one_process")
TABLES = ("predictions.tsv", "tracks/windows.tsv")
OUTPUTS = ["-q", "--embeddings=fp16"]


@pytest.fixture(scope="module")
def fasta(tmp_path_factory):
    """Some 400 windows of random bases, in 4 units."""
    path = tmp_path_factory.mktemp("input") / "reads.fa"
    path.write_text(
        random_records(130, seed=12, letters="ACGT", least=100, most=3000, name="read_")
    )
    return path


@pytest.fixture(scope="module")
def alone(fasta, tmp_path_factory):
    """Run folder of one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert main(["predict", str(fasta), "-o", str(folder), "--devices", "cpu:1", *OUTPUTS]) == 0
    return folder


@pytest.fixture(scope="module")
def planned_once(fasta, tmp_path_factory):
    """A planned run for several tasks; its input is not needed any more. Do not write to it."""
    folder = tmp_path_factory.mktemp("planned")
    copy = shutil.copy(fasta, folder)
    assert main(["plan", copy, "-o", str(folder / "run"), "--ranks", "4", *OUTPUTS]) == 0
    Path(copy).unlink()
    return folder / "run"


planned = copy_of("planned_once")


@pytest.fixture(scope="module")
def computed_once(planned_once, tmp_path_factory):
    """A run of which one task has computed every unit. Do not write to it."""
    folder = tmp_path_factory.mktemp("computed") / "run"
    shutil.copytree(planned_once, folder, symlinks=True)
    assert work_here(folder) == 0
    return folder


computed = copy_of("computed_once")


@pytest.fixture(scope="module")
def killed_once(planned_once, tmp_path_factory):
    """A run of which a task was killed after its first unit. Do not write to it."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    process = stuck(shutil.copytree(planned_once, folder, symlinks=True), 1, "0/2")
    process.kill()
    ended(process)
    assert len(RunDirectory(folder).segments()) == 1
    return folder


killed = copy_of("killed_once")


def work(folder, task="0/1", *options, program=VIRNUCPRO):
    """Start a task in a process of its own."""
    command = [*program, "work", folder, "--task", task, "--devices", "cpu:1", *options]
    return started(*command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


def work_here(folder, task="0/1", *options):
    """Compute a task in this process; return its exit code."""
    words = ["work", folder, "--task", task, "--devices", "cpu:1", *options]
    return main([*map(str, words)])


def ended(*processes):
    """Wait for processes; return exit codes and standard errors."""
    texts = [process.communicate(timeout=100)[1] for process in processes]
    return [process.returncode for process in processes], texts


@pytest.mark.parametrize("name", ["0001", "0001/0000"])
def test_claims_behind_a_link_are_refused(name, planned, tmp_path, capsys):
    (tmp_path / "elsewhere").mkdir()
    link = planned / "run" / "claims" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(tmp_path / "elsewhere")
    assert work_here(planned) == 1
    assert f"{link} is a symbolic link" in capsys.readouterr().err
    assert [*(tmp_path / "elsewhere").iterdir()] == []
    assert RunDirectory(planned).segments() == []


@pytest.mark.parametrize("option", ["--force", "--resume"])
def test_a_part_is_no_folder_for_another_run(option, computed, small_fasta, monkeypatch, called):
    run = RunDirectory(computed)
    (name,) = run.part_names()
    before = [path.read_bytes() for _, path in run.segments()]
    assert before
    for folder in (run.part(name).root, name):
        words = ["predict", small_fasta, "-o", folder, option, "--devices", "cpu:1", "-q"]
        assert f"is a part of the run {computed}" in called(*words, code=1).stderr
        monkeypatch.chdir(run.parts)
    assert [path.read_bytes() for _, path in run.segments()] == before


def assert_equal_results(folder, alone):
    for name in TABLES:
        assert (folder / name).read_bytes() == (alone / name).read_bytes(), name
    with h5py.File(folder / "embeddings.h5") as one, h5py.File(alone / "embeddings.h5") as other:
        assert (one["embeddings"][:] == other["embeddings"][:]).all()
    assert main(["verify", str(folder)]) == 0


def merged(folder, *options):
    return main(["merge", str(folder), "-q", *options])


def assert_equal_results_of_merge(folder, alone):
    assert merged(folder) == 0
    assert_equal_results(folder, alone)


@pytest.mark.parametrize("tasks", [slow(1), 2, slow(7)])
def test_any_number_of_tasks_gives_the_tables_of_one_process(planned, alone, tasks):
    codes, texts = ended(*(work(planned, f"{k}/{tasks}") for k in range(tasks)))
    assert codes == [0] * tasks, texts
    assert_equal_results_of_merge(planned, alone)


def test_two_workers_a_task_and_another_number_of_tasks(planned, alone, capsys):
    """Task 1 of 4 alone computes its strides, then all others; a task of 3 finds nothing."""
    assert work_here(planned, "1/4", "--devices", "cpu:2", *TWO_THREADS) == 0
    assert work_here(planned, "2/3") == 0
    assert "every unit has a segment" in capsys.readouterr().err
    torn = (
        next((planned / "run" / "parts").glob("*/run/shards/rank-*"))
        / "unit-000000.h5.17-0123abcd.tmp"
    )
    torn.write_bytes(b"of a killed worker")
    assert_equal_results_of_merge(planned, alone)
    assert not torn.exists()


def stuck(folder, number=1, task="0/1", *options):
    """Start a task, and return it when it has committed `number` units; it commits no more."""
    program = stuck_after(number, folder.with_name("fired"))
    process = work(folder, task, *options, program=program)
    wait_until(lambda: len(RunDirectory(folder).segments()) >= number, process)
    return process


def test_the_units_of_a_killed_task_are_computed_by_another(killed, alone):
    assert work_here(killed, "1/2", "--copy-after", "0.5") == 0
    assert_equal_results_of_merge(killed, alone)


@pytest.mark.slow
def test_a_late_task_computes_what_a_lost_one_had_claimed(planned, alone):
    """The lost task claimed every unit, and the late one has none of its own."""
    run = RunDirectory(planned)
    lost = run.part("0000.00000000")
    lost.root.mkdir(parents=True)
    current = read_latest_round(run)
    for position, unit in enumerate(current.units):
        link = run.claims / f"0001/{position % current.strides:04d}/{unit:06d}.0"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to("0000.00000000/0")
    codes, texts = ended(work(planned, "1/2", "--copy-after", "3"))
    assert codes == [0], texts
    assert "kb in 130 sequences on 1 worker (cpu), together with other tasks" in texts[0]
    assert (
        "waits for those of others"
        in next(planned.glob("run/parts/*/run/logs/rank-0000.log")).read_text()
    )
    assert_equal_results_of_merge(planned, alone)


@pytest.mark.slow
def test_vectors_of_whole_sequences_by_several_tasks(fasta, tmp_path):
    folder, single = tmp_path / "run", tmp_path / "single"
    encoder = ["-e", "mini/nucleotide"]
    assert main(["plan", str(fasta), "-o", str(folder), *encoder, "-q"]) == 0
    assert [work_here(folder, task) for task in ("0/2", "1/2")] == [0, 0]
    assert merged(folder) == 0
    assert main(["embed", str(fasta), "-o", str(single), *encoder, "--devices", "cpu:1", "-q"]) == 0
    assert (folder / "sequences.tsv").read_bytes() == (single / "sequences.tsv").read_bytes()
    with h5py.File(folder / "embeddings.h5") as one, h5py.File(single / "embeddings.h5") as other:
        assert (one["embeddings"][:] == other["embeddings"][:]).all()


@pytest.mark.slow
def test_a_second_attempt_continues_a_killed_one(killed, alone):
    assert work_here(killed, "0/2", "--copy-after", "100") == 0
    segments = RunDirectory(killed).segments()
    assert 1 < len(segments) == len(set(segments))
    assert_equal_results_of_merge(killed, alone)


@pytest.mark.parametrize("stop", [signal.SIGTERM, slow(signal.SIGUSR1)])
def test_a_stopped_task_keeps_its_finished_units(planned, alone, stop):
    stopped = stuck(planned, 1, "0/1", "--lead", "20")
    stopped.send_signal(stop)
    codes, texts = ended(stopped)
    assert codes == [143], texts
    assert "stopped (SIG" in texts[0]
    assert not list(planned.rglob("*.tmp"))
    assert merged(planned) == 2
    assert (planned / "missing.tsv").exists()
    assert main(["rescue", str(planned), "-q"]) == 0
    assert work_here(planned) == 0
    assert_equal_results_of_merge(planned, alone)


@pytest.mark.slow
def test_the_same_task_twice_at_once(planned, alone):
    codes, texts = ended(*(work(planned, "0/1", "--copy-after", "30") for _ in range(2)))
    assert codes == [0, 0], texts
    assert_equal_results_of_merge(planned, alone)
    assert len(list((planned / "run" / "parts").iterdir())) in (1, 2)


def test_a_damaged_segment_is_computed_again_in_the_next_round(computed, alone, capsys, called):
    _, damaged = RunDirectory(computed).segments()[-1]
    damaged.write_bytes(b"")
    assert merged(computed) == 2
    advice = f"virnucpro rescue {computed} and virnucpro work recompute the segment"
    shown = capsys.readouterr().err
    assert advice in shown
    assert "--resume" not in shown
    printed = called("verify", computed, code=1).stdout
    assert f"--repair, then run virnucpro rescue {computed}, then" in printed
    assert advice in printed
    assert "--resume" not in printed
    assert main(["rescue", str(computed), "-q"]) == 0
    damaged.touch()  # times decide nothing
    assert work_here(computed) == 0
    assert "1 units computed" in capsys.readouterr().err
    assert merged(computed) == 0
    for name in TABLES:
        assert (computed / name).read_bytes() == (alone / name).read_bytes(), name
    capsys.readouterr()
    assert f"removed: {damaged}" in called("verify", computed, "--repair", code=0).stdout
    assert main(["verify", str(computed)]) == 0


def test_a_copied_run_is_not_computed_again(computed_once, tmp_path, capsys):
    """A copy without the times of the files: the rounds are younger than all segments."""
    copy = tmp_path / "copy"
    shutil.copytree(computed_once, copy, symlinks=True, copy_function=shutil.copyfile)
    for path in (copy / "run" / "rounds").iterdir():
        path.touch()
    assert work_here(copy) == 0
    assert "every unit has a segment" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["files", slow("empty round")])
def test_what_is_no_claim_or_no_round_stops_nothing(planned, alone, kind):
    run = RunDirectory(planned)
    if kind == "files":
        current = read_latest_round(run)
        for position, unit in enumerate(current.units):
            path = run.claims / f"0001/{position % current.strides:04d}/{unit:06d}.0"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    else:
        run.round(1).write_bytes(b"")
        assert main(["rescue", str(planned), "-q"]) == 0
    assert work_here(planned) == 0
    assert_equal_results_of_merge(planned, alone)


def test_merge_begins_the_next_round_for_missing_units(computed, capsys, called):
    for _, segment in RunDirectory(computed).segments()[1:]:
        segment.unlink()
    assert main(["status", str(computed)]) == 2
    assert f"to compute the rest: virnucpro rescue {computed}" in capsys.readouterr().out
    assert merged(computed) == 2
    assert f"To compute these: virnucpro rescue {computed}, then" in capsys.readouterr().err
    assert merged(computed, "--then-rescue") == 2
    assert f"To compute these: virnucpro work {computed} or" in capsys.readouterr().err
    assert RunDirectory(computed).round_numbers() == [1, 2]
    assert main(["status", str(computed)]) == 2
    assert f"to compute the rest: virnucpro submit {computed}" in capsys.readouterr().out
    assert work_here(computed) == 0
    assert merged(computed, "--then-rescue") == 0
    assert RunDirectory(computed).round_numbers() == [1, 2]
    assert "no unit is missing" in called("rescue", computed, code=0).stdout


def test_one_machine_can_finish_a_run_of_many(killed, alone, fasta):
    assert main(["predict", str(fasta), "-o", str(killed), "--resume", "-q"]) == 0
    assert_equal_results(killed, alone)
    assert len(RunDirectory(killed).segments()) > 1


@pytest.fixture
def alive(planned):
    """A part that works on another machine."""
    return add_working_part(planned)


def add_working_part(folder):
    """Add a part that works on another machine: it has written a heartbeat just now."""
    part = RunDirectory(folder).part("0000.00000000")
    part.machine.mkdir(parents=True)
    part.index.symlink_to("../../../index")
    status = {"running": True, "beat": 3, "host": "node-7", "ranks": {}}
    part.status_json.write_text(json.dumps(status))
    return part


def test_force_and_repair_are_refused_while_a_part_works(planned, alive, fasta, called):
    before = {path: path.lstat().st_mtime_ns for path in planned.rglob("*")}
    command = ["predict", str(fasta), "-o", str(planned), "--force", "-q"]
    for words in (command, ["verify", str(planned), "--repair"]):
        assert "0000.00000000 on node-7" in called(*words, code=1).stderr
    after = {path: path.lstat().st_mtime_ns for path in planned.rglob("*")}
    assert {path for path in before if after.get(path) != before[path]} <= {
        *(planned, planned / "run"),
        planned / "run" / "run.lock",
    }
    os.utime(alive.status_json, (0, 0))
    assert main(command) == 0
    assert not (planned / "run" / "parts").exists()
    assert main(["verify", str(planned)]) == 0


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_an_unreadable_heartbeat_blocks_no_command(planned, alive, fasta, kind, capsys, called):
    alive.status_json.unlink()
    (os.mkfifo if kind == "pipe" else os.mkdir)(alive.status_json)
    shutil.copy(planned / "run" / "run.json", alive.run_json)
    problem = f"{alive.status_json} cannot be read (not a regular file)"
    text = called("status", planned, code=2).stdout
    assert "attempts of tasks: 1 unknown" in text
    assert f"unknown: {problem}" in text
    assert merged(planned, "--then-rescue") == 2
    assert f"warning: {problem}: its task counts as lost" in capsys.readouterr().err
    assert RunDirectory(planned).round_numbers() == [1, 2]
    assert main(["predict", str(fasta), "-o", str(planned), "--force", "-q"]) == 1
    assert f"{problem}, so its task may work" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["work", "submit", "rescue", "merge"])
def test_a_folder_with_the_name_of_a_round_is_named(planned, command, capsys):
    other = planned / "run" / "rounds" / "0009.json"
    other.mkdir()
    assert main([command, str(planned), *(["--then-rescue"] if command == "merge" else [])]) == 1
    assert f"{other} is not a regular file. Remove it" in capsys.readouterr().err


def test_status_shows_tasks_and_lost_ones(planned, alive, capsys, called):
    text = called("status", planned, code=0).stdout
    assert "attempts of tasks: 1 working" in text
    assert "running" in text.splitlines()[0]
    RunDirectory(planned).round_claims(1).mkdir(parents=True)
    old = time.time() - 3600
    os.utime(alive.status_json, (old, old))
    text = called("status", planned, code=2).stdout
    assert "lost: 0000.00000000 on node-7, no heartbeat for 60.0 min" in text
    assert "virnucpro rescue" in text
    assert main(["status", str(planned), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["parts"][0]["state"] == "lost"


def test_status_knows_at_once_that_a_task_was_killed_on_this_machine(killed, called):
    (name,) = RunDirectory(killed).part_names()
    text = called("status", killed, code=2).stdout
    assert f"lost: {name} on {socket.gethostname()}, its process has ended" in text
    assert "incomplete" in text.splitlines()[0]
    assert f"virnucpro rescue {killed}" in text


def test_merge_during_work_says_so(planned, alive, called, monkeypatch):
    shown = called("merge", planned, code=2).stderr
    assert "1 tasks work, or were lost" in shown
    assert f"Tasks still work: run virnucpro merge {planned} after" in shown
    monkeypatch.setattr(settled_parts, "__defaults__", (lambda _: alive.status_json.touch(),))
    assert "waiting up to 90 s" in called("merge", planned, "--then-rescue", code=2).stderr
    assert RunDirectory(planned).round_numbers() == [1]


def let_time_pass(part, monkeypatch):
    """Make a wait of a merge end at once, with an older heartbeat of a part."""

    def later(seconds):
        moment = part.status_json.stat().st_mtime - seconds
        os.utime(part.status_json, (moment, moment))

    monkeypatch.setattr(settled_parts, "__defaults__", (later,))


def test_a_merge_rescues_after_a_killed_task_counts_as_lost(planned, alive, monkeypatch):
    let_time_pass(alive, monkeypatch)
    assert main(["merge", str(planned), "--then-rescue", "-q"]) == 2
    assert RunDirectory(planned).round_numbers() == [1, 2]


def test_a_merge_of_all_units_waits_for_no_killed_task(computed, alone, monkeypatch, capsys):
    alive = add_working_part(computed)

    def never(_seconds):
        raise AssertionError("the merge waits")

    monkeypatch.setattr(settled_parts, "__defaults__", (never,))
    alive.status_json.touch()
    assert main(["merge", str(computed), "--then-rescue", "--no-report"]) == 0
    assert not (computed / "report.html").exists()
    assert "tasks work" not in capsys.readouterr().err
    assert_equal_results(computed, alone)


def test_a_merge_rescues_a_damaged_segment_of_a_killed_task(computed, monkeypatch):
    alive, run = add_working_part(computed), RunDirectory(computed)
    _, path = next(iter(run.segments()))
    path.write_bytes(path.read_bytes()[:-1])
    alive.status_json.touch()
    let_time_pass(alive, monkeypatch)
    assert merged(computed, "--then-rescue") == 2
    assert run.round_numbers() == [1, 2]


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL])
def test_without_locks_the_error_is_a_sentence(planned, monkeypatch, called, code, alone):
    def refused(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "fcntl", refused)
    text = called("merge", planned, code=1).stderr
    assert f"{planned / 'run' / 'run.lock'}: its file system has no file locks" in text
    assert "--no-lock" in text
    assert "Traceback" not in text
    assert main(["merge", str(planned), "--no-lock"]) == 2
    assert main(["status", str(planned)]) == 2


def test_another_bundle_is_refused(planned, called):
    text = called("work", planned, "-b", "mini-deep", code=1).stderr
    assert "bundle_fingerprint was" in text
    assert "with -b." in text
    assert "--force" not in text
    assert not (planned / "run" / "parts").exists()


@pytest.mark.parametrize(("name", "code"), [("nosuch", 64), ("mini-deep", 1)])
def test_a_round_is_not_begun_with_another_bundle(planned, called, name, code):
    assert name in called("rescue", planned, "-b", name, code=code).stderr
    assert RunDirectory(planned).round_numbers() == [1]
    assert main(["rescue", str(planned), "-b", "mini", "-q"]) == 0
    assert RunDirectory(planned).round_numbers() == [1, 2]


def test_the_bundle_of_a_run_need_not_be_on_the_machine_of_its_merge(planned):
    run = RunDirectory(planned)
    write_round(run, read_latest_round(run).units, 4, "/of/the/nodes/mini")
    assert main(["rescue", str(planned), "-q"]) == 0
    assert merged(planned, "--then-rescue") == 2
    assert run.round_numbers() == [1, 2, 3, 4]
    assert read_latest_round(run).model == "/of/the/nodes/mini"


def test_a_task_on_a_full_disk_is_started_again(planned, monkeypatch, called):
    """The command work has no option --resume."""

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "symlink", full)
    shown = called("work", planned, "--devices", "cpu:1", code=1).stderr
    assert "free disk space, then rerun the command" in shown
    assert "--resume" not in shown


def test_a_run_of_one_machine_has_no_round(alone, called):
    assert "virnucpro rescue" in called("work", alone, code=1).stderr


def test_a_dry_run_writes_nothing(fasta, tmp_path, capsys, called):
    folder = tmp_path / "run"
    words = ["plan", str(fasta), "-o", str(folder), "--ranks", "1000", "--dry-run", "-q"]
    assert main([*words, "--throughput", "50"]) == 0
    output = capsys.readouterr()
    assert "\nhours\t" in output.out
    assert "units per worker" in output.err
    words[words.index("1000")] = "1"
    assert "units per worker" not in called(*words, code=0).stderr
    assert not folder.exists()
    assert list(Path(tmp_path).iterdir()) == []


def test_the_plan_of_an_empty_input_has_no_warning_about_workers(tmp_path, called):
    empty, folder = tmp_path / "empty.fa", tmp_path / "run"
    empty.touch()
    assert "workers" not in called("plan", empty, "-o", folder, "-q", code=0).stderr


@pytest.mark.parametrize("name", ["run/index/columns.bin", "run/run.json"])
@pytest.mark.parametrize("command", ["work", "merge", "status", "rescue"])
def test_a_damaged_file_is_to_be_restored(planned, name, command, called):
    """None of these commands has an option --force."""
    path = planned / name
    path.write_bytes(path.read_bytes()[:50])
    text = called(command, planned, code=1).stderr
    assert path.name in text
    assert "estore the file from a copy, or start the run anew in another folder" in text
    assert "--force" not in text
