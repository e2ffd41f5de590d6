"""Rows of words under each other, for people."""

from collections.abc import Collection, Sequence

__all__ = ["aligned"]


def aligned(rows: Sequence[Sequence[str]], *, right: Collection[int]) -> list[str]:
    """Set rows of equally many words in columns.

    Parameters
    ----------
    rows
        At least one.
    right
        Columns that end under each other, such as numbers; counted from 0.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            word.rjust(width) if column in right else word.ljust(width)
            for column, (word, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
