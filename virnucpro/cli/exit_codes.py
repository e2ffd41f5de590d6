"""Exit codes of the command line."""

from enum import IntEnum

__all__ = ["ExitCode"]


class ExitCode(IntEnum):
    """Exit code of a command."""

    OK = 0
    FAILED = 1
    PARTIAL = 2
    USAGE = 64

    @staticmethod
    def signalled(signum: int) -> int:
        """Return the exit code after a signal: 130 for SIGINT, 143 for SIGTERM."""
        return 128 + signum
