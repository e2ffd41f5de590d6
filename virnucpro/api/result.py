"""The result of `virnucpro.classify`."""

import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from virnucpro.api.run_folder import RunFolder, RunOutput
from virnucpro.api.tables import Table, column_of, read_run_table, table_of
from virnucpro.arrays import FloatArray
from virnucpro.classifier.call_options import CallOptions, PresetName
from virnucpro.errors import RunError, RunExistsError, UsageError
from virnucpro.report.extract import RecordIds, extract_texts, write_texts
from virnucpro.report.extract_options import ExtractOptions
from virnucpro.run.calls import call_run, survey_segments
from virnucpro.run.manifest import read_manifest
from virnucpro.run.outputs import outcome_of, rescore
from virnucpro.run.report import plot_run, report_on
from virnucpro.run.reporter import Reporter
from virnucpro.run.run import Outcome, Run, refuse_run_files
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex
from virnucpro.tables.columns import Predictions, RegionTable, Windows
from virnucpro.tables.schema import TableBlock

if TYPE_CHECKING:
    from virnucpro.classifier.prevalence import Expectation

_ROWS_SHOWN: Final = 10


class Result(RunOutput):
    """Predictions of a run; `virnucpro.classify` returns it.

    Without an `outdir`, the run is in memory or in a temporary folder. It is removed by `close`, at
    the end of a ``with`` block, or with this object. Tables that were read before are kept.

    Attributes
    ----------
    complete : bool
        Whether every row of the run has a result.
    calls : mapping of str to int
        Number of sequences by call: ``viral``, ``non-viral``, ``ambiguous``, ``not_scored``.
    records : mapping of str to int
        Number of sequences by status.
    expectation : Expectation or None
        Assumed `prevalence` (`value`, `low`, `high`), number of viral sequences (`called`), and
        how many of them are expected to be false (`false`); None without a calibration.
    warnings : tuple of str
        Warnings of the run.
    """

    def __init__(self, folder: RunFolder, outcome: Outcome, warnings: Sequence[str]) -> None:
        super().__init__(folder)
        self._facts = _facts(folder)
        self.complete: bool = outcome.complete
        self.calls: Mapping[str, int] = outcome.calls
        self.records: Mapping[str, int] = outcome.records
        self.expectation: Expectation | None = outcome.expectation
        self.warnings: tuple[str, ...] = tuple(warnings)

    @cached_property
    def predictions(self) -> Table:
        """One row per sequence, in input order; see `virnucpro.read_predictions`."""
        return self._table(Predictions)

    @cached_property
    def windows(self) -> Table:
        """One row per window, in input order; see `virnucpro.read_windows`."""
        return self._table(Windows)

    @cached_property
    def regions(self) -> Table:
        """One row per viral or non-viral stretch of a long sequence; see `read_regions`."""
        return self._table(RegionTable)

    def _table(self, table: type[TableBlock]) -> Table:
        memory = self._folder.memory
        return table_of(table, memory.scores) if memory else read_run_table(self._run(), table)

    def _run(self) -> RunDirectory:
        """Return the run folder, whose tables are those of this result.

        Raises
        ------
        RunError
            If the folder has another run or rule now, or is removed.
        """
        if self._facts != _facts(self._folder):
            raise RunError(
                f"{self.outdir}: the tables are those of another run or rule now: use the result "
                "that rescore or classify returned, or give each result an outdir of its own with "
                "save"
            )
        return super()._run()

    def __getstate__(self) -> dict[str, Any]:
        """Read all tables of a temporary folder, which another process does not have."""
        if self._folder.temporary and self._folder.memory is None:
            with suppress(RunError):  # the folder is removed, or the run has no regions
                _ = self.predictions, self.windows, self.regions
        return vars(self)

    def scores(self) -> FloatArray:
        """Return the column ``score`` of `predictions`, ``(n,)`` float64; NaN if not scored."""
        memory = self._folder.memory
        if memory is None:
            return np.asarray(self.predictions["score"], np.float64)
        return column_of(Predictions, memory.scores, "score")

    def viral(self) -> Table:
        """Return the rows of `predictions` whose call is ``viral``."""
        return self.predictions[self.predictions["call"] == "viral"]

    def to_fasta(
        self, path: str | os.PathLike[str], calls: Sequence[str] | str = ("viral",)
    ) -> Path:
        """Write the sequences with given calls as FASTA, in input order; return the path.

        A header has a unique id, which is the name or, if names repeat, ``sample|name``; then
        ``probability=0.9912 score=0.9731 name=c17 length=5386 file=contigs.fa record=17``.
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
            If a call is unknown, the folder of the file does not exist, or the file is an input or
            a file of the run.
        OSError
            If the file cannot be written.
        """
        _require_folder(path)
        run = self._run()
        refuse_run_files(Path(path), [run.root])
        options = ExtractOptions((calls,) if isinstance(calls, str) else tuple(calls))
        table = self.predictions
        chosen = np.isin(np.asarray(table["call"], np.str_), options.calls)
        index = SequenceIndex.open(run.index)
        score, probability = (np.asarray(table[name]) for name in ("score", "probability"))
        write_texts(Path(path), extract_texts(RecordIds(index), chosen, score, probability))
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
        stored = self._run().report
        if path is None and stored.is_file():
            return stored
        if path is not None:
            _require_folder(path)
        return report_on([self.outdir], None if path is None else Path(path), Reporter())

    def plot(
        self,
        path: str | os.PathLike[str],
        name: str | None = None,
        *,
        file: str | None = None,
        record: int | None = None,
        start: int | None = None,
        end: int | None = None,
    ) -> Path:
        """Draw the scores of all sequences, or those of the windows of one, and return the path.

        Needs matplotlib: ``pip install 'virnucpro[plot]'``.

        Parameters
        ----------
        path
            Figure to write: its name ends in .png, .svg or .pdf. An existing file is replaced.
        name
            Name of one sequence: its window scores with its call and regions. None: the
            distribution of the scores of all sequences.
        file, record
            Input file of the sequence and its number in this file, from 1, where names are equal.
        start, end
            First and last base to draw, from 1; None: those of the sequence.

        Raises
        ------
        UsageError
            If the format or the sequence is unknown, matplotlib is not installed, or the folder of
            the file does not exist.
        RunError, StoreError
            If the tables of the run are missing or damaged, or the file cannot be written.
        """
        folder, place = self._run().root, (start, end)
        plot_run(folder, Path(path), name, file=file, record=record, place=place)
        return Path(path)

    def rescore(
        self,
        *,
        preset: PresetName | None = None,
        threshold: float | None = None,
        fdr: float | None = None,
        prevalence: float | Literal["auto"] | None = None,
    ) -> "Result":
        """Call the sequences by another rule, as ``virnucpro rescore``; return the new result.

        The tables of an `outdir` are replaced: read those of this result before, if you need them.
        Without an `outdir`, this result stays as it is.

        Parameters
        ----------
        preset, threshold, fdr, prevalence
            As for `virnucpro.classify`. A given prevalence, and a given preset, threshold or FDR,
            replace those of this result, or of the `outdir`; the rest stays. ``preset="default"``
            alone restores the rule of a new run.

        Raises
        ------
        UsageError
            If a value is not allowed, or the rule needs a calibration that the bundle lacks.
        """
        calls, reporter = CallOptions(preset, threshold, fdr, prevalence), Reporter()
        if self._folder.memory is not None:
            memory = self._folder.memory.rescored(calls)
            folder = RunFolder(None, memory, name=self._folder.name)
            return Result(folder, memory.outcome, self.warnings)
        folder = self._folder.copy() if self._folder.temporary else self._folder
        paths = RunDirectory(folder.path)
        rescore(paths, calls, reporter)
        run = Run.open(paths)
        scores = call_run(run, survey_segments(run, reporter))
        return Result(folder, outcome_of(run, scores, reporter), self.warnings)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the run folder to a new folder, and return its path.

        Raises
        ------
        RunExistsError
            If the folder exists.
        UsageError
            If its parent folder does not exist.
        RunError
            If the `outdir` has another run or rule now.
        """
        _require_folder(folder)
        target = Path(folder)
        if target.exists():
            raise RunExistsError(f"{target}: the folder exists; choose another one")
        if self._folder.memory is not None:
            self._folder.memory.write(target)
        else:
            shutil.copytree(self._run().root, target)
        return target

    def __len__(self) -> int:
        return sum(self.records.values())

    def __repr__(self) -> str:
        return f"<virnucpro.Result: {self._summary()}>"

    def _repr_html_(self) -> str:
        table = self.predictions
        names = [column.name for column in Predictions.shown("notebook")]
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


def _facts(folder: RunFolder) -> tuple[str, Mapping[str, Any]]:
    """Return the fingerprint of a run, and the rule of its calls."""
    memory = folder.memory
    manifest = memory.run.manifest if memory else read_manifest(RunDirectory(folder.path))
    return manifest.fingerprint, manifest.calls


def _require_folder(path: str | os.PathLike[str]) -> None:
    if not (parent := Path(path).parent).is_dir():
        raise UsageError(f"{path} cannot be written: there is no folder {parent}. Create it first")


def _cell(value: Any) -> str:  # noqa: ANN401 - a cell of any kind
    missing = value is None or value != value  # noqa: PLR0124 - true for NaN
    if missing:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else escape(str(value))
