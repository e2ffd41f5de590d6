"""Run the program and kill it at a call of a function.

Usage: killed.py MODULE FUNCTION CALL ARGUMENT... (CALL: number of the call, from 1)
"""

import os
import signal
import sys
from importlib import import_module

from virnucpro.cli.main import main


def kill_at(module, name, calls):
    function = getattr(module, name)
    left = calls

    def call_or_die(*arguments, **keywords):
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **keywords)

    setattr(module, name, call_or_die)


# Ranks import this file too, and are not killed.
if __name__ == "__main__":
    kill_at(import_module(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    sys.exit(main(sys.argv[4:]))
