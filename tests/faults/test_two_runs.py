"""Row 19: two runs in one folder."""

import subprocess
import sys

import pytest
from cases import slow
from doubles import open_run
from programs import PREDICT, VIRNUCPRO

from virnucpro.cli.main import main
from virnucpro.errors import InputError, RunLockedError
from virnucpro.run.execution import Execution
from virnucpro.run.job import Job
from virnucpro.run.options import PredictOptions
from virnucpro.run.run import run_lock
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec


@pytest.mark.parametrize("option", [["--force"], slow([]), slow(["--resume"])])
def test_a_second_run_in_the_folder_is_refused_and_changes_nothing(
    option, few_fasta, tmp_path, called, undisturbed, difference_of
):
    folder = tmp_path / "run"
    # The first run waits for the rest of its input and holds the lock.
    first = subprocess.Popen(
        [*VIRNUCPRO, *PREDICT, "-", "-o", folder, "-q", "--devices", "cpu:1"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with first:
        text = few_fasta.read_bytes()
        first.stdin.write(text[:3000])
        first.stdin.flush()
        while not (folder.is_dir() and list(folder.glob("run/index.*.tmp"))):
            assert first.poll() is None, first.stderr.read()
        second = called(*PREDICT, few_fasta, "-o", folder, *option, code=1)
        assert f"another process (pid {first.pid})" in second.stderr
        assert list(folder.glob("run/index.*.tmp"))
        first.stdin.write(text[3000:])
        first.stdin.close()
        assert first.wait() == 0
    assert difference_of(undisturbed, folder) == []


def test_the_lock_of_a_dead_process_does_not_block(copy_of_run, few_fasta):
    (copy_of_run / "run" / "run.lock").write_text("1\n")
    assert main(["predict", str(few_fasta), "-o", str(copy_of_run), "--resume", "-q"]) == 0


def frames_job(fasta):
    return Job(
        command="predict",
        inputs=(str(fasta),),
        index=IndexSpec("frames", Alphabet.NUCLEOTIDE, 500, "even", 11),
        encoders=(),
        model_name="none",
        model="none",
        options=PredictOptions(precision="fp32"),
    )


def before_creation_of(folder, action):
    """Call a function between a process's check of a path and its creation of the folder."""
    armed = True

    def hook(event, arguments):
        nonlocal armed
        if armed and event == "os.mkdir" and str(arguments[0]) == str(folder):
            armed = False
            action()

    sys.addaudithook(hook)


def test_a_folder_that_another_process_created_is_not_cleared(few_fasta, tmp_path):
    run = RunDirectory(tmp_path / "run")
    holding = run_lock(run)

    def overtake():
        run.machine.mkdir(parents=True)
        holding.__enter__()
        run.index.mkdir()

    before_creation_of(run.root, overtake)
    try:
        with (
            pytest.raises(RunLockedError),
            open_run(frames_job(few_fasta), Execution(run.root)),
        ):
            pass
        assert run.index.is_dir()
        assert run.lock.exists()
    finally:
        holding.__exit__(None, None, None)


def test_the_new_folder_of_a_run_that_cannot_start_is_removed(tmp_path):
    with (
        pytest.raises(InputError),
        open_run(frames_job(tmp_path / "absent.fa"), Execution(tmp_path / "run")),
    ):
        pass
    assert not (tmp_path / "run").exists()


def test_a_lock_file_without_a_name_is_not_a_lock(tmp_path):
    """The creator removes the folder after another process opened the lock and before it locks."""
    run = RunDirectory(tmp_path / "run")
    run.machine.mkdir(parents=True)
    armed = True

    def hook(event, arguments):
        nonlocal armed
        if armed and event == "fcntl.fcntl":
            armed = False
            run.lock.unlink()
            run.machine.rmdir()
            run.root.rmdir()

    sys.addaudithook(hook)
    with pytest.raises(RunLockedError, match="was removing this folder"), run_lock(run):
        pass
