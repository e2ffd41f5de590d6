"""The result of `virnucpro.classify`."""

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, Final

import numpy as np

from virnucpro.api.run_folder import RunFolder, RunOutput, run_of
from virnucpro.api.tables import Table, read_predictions, read_regions, read_windows
from virnucpro.errors import UsageError
from virnucpro.pipeline.jobs.job import SilentReporter
from virnucpro.pipeline.run.outputs import Outcome
from virnucpro.pipeline.run.report import report_on
from virnucpro.report.extract import write_extract
from virnucpro.report.extract_options import ExtractOptions
from virnucpro.sequences.index import SequenceIndex

__all__ = ["Result"]

_SHOWN: Final = ("seq_name", "length", "call", "score", "probability", "fdr", "tier", "status")
_ROWS_SHOWN: Final = 10


class Result(RunOutput):
    """Predictions of a run; `virnucpro.classify` returns it.

    Without an `outdir`, the run folder is temporary. It is removed by `close`, at the end of a
    ``with`` block, or with this object. Tables that were read before are kept.

    Attributes
    ----------
    complete : bool
        Whether every row of the run has a result.
    calls : mapping of str to int
        Number of sequences by call: ``viral``, ``non-viral``, ``ambiguous``, ``not_scored``.
    records : mapping of str to int
        Number of sequences by status.
    warnings : tuple of str
        Warnings of the run.
    """

    def __init__(self, folder: RunFolder, outcome: Outcome, warnings: Sequence[str]) -> None:
        super().__init__(folder)
        self.complete: bool = outcome.complete
        self.calls: Mapping[str, int] = outcome.calls
        self.records: Mapping[str, int] = outcome.records
        self.warnings: tuple[str, ...] = tuple(warnings)

    @cached_property
    def predictions(self) -> Table:
        """One row per sequence, in input order; see `virnucpro.read_predictions`."""
        return read_predictions(self)

    @cached_property
    def windows(self) -> Table:
        """One row per window, in input order; see `virnucpro.read_windows`."""
        return read_windows(self)

    @cached_property
    def regions(self) -> Table:
        """One row per viral or non-viral stretch of a long sequence; see `read_regions`."""
        return read_regions(self)

    def viral(self) -> Table:
        """Return the rows of `predictions` whose call is ``viral``."""
        return self.predictions[self.predictions["call"] == "viral"]

    def to_fasta(
        self, path: str | os.PathLike[str], calls: Sequence[str] | str = ("viral",)
    ) -> Path:
        """Write the sequences with given calls as FASTA, in input order; return the path.

        A header has the name, then ``score=0.9731 length=5386 file=contigs.fa record=17``.
        Sequences are in upper case, with T instead of U. An existing file is replaced.

        Parameters
        ----------
        path
            File to write; compressed with gzip if its name ends in ``.gz``.
        calls
            ``viral``, ``ambiguous``, ``non-viral`` or ``not_scored``: one or several.

        Raises
        ------
        UsageError
            If a call is unknown, or the folder of the file does not exist.
        OSError
            If the file cannot be written.
        """
        _require_folder(path)
        options = ExtractOptions((calls,) if isinstance(calls, str) else tuple(calls))
        table = self.predictions
        chosen = np.isin(np.asarray(table["call"], np.str_), options.calls)
        index = SequenceIndex.open(run_of(self).index)
        write_extract(Path(path), index, chosen, np.asarray(table["score"]))
        return Path(path)

    def report(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the report of the run, one HTML file that needs no network; return its path.

        Parameters
        ----------
        path
            File to write; an existing file is replaced. None: report.html in the run folder, which
            is written only if it does not exist.

        Raises
        ------
        UsageError
            If the folder of the file does not exist.
        RunError, StoreError
            If the tables of the run are missing or damaged, or the file cannot be written.
        """
        stored = run_of(self).report
        if path is None and stored.is_file():
            return stored
        if path is not None:
            _require_folder(path)
        return report_on([self.outdir], None if path is None else Path(path), SilentReporter())

    def __len__(self) -> int:
        return sum(self.records.values())

    def __repr__(self) -> str:
        return f"<virnucpro.Result: {self._summary()}>"

    def _repr_html_(self) -> str:
        table = self.predictions
        names = [name for name in _SHOWN if name in _columns(table)]
        head = "".join(f"<th>{name}</th>" for name in names)
        columns = [[_cell(cell) for cell in table[name][:_ROWS_SHOWN]] for name in names]
        rows = "".join(
            f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
            for row in zip(*columns, strict=True)
        )
        rest = len(self) - _ROWS_SHOWN
        more = f"<p>and {rest:,} more</p>" if rest > 0 else ""
        return (
            f"<p><b>virnucpro</b>: {escape(self._summary())}</p>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{more}"
        )

    def _summary(self) -> str:
        calls = ", ".join(f"{count:,} {call}" for call, count in self.calls.items())
        state = "" if self.complete else " (incomplete)"
        return f"{len(self):,} sequences: {calls or 'none'}{state}"


def _require_folder(path: str | os.PathLike[str]) -> None:
    if not (parent := Path(path).parent).is_dir():
        raise UsageError(f"{path} cannot be written: there is no folder {parent}. Create it first")


def _columns(table: Table) -> Sequence[str]:
    return table.dtype.names if isinstance(table, np.ndarray) else list(table.columns)


def _cell(value: Any) -> str:  # noqa: ANN401 - a cell of any kind
    missing = value is None or value != value  # noqa: PLR0124 - true for NaN
    if missing:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else escape(str(value))
