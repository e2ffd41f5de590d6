"""One run that several tasks compute: tables equal to those of one process, whatever happens."""

import errno
import fcntl
import os
import signal
import sys

import h5py
import pytest
from cases import TWO_THREADS, slow
from programs import VIRNUCPRO, started, stuck_after, wait_until
from samples import copy_of, random_records

from virnucpro.cli.main import main
from virnucpro.run import creation
from virnucpro.run.manifest import read_manifest
from virnucpro.run.run import Run
from virnucpro.run_dir import RunDirectory

pytestmark = pytest.mark.usefixtures("one_process")
TABLES = ("predictions.tsv", "tracks/windows.tsv")
OUTPUTS = ["-q", "--embeddings=fp16"]


@pytest.fixture(scope="module")
def fasta(tmp_path_factory):
    """Some 400 windows of random bases, in some 13 units if two tasks compute them."""
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
def computed_once(fasta, tmp_path_factory):
    """A run of which two tasks have computed every unit. Do not write to it."""
    folder = tmp_path_factory.mktemp("computed") / "run"
    assert [task_here(fasta, folder, task) for task in ("0/2", "1/2")] == [0, 0]
    return folder


computed = copy_of("computed_once")


@pytest.fixture(scope="module")
def killed_once(fasta, tmp_path_factory):
    """A run of which the first of two tasks was killed after its first unit. Do not write to it."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    process = stuck(fasta, folder, "0/2")
    process.kill()
    ended(process)
    assert len(RunDirectory(folder).segments()) == 1
    return folder


killed = copy_of("killed_once")


def words_of(fasta, folder, task, *options):
    words = ("predict", fasta, "-o", folder, "--task", task, "--devices", "cpu:1")
    return [*map(str, (*words, *OUTPUTS, *options))]


def task_of(fasta, folder, task, *options, program=VIRNUCPRO):
    """Start a task in a process of its own."""
    command = [*program, *words_of(fasta, folder, task, *options)]
    return started(*command, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})


def task_here(fasta, folder, task, *options):
    """Compute a task in this process; return its exit code."""
    return main(words_of(fasta, folder, task, *options))


def ended(*processes):
    """Wait for processes; return exit codes and standard errors."""
    texts = [process.communicate(timeout=100)[1] for process in processes]
    return [process.returncode for process in processes], texts


def stuck(fasta, folder, task, number=1):
    """Start a task, and return it when it has committed `number` units; it commits no more."""
    program = stuck_after(number, folder.with_name("fired"))
    process = task_of(fasta, folder, task, program=program)
    wait_until(lambda: len(RunDirectory(folder).segments()) >= number, process)
    return process


def aggregated(folder, *options):
    return main(["aggregate", str(folder), "-q", *options])


def assert_equal_results(folder, alone):
    for name in TABLES:
        assert (folder / name).read_bytes() == (alone / name).read_bytes(), name
    with h5py.File(folder / "embeddings.h5") as one, h5py.File(alone / "embeddings.h5") as other:
        assert (one["embeddings"][:] == other["embeddings"][:]).all()
    assert main(["verify", str(folder)]) == 0


def assert_equal_tables(folder, alone):
    assert aggregated(folder) == 0
    assert_equal_results(folder, alone)


@pytest.mark.parametrize("tasks", [slow(1), 2, slow(7)])
def test_any_number_of_tasks_gives_the_tables_of_one_process(fasta, tmp_path, alone, tasks):
    """They begin at once: one of them makes the run, and leaves no folder."""
    folder = tmp_path / "run"
    codes, texts = ended(*(task_of(fasta, folder, f"{k}/{tasks}") for k in range(tasks)))
    assert codes == [0] * tasks, texts
    assert [path.name for path in folder.iterdir()] == ["run"]
    assert not list(folder.rglob("*.tmp"))
    assert_equal_tables(folder, alone)
    assert not (folder / "run" / "run.lock").exists()


def test_a_task_says_what_is_done_and_what_is_next(fasta, computed, called):
    RunDirectory(computed).segments()[0][1].unlink()
    n_units = Run.open(RunDirectory(computed)).n_units
    words = [word for word in words_of(fasta, computed, "1/2") if word != "-q"]
    text = called(*words, code=0).stderr
    done = f"{n_units - 1} of {n_units} units of the run done"
    assert f"task 1/2: 0 units computed; {done}" in text
    assert f"After the last task, to write the tables: virnucpro aggregate {computed}" in text
    status = called("status", computed, code=2).stdout
    assert f"units {n_units - 1}/{n_units} in 0 launches, 2 attempts of tasks" in status
    words[words.index("1/2")] = "0/2"
    text = called(*words, code=0).stderr
    assert f"task 0/2: 1 units computed; {n_units} of {n_units} units of the run done" in text
    assert f"To write the tables: virnucpro aggregate {computed}" in text


def test_another_number_of_tasks_computes_what_is_missing(fasta, killed, alone):
    """With two workers a task; the number of a unit decides, so that no unit is computed twice."""
    before = {path: path.stat().st_mtime_ns for _, path in RunDirectory(killed).segments()}
    torn = next(iter(before)).with_name("unit-000001.h5.17-0123abcd.tmp")
    torn.write_bytes(b"of a killed worker")
    building = killed / "run.17-0123abcd.tmp"
    building.mkdir()
    for task in ("0/3", "1/3", "2/3"):
        assert task_here(fasta, killed, task, "--devices", "cpu:2", *TWO_THREADS) == 0
    segments = RunDirectory(killed).segments()
    assert [unit for unit, _ in segments] == [*range(Run.open(RunDirectory(killed)).n_units)]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert_equal_tables(killed, alone)
    assert not torn.exists()
    assert not building.exists()


def test_a_damaged_segment_is_computed_again_by_its_task(fasta, computed, alone, capsys):
    unit, damaged = RunDirectory(computed).segments()[-1]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert aggregated(computed) == 2
    assert "--resume recomputes the segment" in capsys.readouterr().err
    assert task_here(fasta, computed, f"{(unit + 1) % 2}/2") == 0
    assert aggregated(computed) == 2
    assert task_here(fasta, computed, f"{unit % 2}/2") == 0
    assert aggregated(computed) == 0
    for name in TABLES:
        assert (computed / name).read_bytes() == (alone / name).read_bytes(), name
    assert main(["verify", str(computed), "--repair"]) == 0
    assert not damaged.exists()


@pytest.mark.parametrize("stop", [signal.SIGTERM, slow(signal.SIGUSR1)])
def test_a_stopped_task_keeps_its_finished_units(fasta, tmp_path, alone, stop):
    folder = tmp_path / "run"
    stopped = stuck(fasta, folder, "0/1")
    stopped.send_signal(stop)
    codes, texts = ended(stopped)
    assert codes == [143], texts
    assert "Rerun the same command, here or elsewhere" in texts[0]
    assert not list(folder.rglob("*.tmp"))
    assert aggregated(folder) == 2
    assert (folder / "missing.tsv").exists()
    assert task_here(fasta, folder, "0/1") == 0
    assert_equal_tables(folder, alone)


@pytest.mark.slow
def test_the_same_task_twice_at_once(fasta, tmp_path, alone):
    folder = tmp_path / "run"
    codes, texts = ended(*(task_of(fasta, folder, "0/1") for _ in range(2)))
    assert codes == [0, 0], texts
    assert len(RunDirectory(folder).attempts()) == 2
    assert_equal_tables(folder, alone)


def test_tables_are_written_while_tasks_work(fasta, tmp_path, alone, called):
    """Whatever deletes segments is refused, and the task goes on afterwards."""
    folder = tmp_path / "run"
    working = stuck(fasta, folder, "0/2")
    (attempt,) = RunDirectory(folder).attempts()
    unfinished = attempt.shard(0) / "unit-000002.h5.17-0123abcd.tmp"
    unfinished.write_bytes(b"of a working task")
    assert task_here(fasta, folder, "1/2") == 0
    assert "running" in called("status", folder, code=0).stdout.splitlines()[0]
    assert "partial: " in called("aggregate", folder, code=2).stderr
    assert (folder / "missing.tsv").exists()
    lines = (folder / "predictions.tsv").read_text().splitlines()
    assert len(lines) == len((alone / "predictions.tsv").read_text().splitlines())
    assert unfinished.exists()
    command = ["predict", fasta, "-o", folder, *OUTPUTS]
    for words in ((*command, "--force"), (*command, "--resume"), ("verify", folder, "--repair")):
        assert "another process" in called(*words, code=1).stderr
    working.kill()
    ended(working)
    assert task_here(fasta, folder, "0/2") == 0
    assert_equal_tables(folder, alone)
    assert not unfinished.exists()


def test_one_process_can_finish_a_run_of_tasks(fasta, killed, alone):
    assert main(["predict", str(fasta), "-o", str(killed), "--resume", *OUTPUTS]) == 0
    assert_equal_results(killed, alone)
    assert len(RunDirectory(killed).segments()) > 1


def test_run_json_has_the_launches_of_tasks(computed, capsys):
    assert read_manifest(RunDirectory(computed)).launches == ()
    for _ in range(2):
        assert aggregated(computed) == 0
        launches = read_manifest(RunDirectory(computed)).launches
        assert [launch.attempt[:5] for launch in launches] == ["0000.", "0001."]
        assert [launch.ranks["0"]["state"] for launch in launches] == ["succeeded"] * 2
    (first, _) = RunDirectory(computed).attempts()
    first.launch_json.write_text("{}")
    assert aggregated(computed) == 0
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--window", "300"], "window was 500 and is now 300"),
        (["--embeddings", "none"], "embeddings was fp16 and is now none"),
        (["--fdr", "0.1"], "a task cannot change the calls of the run"),
        (["--extract", "viral,ambiguous"], "a task cannot change the extracts of the run"),
    ],
)
def test_other_parameters_and_outputs_are_refused(fasta, computed, options, message, called):
    before = (computed / "run" / "run.json").read_bytes()
    assert message in called(*words_of(fasta, computed, "0/2", *options), code=1).stderr
    assert (computed / "run" / "run.json").read_bytes() == before


def test_other_inputs_are_refused(computed, tmp_path, called):
    other = tmp_path / "other.fa"
    other.write_text(random_records(30, seed=4, letters="ACGT", least=100, most=900))
    text = called(*words_of(other, computed, "0/2"), code=1).stderr
    assert "differs from the input of the run" in text


def test_a_slower_task_takes_the_run_of_a_faster_one(fasta, tmp_path, monkeypatch, alone):
    folder, slower = tmp_path / "run", creation.created

    def after_the_other(*arguments):
        monkeypatch.setattr(creation, "created", slower)
        assert task_here(fasta, folder, "1/2") == 0
        return slower(*arguments)

    monkeypatch.setattr(creation, "created", after_the_other)
    assert task_here(fasta, folder, "0/2") == 0
    assert [path.name for path in folder.iterdir()] == ["run"]
    assert_equal_tables(folder, alone)


def test_the_rest_of_another_process_is_named(fasta, tmp_path, monkeypatch, called):
    monkeypatch.setattr(creation, "_CACHED_S", 0.1)
    folder = tmp_path / "run"
    (folder / "run").mkdir(parents=True)
    (folder / "run" / "run.lock").touch()
    text = called(*words_of(fasta, folder, "0/2"), code=1).stderr
    assert f"{folder / 'run'} has no run.json" in text
    assert "Delete this folder" in text
    assert [path.name for path in folder.rglob("*")] == ["run", "run.lock"]


def test_a_run_that_cannot_begin_leaves_nothing(tmp_path, called):
    assert "No such file" in called(*words_of("absent.fa", tmp_path / "run", "0/2"), code=1).stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--force", "--task", "0/2"], "--force would delete the work of other tasks"),
        (["--task", "2/2"], "invalid task '2/2'"),
        (["-", "--task", "0/2"], "standard input cannot be one"),
        (["/dev/stdin", "--task", "0/2"], "standard input cannot be one"),
    ],
)
def test_what_is_refused(fasta, tmp_path, words, message, called):
    inputs = [] if "-" in words else [fasta]
    folder = tmp_path / "run"
    assert message in called("predict", *inputs, "-o", folder, *words, code=64).stderr
    assert not folder.exists()


def test_attempts_behind_a_link_are_refused(fasta, computed, tmp_path, called):
    tasks = computed / "run" / "tasks"
    tasks.rename(tmp_path / "elsewhere")
    tasks.symlink_to(tmp_path / "elsewhere")
    before = sorted((tmp_path / "elsewhere").iterdir())
    for words in (words_of(fasta, computed, "0/2"), ["aggregate", computed]):
        assert f"{tasks} is a symbolic link" in called(*words, code=1).stderr
    assert sorted((tmp_path / "elsewhere").iterdir()) == before


@pytest.mark.slow
def test_vectors_of_whole_sequences_by_several_tasks(fasta, tmp_path):
    folder, single = tmp_path / "run", tmp_path / "single"
    command = ["embed", str(fasta), "-e", "mini/nucleotide", "--devices", "cpu:1", "-q", "-o"]
    tasks = ("0/2", "1/2")
    assert [main([*command, str(folder), "--task", task]) for task in tasks] == [0, 0]
    assert aggregated(folder) == 0
    assert main([*command, str(single)]) == 0
    assert (folder / "sequences.tsv").read_bytes() == (single / "sequences.tsv").read_bytes()
    with h5py.File(folder / "embeddings.h5") as one, h5py.File(single / "embeddings.h5") as other:
        assert (one["embeddings"][:] == other["embeddings"][:]).all()


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL])
def test_tasks_need_no_locks(fasta, killed, monkeypatch, called, code, alone):
    def refused(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "fcntl", refused)
    assert [task_here(fasta, killed, task) for task in ("0/2", "1/2")] == [0, 0]
    text = called("aggregate", killed, code=1).stderr
    assert f"{killed / 'run' / 'run.lock'}: its file system has no file locks" in text
    assert "--no-lock" in text
    assert main(["aggregate", str(killed), "--no-lock", "-q"]) == 0
    assert_equal_results(killed, alone)


def test_a_task_whose_unit_cannot_be_computed_is_partial(fasta, tmp_path, called, monkeypatch):
    """The other units are kept, and the rerun computes the rest."""
    from virnucpro.store.writer import ShardWriter

    commit = ShardWriter.commit

    def full(writer, segment):
        if segment.unit == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        commit(writer, segment)

    monkeypatch.setattr(ShardWriter, "commit", full)
    folder = tmp_path / "run"
    shown = called(*words_of(fasta, folder, "0/2"), code=1).stderr
    assert "free disk space, then rerun the command" in shown
    monkeypatch.setattr(ShardWriter, "commit", commit)
    assert task_here(fasta, folder, "0/2") == 0
    run = Run.open(RunDirectory(folder))
    assert [unit for unit, _ in run.paths.segments()] == [*range(0, run.n_units, 2)]


@pytest.mark.parametrize("name", ["run/index/columns.bin", "run/run.json"])
@pytest.mark.parametrize("command", ["predict", "aggregate", "status"])
def test_a_damaged_file_is_to_be_restored(fasta, computed, name, command, called):
    path = computed / name
    path.write_bytes(path.read_bytes()[:50])
    words = words_of(fasta, computed, "0/2") if command == "predict" else [command, computed]
    text = called(*words, code=1).stderr
    assert path.name in text
    assert "estore th" in text
