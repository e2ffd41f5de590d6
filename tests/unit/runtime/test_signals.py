"""One request to stop, however often a scheduler repeats it at once, and the second one."""

import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import os, signal, sys, time
from virnucpro.runtime.signals import ECHO_S, StopRequested, stop_on_signals

with stop_on_signals():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except StopRequested:
        os.kill(os.getpid(), signal.SIGTERM)
        print("an echo", flush=True)
        if "later" in sys.argv:
            time.sleep(ECHO_S * 1.5)
        os.kill(os.getpid(), signal.Signals[sys.argv[1]])
    print("not ended", flush=True)
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["SIGTERM"], 0),
        (["SIGTERM", "later"], 128 + signal.SIGTERM),
        (["SIGINT"], 128 + signal.SIGINT),
    ],
)
def test_the_same_signal_at_once_is_the_same_request(arguments, code):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert done.stdout.split("\n")[0] == "an echo"
    assert ("not ended" in done.stdout) == (code == 0)


IN_ONE_PIECE = """
import os, signal, subprocess, sys
from virnucpro.runtime.signals import StopRequested, stop_on_signals

sys.path.insert(0, sys.argv[1])
try:
    with stop_on_signals():
        __import__("asks_to_stop")
        for _ in range(10_000_000):
            pass
        print("not stopped")
except StopRequested as stop:
    import asks_to_stop
    print("whole" if asks_to_stop.DONE else "in pieces", stop)
"""

ASKS = """
import os, signal, weakref
class Thing: pass
def asks(_):
    os.kill(os.getpid(), signal.SIGTERM)
thing = Thing()
gone = weakref.ref(thing, asks)
del thing
DONE = False
total = sum(range(100_000))
DONE = True
"""


def run(program, *arguments):
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )


def test_an_import_is_not_broken_off_and_a_stop_within_it_not_lost(tmp_path):
    (tmp_path / "asks_to_stop.py").write_text(ASKS)
    done = run(IN_ONE_PIECE, str(tmp_path))
    assert (done.stdout, done.stderr, done.returncode) == ("whole SIGTERM\n", "", 0)


def test_a_program_that_is_itself_an_import_can_be_stopped(tmp_path):
    (tmp_path / "program.py").write_text(
        "import os, signal\n"
        "from virnucpro.runtime.signals import StopRequested, stop_on_signals\n"
        "try:\n"
        "    with stop_on_signals():\n"
        "        os.kill(os.getpid(), signal.SIGHUP)\n"
        "        print('not stopped')\n"
        "except StopRequested as stop:\n"
        "    print(stop)\n"
    )
    done = run(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import program")
    assert (done.stdout, done.stderr) == ("SIGHUP\n", "")


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


def test_a_stop_that_vanished_is_raised_where_work_goes_on():
    done = run(LOST)
    assert (done.stdout, done.returncode) == ("lost\nSIGTERM\n", 0)
    assert "Exception ignored" in done.stderr


AT_THE_END = """
import signal, sys
from virnucpro.runtime.signals import StopRequested, raise_if_asked_to_stop, stop_on_signals

sys.path.insert(0, sys.argv[1])
try:
    with stop_on_signals():
        with stop_on_signals():
            __import__("asks_to_stop")
        print("the inner one said nothing")
except StopRequested as stop:
    print(stop, signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
raise_if_asked_to_stop()
"""


def test_a_stop_that_is_held_back_to_the_very_end_is_raised_there(tmp_path):
    (tmp_path / "asks_to_stop.py").write_text(ASKS)
    done = run(AT_THE_END, str(tmp_path))
    assert (done.stdout, done.stderr, done.returncode) == ("SIGTERM True\n", "", 0)


HANGS = """
import sys
from virnucpro.runtime import signals

signals.PATIENCE_S = 0.2
sys.path.insert(0, sys.argv[1])
try:
    with signals.stop_on_signals():
        __import__("hangs")
except signals.StopRequested as stop:
    print(stop)
"""


def test_an_import_that_hangs_is_given_up(tmp_path):
    asks = "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(60)\n"
    (tmp_path / "hangs.py").write_text(asks)
    began = time.monotonic()
    assert run(HANGS, str(tmp_path)).stdout == "SIGTERM\n"
    assert time.monotonic() - began < 30


STARTS = """
import os, signal
from virnucpro.runtime.signals import StopRequested, stop_on_signals

body = compile("def start(): os.kill(os.getpid(), signal.SIGHUP); done.append(1)", "start", "exec")
done = []
names = {"__name__": "multiprocessing.popen_spawn_posix", "os": os, "signal": signal, "done": done}
exec(body, names)
try:
    with stop_on_signals():
        names["start"]()
        while True:
            pass
except StopRequested as stop:
    print(stop, done)
"""


def test_a_process_is_started_whole():
    assert run(STARTS).stdout == "SIGHUP [1]\n"


REPORTS = """
import os, signal, sys
from pathlib import Path
from virnucpro.cli.progress import CommandReporter
from virnucpro.runtime.signals import StopRequested, stop_on_signals

class Asks:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

reporter = CommandReporter(Path("run"), None, quiet=True)
try:
    with stop_on_signals():
        Asks()
        reporter.stage("working") if sys.argv[1] == "stage" else reporter.ranks({})
        print("not stopped")
except StopRequested as stop:
    print(stop)
"""


@pytest.mark.parametrize("what", ["stage", "ranks"])
def test_a_run_hears_of_a_stop_that_vanished_when_it_reports(what):
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


def test_ctrl_c_before_the_command_line_is_imported_says_nothing():
    done = run(EARLY)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


ALARM = """
import signal, sys, time
from virnucpro.runtime.signals import StopRequested, stop_on_signals

rung = []
signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.4, 0.1)
sys.path.insert(0, sys.argv[1])
try:
    with stop_on_signals():
        __import__("asks_to_stop")
        while True:
            pass
except StopRequested as stop:
    print(stop)
deadline = time.monotonic() + 20
while len(rung) < 3 and time.monotonic() < deadline:
    time.sleep(0.01)
print(len(rung) >= 3)
"""


def test_the_alarm_is_given_back_with_its_timer(tmp_path):
    (tmp_path / "asks_to_stop.py").write_text(ASKS)
    assert run(ALARM, str(tmp_path)).stdout == "SIGTERM\nTrue\n"
