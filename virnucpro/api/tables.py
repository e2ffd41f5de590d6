"""The tables of a run as pandas DataFrames or, without pandas, as NumPy structured arrays."""

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from virnucpro.api.run_folder import RunOutput, run_of
from virnucpro.arrays import AnyArray
from virnucpro.errors import RunError
from virnucpro.run.calls import call_run, survey_segments
from virnucpro.run.manifest import read_manifest
from virnucpro.run.reporter import Reporter
from virnucpro.run.run import Run
from virnucpro.run_dir import RunDirectory
from virnucpro.tables.cells import NA
from virnucpro.tables.columns import Predictions, RegionTable, Windows
from virnucpro.tables.read import RunTable, joined
from virnucpro.tables.schema import DTYPES, TableBlock, Values
from virnucpro.tables.source import RunScores

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
    """Read the predictions of a run, from its segments: one row per sequence, in input order.

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
        If the index of the run is damaged.
    """
    return read_run_table(run_of(run), Predictions)


def read_windows(run: str | os.PathLike[str] | RunOutput) -> Table:
    """Read the windows of a run: one row per window, in input order.

    Parameters, return value and errors are those of `read_predictions`. The table is in memory:
    about 500 bytes per window.
    """
    return read_run_table(run_of(run), Windows)


def read_regions(run: str | os.PathLike[str] | RunOutput) -> Table:
    """Read the regions of a run: one row per viral or non-viral stretch of a long sequence.

    Parameters, return value and errors are those of `read_predictions`. A run of a bundle without a
    calibration has no such table.
    """
    return read_run_table(run_of(run), RegionTable)


def read_run_table(run: RunDirectory, table: type[TableBlock]) -> Table:
    """Read a table of a run of ``predict``; errors as for `read_predictions`."""
    manifest = read_manifest(run)
    if manifest.command != "predict":
        raise RunError(
            f"{run.root} is a run of {manifest.command}, which computes vectors: read them with "
            "virnucpro.read_embeddings"
        )
    if not manifest.tables_complete:
        raise RunError(f"{run.root} has no tables: the run was stopped; resume it (resume=True)")
    opened = Run.open(run, manifest)
    return table_of(table, call_run(opened, survey_segments(opened, Reporter())))


def table_of(table: type[TableBlock], scores: RunScores) -> Table:
    """Return all rows and columns of a table."""
    if table is RegionTable and scores.regions is None:
        raise RunError("the bundle has no calibration, which regions need: classify with another")
    block = joined(RunTable(table, scores).blocks([*table.columns]))
    if not find_spec("pandas"):
        arrays = {name: _with_missing(table, name, block[name], None) for name in block}
        rows = np.empty(len(block["seq_name"]), [(name, arrays[name].dtype) for name in block])
        for name, values in arrays.items():
            rows[name] = values
        return cast("Table", rows)
    import pandas as pd  # noqa: PLC0415 - optional

    return pd.DataFrame({name: _with_missing(table, name, block[name], np.nan) for name in block})


def column_of(table: type[TableBlock], scores: RunScores, name: str) -> AnyArray:
    """Return one column of a table, without the work for the others."""
    values = joined(RunTable(table, scores).blocks([name]))[name]
    return _with_missing(table, name, values, np.nan)


def _with_missing(
    table: type[TableBlock], name: str, values: Values, missing: float | None
) -> AnyArray:
    """Return a column as an array; texts are objects, a missing text is `missing`."""
    kind = table.columns[name].kind
    column = np.array(values, DTYPES.get(kind, object))
    if kind == "text":
        column[column == NA] = missing
    return column
