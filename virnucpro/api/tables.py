"""The tables of a run as pandas DataFrames or, without pandas, as NumPy structured arrays."""

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from virnucpro.api.run_folder import RunOutput, run_of
from virnucpro.arrays import AnyArray
from virnucpro.errors import RunError
from virnucpro.run.manifest import read_manifest
from virnucpro.run_dir import RunDirectory
from virnucpro.tables.cells import NA
from virnucpro.tables.columns import Predictions, RegionTable, Windows
from virnucpro.tables.read import ReadableTable, StoredTable, joined
from virnucpro.tables.schema import DTYPES, TableBlock, Values

if TYPE_CHECKING:  # Any without pandas-stubs
    from pandas import DataFrame

    Table: TypeAlias = DataFrame
else:
    Table = Any
"""A `pandas.DataFrame` if pandas is installed, else a structured `numpy.ndarray` ``(n,)``.

Type checkers see the DataFrame. Both have one row per line of the file, and columns by name:
``table["call"]``. Integers are int64, other numbers float64 with NaN for `NA`. Text is of dtype
object: `str`, and for `NA` NaN in pandas and None in NumPy.
"""


def read_predictions(run: str | os.PathLike[str] | RunOutput) -> Table:
    """Read predictions.tsv of a run: one row per sequence, in input order.

    Parameters
    ----------
    run
        Output folder of ``virnucpro predict`` or of `virnucpro.classify`, or a `virnucpro.Result`.

    Returns
    -------
    A `pandas.DataFrame` if pandas is installed, else a structured `numpy.ndarray` ``(n,)``. Columns
    by name; integers are int64, other numbers float64 with NaN for `NA`, text is `str`. Missing
    text is NaN in pandas and None in NumPy.

    Raises
    ------
    NotARunError
        If the folder contains no run.
    RunError
        If the run has no such table, because it computed vectors only or was stopped.
    StoreError
        If the table is damaged.
    """
    return read_run_table(run_of(run), Predictions)


def read_windows(run: str | os.PathLike[str] | RunOutput) -> Table:
    """Read tracks/windows.tsv of a run: one row per window, in input order.

    Parameters, return value and errors are those of `read_predictions`. The table is read into
    memory: about 500 bytes per window.
    """
    return read_run_table(run_of(run), Windows)


def read_regions(run: str | os.PathLike[str] | RunOutput) -> Table:
    """Read regions.tsv of a run: one row per viral or non-viral stretch of a long sequence.

    Parameters, return value and errors are those of `read_predictions`. A run of a bundle without a
    calibration has no such table.
    """
    return read_run_table(run_of(run), RegionTable)


def read_run_table(run: RunDirectory, table: type[TableBlock]) -> Table:
    """Read a table of a run of ``predict``; errors as for `read_predictions`."""
    manifest = read_manifest(run)
    path = next(path for path in run.tables if path.name == table.filename)
    if manifest.command != "predict":
        raise RunError(
            f"{run.root} is a run of {manifest.command}, which computes vectors: read them with "
            "virnucpro.read_embeddings"
        )
    if not path.is_file():
        if path == run.regions and run.predictions.is_file():
            raise RunError(
                f"{path} does not exist: the bundle {manifest.parameters['bundle']} has no "
                "calibration, which regions need; classify with another bundle"
            )
        raise RunError(f"{path} does not exist: the run was stopped; resume it (resume=True)")
    return table_of(table, StoredTable(table, path))


def table_of(table: type[TableBlock], source: ReadableTable) -> Table:
    """Return all rows and columns of a table."""
    block = joined(source.blocks([*table.columns]))
    if not find_spec("pandas"):
        arrays = {name: _with_missing(table, name, block[name], None) for name in block}
        rows = np.empty(len(block["seq_name"]), [(name, arrays[name].dtype) for name in block])
        for name, values in arrays.items():
            rows[name] = values
        return cast("Table", rows)
    import pandas as pd  # noqa: PLC0415 - optional

    return pd.DataFrame({name: _with_missing(table, name, block[name], np.nan) for name in block})


def column_of(table: type[TableBlock], source: ReadableTable, name: str) -> AnyArray:
    """Return one column of a table, without the work for the others."""
    return _with_missing(table, name, joined(source.blocks([name]))[name], np.nan)


def _with_missing(
    table: type[TableBlock], name: str, values: Values, missing: float | None
) -> AnyArray:
    """Return a column as an array; texts are objects, a missing text is `missing`."""
    kind = table.columns[name].kind
    column = np.array(values, DTYPES.get(kind, object))
    if kind == "text":
        column[column == NA] = missing
    return column
