"""Exit codes of the command line."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit code of a command.

    After a signal, the exit code is 128 + the signal's number: 130 for SIGINT, 143 for SIGTERM.
    """

    OK = 0
    FAILED = 1
    PARTIAL = 2
    USAGE = 64
