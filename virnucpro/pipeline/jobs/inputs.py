"""The input files of a job, however a caller names them. Light to import."""

import os
from collections.abc import Iterable
from typing import TypeAlias

from virnucpro.errors import UsageError

__all__ = ["Inputs", "inputs_of", "require_inputs"]

Inputs: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""One path, or several; text or `os.PathLike`."""


def inputs_of(inputs: Inputs) -> tuple[str, ...]:
    """List the input files; one path that stands alone is one input, not its letters.

    Raises
    ------
    UsageError
        When one is no path as text or `os.PathLike`.
    """
    if isinstance(inputs, str | bytes | os.PathLike) or not isinstance(inputs, Iterable):
        return (_text(inputs),)
    return tuple(map(_text, inputs))


def _text(path: object) -> str:
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise UsageError(f"an input is a path, as text or os.PathLike, and {path!r} is none")
    return text


def require_inputs(inputs: tuple[str, ...]) -> None:
    """Refuse to do nothing and call it complete.

    Raises
    ------
    UsageError
        When there is no input.
    """
    if not inputs:
        raise UsageError("no input: name one FASTA or FASTQ file at least, or - for standard input")
