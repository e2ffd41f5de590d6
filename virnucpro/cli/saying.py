"""A line to whoever runs a command, beside what the command prints."""

import sys

__all__ = ["say"]


def say(text: str) -> None:
    """Say it on standard error, at once."""
    print(f"[virnucpro] {text}", file=sys.stderr, flush=True)
