"""The exit codes of the contract; they live in the command line alone."""

from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """What the process says to its caller when it ends."""

    OK = 0
    FAILED = 1
    PARTIAL = 2
    USAGE = 64

    @staticmethod
    def signalled(signum: int) -> int:
        """Say that a signal ended the work: 130 for SIGINT, 143 for SIGTERM."""
        return 128 + signum
