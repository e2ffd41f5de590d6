"""Programs that tests run."""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import ModuleType

from virnucpro.joined import members, open_file
from virnucpro.run_dir import RunDirectory

SCRIPTS = Path(__file__).parents[2] / "scripts"
VIRNUCPRO = [sys.executable, "-m", "virnucpro"]
PREDICT = ["predict", "--embeddings=fp16"]
"""A run that writes every file that comparisons of runs read."""


def run_captured(*words, code=None, **options) -> subprocess.CompletedProcess[str]:
    """Run a program; return its exit code, standard output and standard error.

    It fails if the exit code is not `code`, if one is given.
    """
    defaults = {"capture_output": True, "text": True, "timeout": 100}
    done = subprocess.run([*map(str, words)], check=False, **defaults | options)
    assert code in (None, done.returncode), done.stderr
    return done


_WITHOUT_ROOT = """
import ctypes, os, sys
if os.geteuid() == 0 and sys.argv[1] != "again":
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH: modes hold for root, too
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
    os.execv(sys.executable, [*sys.orig_argv[:3], "again", *sys.argv[2:]])
from virnucpro.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


def run_without_root(*words, code=None, **variables) -> subprocess.CompletedProcess[str]:
    """Run a command line, as `run_captured`, without root's right to read every file."""
    child = [sys.executable, "-c", _WITHOUT_ROOT, "first"]
    return run_captured(*child, *words, code=code, env=os.environ | variables)


def started(*words, **options) -> subprocess.Popen[str]:
    """Start a program that leads a session; its standard error can be read."""
    defaults = {"stderr": subprocess.PIPE, "text": True, "start_new_session": True}
    return subprocess.Popen([*map(str, words)], **defaults | options)


def with_fault(fired, **plan) -> list[str]:
    """Return the first words of a command line whose ranks fail; see tests/data/faulty.py."""
    words = [sys.executable, Path(__file__).with_name("faulty.py")]
    return [*map(str, words), json.dumps({"fired": str(fired), **plan})]


def stuck_after(number, fired) -> list[str]:
    """Return the first words of a command line whose ranks never end after `number` commits."""
    return with_fault(fired, point="commit", number=number, how="sleep")


def in_a_fork(function) -> int:
    """Call a function in a fork of this process; return the exit code, 1 after an exception."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks of a process with threads
        pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            function()
            os._exit(0)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def wait_until(ready, process=None, seconds=60.0) -> None:
    """Wait until a function returns true; the process, if there is one, must run until then."""
    deadline = time.monotonic() + seconds
    while not ready():
        if process is not None:
            assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def load_script(name) -> ModuleType:
    """Import a file of scripts/ as a module."""
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def segments_in(folder):
    """Return the content of each segment of a run, by its name."""
    found = {}
    for _, path in RunDirectory(folder).segments():
        with open_file(path) as source:
            found[path.name] = source.read()
    return found


def take_apart(folder):
    """Give each segment of a finished run a file of its own, as before its end; return the run."""
    run = RunDirectory(folder)
    for path in members(run.segments_file):
        target = run.segment(0, int(path.stem.removeprefix("unit-")))
        target.parent.mkdir(parents=True, exist_ok=True)
        with open_file(path) as source:
            target.write_bytes(source.read())
    run.segments_file.unlink()
    return run
