"""Row 51: the working folder has Python files with the names of standard modules."""

import json
import sys
from pathlib import Path

import pytest
from programs import PREDICT, run_captured

COMMAND = Path(sys.executable).with_name("virnucpro")
AS_MODULE = [sys.executable, "-m", "virnucpro"]

BESIDE = """
import os
from virnucpro.dispatch import BaseWorker

class Doubles(BaseWorker):
    def setup(self, gpu_id, seed):
        import helper
        self.factor = helper.FACTOR

    def process(self, data):
        return {"doubled": self.factor * len(data), "safe": os.environ.get("PYTHONSAFEPATH")}
"""
SCRIPT = """
from my_workers import Doubles
from virnucpro.dispatch import Dispatcher

if __name__ == "__main__":
    print(list(Dispatcher(Doubles, [0, 1], devices=["cpu", "cpu"]).map(["a", "bc"])))
"""


@pytest.fixture
def in_folder(tmp_path):
    """Return a function that runs a program in a folder with a module of each standard name.

    Each module notes that it was imported, and raises an error; no module may be imported.
    """
    folder, note = tmp_path / "folder", tmp_path / "imported"
    folder.mkdir()

    def run(*words, without=()):
        for name in sys.stdlib_module_names - set(without):
            text = f"open({str(note)!r}, 'a').write({name!r} + ' '); raise ImportError({name!r})"
            (folder / f"{name}.py").write_text(text)
        done = run_captured(*words, cwd=folder)
        assert not note.exists(), note.read_text()
        return done

    return run


@pytest.mark.parametrize("name", ["predict", "launch", "embed"])
def test_a_folder_with_a_signal_py_of_the_user(
    name, in_folder, few_fasta, tmp_path, undisturbed, difference_of
):
    out = tmp_path / "out"
    words = {
        "predict": [*PREDICT, few_fasta],
        "launch": ["launch", "--input-dir", few_fasta.parent],
        "embed": ["embed", few_fasta, "-e", "mini/nucleotide"],
    }[name]
    done = in_folder(COMMAND, *words, "-o", out, "--devices", "cpu:2", "-q")
    assert done.returncode == 0, done.stderr
    if name == "predict":
        assert difference_of(undisturbed, out) == []


def test_python_m_in_a_folder_with_a_signal_py_of_the_user(in_folder, few_fasta, tmp_path):
    """Except for the modules that Python itself imports before the program."""
    (tmp_path / "early.py").write_text("import sys; print(*sys.modules)")
    early = run_captured(sys.executable, "-m", "early", cwd=tmp_path).stdout.split()
    words = ["predict", few_fasta, "-o", tmp_path / "out", "--devices", "cpu:1", "-q"]
    done = in_folder(*AS_MODULE, *words, without=early)
    assert done.returncode == 0, done.stderr


def test_a_worker_class_beside_the_script_of_the_user(in_folder, tmp_path):
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    files = {"my_workers.py": BESIDE, "helper.py": "FACTOR = 2", "script.py": SCRIPT}
    for name, text in files.items():
        (scripts / name).write_text(text)
    done = in_folder(sys.executable, scripts / "script.py")
    answers = [{"doubled": 2, "safe": None}, {"doubled": 4, "safe": None}]
    assert (done.stdout, done.stderr) == (f"{answers}\n", "")


@pytest.mark.parametrize("program", [[COMMAND], AS_MODULE], ids=["virnucpro", "python -m"])
def test_a_worker_module_in_the_working_folder_of_a_launch(program, tmp_path):
    (tmp_path / "my_workers.py").write_text(BESIDE)
    (tmp_path / "helper.py").write_text("FACTOR = 2")
    (tmp_path / "signal.py").write_text("raise ImportError('of the user')")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.txt").touch()
    words = ["--input-dir", "in", "-o", "out", "--devices", "cpu:1", "-q"]
    done = run_captured(*program, "launch", *words, "--worker", "my_workers:Doubles", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (file,) = json.loads((tmp_path / "out" / "launch.json").read_text())["files"]
    assert file["result"]["doubled"] == 2 * len(str(tmp_path / "in" / "one.txt"))
