"""The input files of a job, however a caller names them. Light to import."""

import os
from collections.abc import Iterable
from typing import TypeAlias

from virnucpro.errors import UsageError

__all__ = ["Inputs", "inputs_of", "require_inputs"]

Inputs: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""One path, or several; text or `os.PathLike`."""


def inputs_of(inputs: Inputs) -> tuple[str, ...]:
    """List the input files; one path that stands alone is one input, not its letters."""
    if isinstance(inputs, str | os.PathLike):
        return (os.fspath(inputs),)
    return tuple(os.fspath(one) for one in inputs)


def require_inputs(inputs: tuple[str, ...]) -> None:
    """Refuse to do nothing and call it complete.

    Raises
    ------
    UsageError
        When there is no input.
    """
    if not inputs:
        raise UsageError("no input: name one FASTA or FASTQ file at least, or - for standard input")
