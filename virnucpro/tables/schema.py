"""Declaration of tables: a class is a table, a method with `column` is one of its columns."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias, TypeVar

import numpy as np

from virnucpro.arrays import AnyArray, IntArray
from virnucpro.tables.cells import counts, decimals, integers

if TYPE_CHECKING:
    from virnucpro.tables.source import RunScores

Kind: TypeAlias = Literal["name", "text", "integer", "count", "number"]
"""Type of a column. A name is text that is never missing, such as a sequence named NA.

A count is an integer that may be missing.
"""
DTYPES: Final = {"integer": np.int64, "count": np.float64, "number": np.float64}
"""Types of the values of columns that are not text; a count may be NaN."""

Place: TypeAlias = Literal["report", "notebook"]
Values: TypeAlias = AnyArray | list[str]
Block: TypeAlias = Mapping[str, Values]
"""Values of some rows by the name of their column: integers, numbers or texts."""


_WRITERS: Final[Mapping[str, Callable[[AnyArray], list[str]]]] = {
    "integer": integers,
    "count": counts,
    "number": decimals,
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    name, kind, meaning
        Name in the header; type; meaning with its unit, as Markdown.
    values
        Function that returns the integers, numbers or texts of the rows of a `TableBlock`. A number
        is written with four decimals, NaN as `NA`.
    shown
        Where the column is shown beside its table.
    """

    name: str
    kind: Kind
    meaning: str
    values: Callable[[Any], Values]
    shown: Sequence[Place]


Rows = TypeVar("Rows", bound="TableBlock")


def column(kind: Kind, *shown: Place) -> Callable[[Callable[[Rows], Values]], Column]:
    """Make a column of a method: its name is that of the column, its docstring the meaning."""

    def make(values: Callable[[Rows], Values]) -> Column:
        meaning = " ".join((values.__doc__ or "").split()).rstrip(".")
        return Column(values.__name__, kind, meaning, values, shown)

    return make


class TableBlock:
    """Some rows of a table; a subclass declares a table, with its columns in order.

    Columns of base classes are columns of the table only if it names them: ``call = Base.call``.

    Attributes
    ----------
    filename, columns
        Name of the file, and columns by name.
    run
        Scores and calls of the run.
    rows
        Ascending numbers of the rows, ``(n,)``.
    """

    filename: ClassVar[str]
    columns: ClassVar[Mapping[str, Column]] = {}

    def __init_subclass__(cls) -> None:
        cls.columns = {
            name: value for name, value in vars(cls).items() if isinstance(value, Column)
        }

    def __init__(self, run: "RunScores", rows: IntArray) -> None:
        self.run = run
        self.rows = rows

    @classmethod
    def all_rows(cls, run: "RunScores") -> int | IntArray | Iterable[IntArray]:
        """Return the numbers of all rows, n for the numbers from 0 to n - 1, or them in blocks."""
        return run.index.n_records

    @classmethod
    def shown(cls, place: Place) -> list[Column]:
        """Return the columns that a place shows."""
        return [column for column in cls.columns.values() if place in column.shown]

    def texts(self) -> Iterable[list[str]]:
        """Yield the cells of each column."""
        for declared in self.columns.values():
            values = declared.values(self)
            if isinstance(values, list):
                yield values
            else:
                yield _WRITERS[declared.kind](values)
