"""The tables of a run as pandas DataFrames or, without pandas, as NumPy structured arrays."""

import csv
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from virnucpro.api.run_folder import RunOutput, run_of
from virnucpro.errors import RunError
from virnucpro.pipeline.run.manifest import read_manifest
from virnucpro.report.reading.records import damaged, read_columns
from virnucpro.report.tsv import NA
from virnucpro.run_dir import RunDirectory

__all__ = [
    "KINDS",
    "Table",
    "read_predictions",
    "read_regions",
    "read_run_table",
    "read_windows",
]

Table: TypeAlias = Any
"""A `pandas.DataFrame` if pandas is installed, else a structured `numpy.ndarray` ``(n,)``.

Both have one row per line of the file, and columns by name: ``table["call"]``. Integers are int64,
other numbers float64 with NaN for `NA`. Text is of dtype object: `str`, and for `NA` NaN in pandas
and None in NumPy.
"""

_Kind: TypeAlias = Literal["name", "text", "integer", "number"]

KINDS: Final[dict[str, _Kind]] = {
    **dict.fromkeys(("seq_name", "window", "file", "call", "status", "state"), "name"),
    **dict.fromkeys(("start_edge", "end_edge"), "name"),
    **dict.fromkeys(
        ("length", "n_windows", "n_scored", "record", "start", "end", "n_items"), "integer"
    ),
    **dict.fromkeys(("scored_fraction", "score", "probability", "fdr", "log_odds"), "number"),
    **dict.fromkeys(
        (
            *("best_window", "best_frame", "tier", "evidence", "reason", "flags"),
            *("likely_source", "topology"),
        ),
        "text",
    ),
}
"""Kind of each column; a name is text that is never missing, such as a sequence named NA."""


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
    paths = run_of(run)
    return read_run_table(paths, paths.predictions)


def read_windows(run: str | os.PathLike[str] | RunOutput) -> Table:
    """Read windows.tsv of a run: one row per window, in input order.

    Parameters, return value and errors are those of `read_predictions`. The table is read into
    memory: about 500 bytes per window.
    """
    paths = run_of(run)
    return read_run_table(paths, paths.windows)


def read_regions(run: str | os.PathLike[str] | RunOutput) -> Table:
    """Read regions.tsv of a run: one row per viral or non-viral stretch of a long sequence.

    Parameters, return value and errors are those of `read_predictions`. A run of a bundle without a
    calibration has no such table.
    """
    paths = run_of(run)
    return read_run_table(paths, paths.regions)


def read_run_table(run: RunDirectory, path: Path) -> Table:
    """Read a table of a run of ``predict``; errors as for `read_predictions`."""
    manifest = read_manifest(run)
    if manifest.command != "predict":
        raise RunError(
            f"{run.root} is a run of {manifest.command}, which computes vectors: read them with "
            "virnucpro.read_embeddings"
        )
    if not path.is_file():
        if path == run.regions and run.predictions.is_file():
            raise RunError(
                f"{path} does not exist: the bundle {manifest.parameters['bundle']} has no "
                "calibration, which regions need, or the run is older; classify with another bundle"
            )
        raise RunError(f"{path} does not exist: the run was stopped; resume it (resume=True)")
    needed = ("seq_name",) if path == run.predictions else ()
    for _ in read_columns(path, needed):  # every row has all its cells
        pass
    try:
        return _read_pandas(path) if find_spec("pandas") else _read_numpy(path)
    except ValueError as error:
        raise damaged(path, str(error)) from error


def _read_pandas(path: Path) -> Table:
    import pandas as pd  # noqa: PLC0415 - optional

    with path.open(encoding="utf-8", newline="\n") as stream:
        columns = stream.readline().rstrip("\n").split("\t")
    dtypes = {"integer": "int64", "number": "float64"}
    return pd.read_csv(
        path,
        sep="\t",
        encoding="utf-8",
        quoting=csv.QUOTE_NONE,
        dtype={name: dtypes.get(_kind(name), "object") for name in columns},
        keep_default_na=False,
        na_values={name: [NA] for name in columns if _kind(name) in {"number", "text"}},
        skip_blank_lines=False,
    )


def _read_numpy(path: Path) -> npt.NDArray[np.void]:
    with path.open(encoding="utf-8", newline="\n") as stream:
        columns = stream.readline().rstrip("\n").split("\t")
        lines = [tuple(line.rstrip("\n").split("\t")) for line in stream]
    dtypes = {"integer": "int64", "number": "float64"}
    table = np.empty(len(lines), [(name, dtypes.get(_kind(name), "O")) for name in columns])
    cells = zip(*lines, strict=True) if lines else ((),) * len(columns)
    for name, column in zip(columns, cells, strict=True):
        kind = _kind(name)
        if kind == "number":
            table[name] = [float("nan") if cell == NA else float(cell) for cell in column]
        elif kind == "text":
            table[name] = [None if cell == NA else cell for cell in column]
        else:
            table[name] = column
    return table


def _kind(column: str) -> _Kind:
    return KINDS.get(column, "text")
