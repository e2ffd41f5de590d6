"""Input files of a job, from one path or several. Light to import."""

import os
from collections.abc import Iterable
from typing import TypeAlias

from virnucpro.errors import UsageError

__all__ = ["Inputs", "inputs_of", "require_inputs"]

Inputs: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""One path or several, each a str or `os.PathLike`."""


def inputs_of(inputs: Inputs) -> tuple[str, ...]:
    """Return the input files as text; a single str is one path.

    Raises
    ------
    UsageError
        If an entry is neither a str nor `os.PathLike`.
    """
    if isinstance(inputs, str | bytes | os.PathLike) or not isinstance(inputs, Iterable):
        return (_text(inputs),)
    return tuple(map(_text, inputs))


def _text(path: object) -> str:
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise UsageError(f"invalid input {path!r}: give a path as str or os.PathLike")
    return text


def require_inputs(inputs: tuple[str, ...]) -> None:
    """Refuse an empty list of inputs.

    Raises
    ------
    UsageError
        If there is no input.
    """
    if not inputs:
        raise UsageError("no input: give at least one FASTA or FASTQ file, or - for standard input")
