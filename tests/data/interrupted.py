"""Run the program and send it a signal when it opens or renames a chosen file.

Usage: interrupted.py SIGNAL EVENT PART OCCURRENCE ARGUMENT... (EVENT: an audit event of Python)
"""

import os
import signal
import sys

from virnucpro.cli.main import main

ARGUMENTS = sys.argv[1:]


def watch(number, event, part, occurrence):
    left = occurrence

    def hook(name, arguments):
        nonlocal left
        if name == event and part in str(arguments[0]):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), number)

    sys.addaudithook(hook)


# Ranks import this file too, and get no signal.
if __name__ == "__main__":
    watch(signal.Signals[ARGUMENTS[0]], ARGUMENTS[1], ARGUMENTS[2], int(ARGUMENTS[3]))
    sys.exit(main(ARGUMENTS[4:]))
