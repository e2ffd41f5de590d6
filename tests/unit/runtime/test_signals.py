"""Requests to stop: repeated by a scheduler, lost, and during imports and starts."""

import signal
import sys

import pytest
from programs import run_captured


def run(program, *arguments):
    return run_captured(sys.executable, "-c", program, *arguments)


PROGRAM = """
import os, signal, sys, time
from virnucpro.runtime.signals import ECHO_S, StopRequested, stop_on_signals

first, second = (signal.Signals[name] for name in sys.argv[1:3])
with stop_on_signals():
    try:
        os.kill(os.getpid(), first)
    except StopRequested:
        os.kill(os.getpid(), first)
        print("an echo", flush=True)
        if "later" in sys.argv:
            time.sleep(ECHO_S * 1.5)
        os.kill(os.getpid(), second)
    print("not ended", flush=True)
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["SIGTERM", "SIGTERM"], 0),
        (["SIGTERM", "SIGTERM", "later"], 128 + signal.SIGTERM),
        (["SIGTERM", "SIGINT"], 128 + signal.SIGINT),
        (["SIGXCPU", "SIGXCPU", "later"], 0),  # the kernel repeats it every second
        (["SIGUSR2", "SIGTERM"], 128 + signal.SIGTERM),
    ],
)
def test_a_repeated_signal_is_the_same_request(arguments, code):
    done = run(PROGRAM, *arguments)
    assert done.returncode == code, done.stderr
    assert done.stdout.split("\n")[0] == "an echo"
    assert ("not ended" in done.stdout) == (code == 0)


INTERRUPTED_IMPORT = """
import sys
from virnucpro.runtime.signals import stop_on_signals

sys.path.insert(0, sys.argv[1])
with stop_on_signals():
    import interrupted
"""


def test_a_stop_during_an_import_ends_the_process(tmp_path):
    (tmp_path / "interrupted.py").write_text(
        "import os, signal\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "except BaseException:\n"
        "    raise ImportError('from C code')\n"
    )
    done = run(INTERRUPTED_IMPORT, str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGTERM, "", "")


WARNED_AT_THE_START = """
import os, signal
from virnucpro.runtime.signals import exit_on_warnings

exit_on_warnings()
os.kill(os.getpid(), signal.SIGUSR2)
"""


def test_a_warning_at_the_start_of_the_program_is_named():
    done = run(WARNED_AT_THE_START)
    line = "[virnucpro] stopped (SIGUSR2). Rerun the command.\n"
    assert (done.returncode, done.stdout, done.stderr) == (143, "", line)


ERROR_AFTER_STOP = """
import os, signal
from virnucpro.runtime.signals import StopRequested, stop_on_signals

try:
    with stop_on_signals():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except BaseException:
            raise OSError("a write was cut short")
except StopRequested as stop:
    print(stop, repr(stop.__cause__))
"""


START = """
import os, signal
from virnucpro.runtime.process import interrupts_held
from virnucpro.runtime.signals import STOPPING, StopRequested, stop_on_signals

for signum in STOPPING:
    started = []
    try:
        with stop_on_signals():
            with interrupts_held():
                os.kill(os.getpid(), signum)
                started.append(1)
            print("not stopped")
    except StopRequested as stop:
        print(stop, started)
"""


TRACKER = """
import signal
from multiprocessing import resource_tracker
from pathlib import Path
from virnucpro.runtime.process import interrupts_held

with interrupts_held():
    pass
status = Path(f"/proc/{resource_tracker._resource_tracker._pid}/status").read_text()
blocked = int(status.partition("SigBlk:")[2].split()[0], 16)
here = signal.pthread_sigmask(signal.SIG_BLOCK, ())
wanted = signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGALRM
print([one.name for one in wanted if not blocked >> one - 1 & 1], here)
"""


def test_the_tracker_of_multiprocessing_outlives_a_closed_terminal():
    """Its end would print a warning of Python, at the stop of a launch."""
    assert run(TRACKER).stdout == "[] set()\n"


@pytest.mark.parametrize(
    ("program", "printed"),
    [
        (ERROR_AFTER_STOP, "SIGTERM OSError('a write was cut short')\n"),
        (START, "SIGINT [1]\nSIGTERM [1]\nSIGHUP [1]\n"),
    ],
    ids=["an error after it", "during the start of a process"],
)
def test_a_stop_is_raised_as_such(program, printed):
    assert run(program).stdout == printed


LOST = """
import os, signal
from virnucpro.runtime.signals import StopRequested, raise_if_asked_to_stop, stop_on_signals

class Asks:
    def __del__(self):  # what is raised here vanishes
        os.kill(os.getpid(), signal.SIGTERM)

try:
    with stop_on_signals():
        raise_if_asked_to_stop()
        Asks()
        print("lost")
        raise_if_asked_to_stop()
        print("not stopped")
except StopRequested as stop:
    print(stop)
raise_if_asked_to_stop()
"""


def test_a_lost_stop_is_raised_again_in_long_work():
    done = run(LOST)
    assert (done.stdout, done.returncode) == ("lost\nSIGTERM\n", 0)
    assert "Exception ignored" in done.stderr


REPORTS = """
import os, signal, sys
from pathlib import Path
from virnucpro.run.reporter import CommandReporter
from virnucpro.runtime.signals import StopRequested, stop_on_signals

class Asks:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

reporter = CommandReporter(None, quiet=True)
try:
    with stop_on_signals():
        Asks()
        reporter.stage("working") if sys.argv[1] == "stage" else reporter.ranks({})
        print("not stopped")
except StopRequested as stop:
    print(stop)
"""


@pytest.mark.parametrize("what", ["stage", "ranks"])
def test_a_progress_report_raises_a_lost_stop_again(what):
    assert run(REPORTS, what).stdout == "SIGTERM\n"


EARLY = """
import sys
from virnucpro.__main__ import run

class CtrlC:
    def find_spec(self, name, *_):
        if name == "virnucpro.cli.main":
            raise KeyboardInterrupt

sys.meta_path.insert(0, CtrlC())
run()
"""


def test_ctrl_c_during_the_import_of_the_command_line_prints_nothing():
    done = run(EARLY)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
