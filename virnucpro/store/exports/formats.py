"""Names of the formats, and what each needs."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

from virnucpro.errors import UsageError

__all__ = ["FORMATS", "parse_formats", "require_formats"]

FORMATS: Final = ("npy", "parquet", "h5ad", "pt")
"""Formats that ``--format`` adds to embeddings.h5."""


def parse_formats(text: str) -> tuple[str, ...]:
    """Return the formats in a list separated by commas; ``h5`` is always written.

    Raises
    ------
    UsageError
        If a format is unknown.
    """
    given = tuple(dict.fromkeys(one.strip() for one in text.split(",")))
    if unknown := [one for one in given if one not in {*FORMATS, "h5"}]:
        raise UsageError(f"--format {unknown[0]!r}: give h5, {', '.join(FORMATS)}, or several.")
    return tuple(one for one in FORMATS if one in given)


def require_formats(formats: Sequence[str], *, per_token: bool) -> None:
    """Check that this installation can write formats, and that they can hold the vectors.

    Raises
    ------
    UsageError
        If a package is missing, or h5ad is given for vectors of residues.
    """
    if "parquet" in formats and find_spec("pyarrow") is None:
        raise UsageError(
            "--format parquet needs the package pyarrow: pip install 'virnucpro[parquet]'."
        )
    if "h5ad" in formats and per_token:
        raise UsageError(
            "--format h5ad has one vector per sequence, and --pooling none one per residue: give "
            "another pooling, or --format npy, parquet or pt."
        )
