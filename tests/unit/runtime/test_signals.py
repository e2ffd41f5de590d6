"""One request to stop, however often a scheduler repeats it at once, and the second one."""

import signal
import subprocess
import sys

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


ALARM = """
import os, signal, sys
from virnucpro.runtime.signals import StopRequested, stop_on_signals

mine = lambda *_: None
signal.signal(signal.SIGALRM, mine)
sys.path.insert(0, sys.argv[1])
try:
    with stop_on_signals():
        __import__("asks_to_stop")
        for _ in range(10_000_000):
            pass
except StopRequested:
    print(signal.getsignal(signal.SIGALRM) is mine, signal.getitimer(signal.ITIMER_REAL))
"""


def test_the_alarm_is_given_back(tmp_path):
    (tmp_path / "asks_to_stop.py").write_text(ASKS)
    assert run(ALARM, str(tmp_path)).stdout == "True (0.0, 0.0)\n"
