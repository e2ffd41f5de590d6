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
