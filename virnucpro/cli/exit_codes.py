"""Exit codes of the command line."""

from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """Exit code of a command. After a signal: 128 + its number: 130 SIGINT, 143 SIGTERM."""

    OK = 0
    FAILED = 1
    PARTIAL = 2
    USAGE = 64
