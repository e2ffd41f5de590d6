"""Text tables with aligned columns."""

from collections.abc import Collection, Sequence


def aligned(rows: Sequence[Sequence[str]], *, right: Collection[int]) -> list[str]:
    """Return a line of text for each row of a table; columns are aligned by spaces.

    Parameters
    ----------
    rows
        Cells of the table, row by row; at least one row.
    right
        Indices of the right-aligned columns, such as numbers.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            word.rjust(width) if column in right else word.ljust(width)
            for column, (word, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
