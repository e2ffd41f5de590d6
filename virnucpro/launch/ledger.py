"""The table of a launch on disk: there from the start, kept up while it goes on, ended with it."""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from virnucpro.launch.balancer import LoadBalancer
from virnucpro.launch.results import FileResult, FileStatus
from virnucpro.launch.summary import table, write_summary

__all__ = ["INTERVAL_S", "LaunchReport", "Ledger"]

INTERVAL_S = 1.0
"""Shortest time in seconds between two versions of the table."""

_SHARE = 20
"""Writing takes no more than one part in so many of the time."""


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """What a launch came to.

    Attributes
    ----------
    results
        Of every file, by name.
    rows
        The table, its header first.
    exit_code
        0 all done, 1 nothing could be done, 2 some files failed, or were done in part, or the table
        could not be written.
    """

    results: Sequence[FileResult]
    rows: Sequence[Sequence[str]]
    exit_code: int


class Ledger:
    """Writes ``launch.tsv`` and ``launch.json`` of what a balancer knows.

    Parameters
    ----------
    source, target
        The folders of the files and of the results.
    files
        All of them, in the order of the rows.
    facts
        What is known of the launch from its start.
    balancer
        Knows what came since.
    """

    def __init__(
        self,
        source: Path,
        target: Path,
        files: Sequence[Path],
        facts: Mapping[str, Any],
        balancer: LoadBalancer,
    ) -> None:
        self._source = source
        self._target = target
        self._files = files
        self._facts = facts
        self._balancer = balancer
        self._not_before = 0.0
        self._told = False

    def begin(self) -> None:
        """Put the table of this launch in the place of an earlier one's.

        Raises
        ------
        OSError
            When it cannot be written: then nothing of this launch could be.
        """
        self._write(self._results("not done yet"), None, lasting=True)

    def update(self) -> None:
        """Write how it stands, unless that was done just now. A full disk is no obstacle."""
        began = time.monotonic()
        if began < self._not_before:
            return
        try:
            self._write(self._results("not done yet"), None, lasting=False)
        except OSError as error:
            if not self._told:
                self._tell(error)
        now = time.monotonic()
        self._not_before = now + max(INTERVAL_S, _SHARE * (now - began))

    def end(self) -> LaunchReport:
        """Write what it came to. That the table cannot be written is told, and no more."""
        error = self._balancer.error
        why = "" if error is None else f": {str(error).partition(chr(10))[0]}"
        results = self._results(f"the launch was over before{why}")
        exit_code = self._balancer.get_exit_code()
        try:
            rows = self._write(results, exit_code, lasting=True)
        except OSError as raised:
            self._tell(raised)
            rows, exit_code = table(results, self._source), exit_code or 2
        return LaunchReport(results, rows, exit_code)

    def _results(self, otherwise: str) -> list[FileResult]:
        known = {one.file: one for one in self._balancer.results}
        return [
            known.get(str(file), FileResult(str(file), FileStatus.LEFT, error=otherwise))
            for file in self._files
        ]

    def _write(
        self, results: Sequence[FileResult], exit_code: int | None, *, lasting: bool
    ) -> Sequence[Sequence[str]]:
        rows = table(results, self._source)
        facts = {
            **self._facts,
            "exit_code": exit_code,
            **self._balancer.get_summary_stats(),
            "troubles": self._balancer.troubles,
        }
        write_summary(self._target, rows, results, facts, lasting=lasting)
        return rows

    def _tell(self, error: OSError) -> None:
        self._told = True
        notes = "; ".join(getattr(error, "__notes__", ()))
        sys.stderr.write(
            f"[virnucpro] error: the table of this launch could not be written: {error}; {notes}. "
            "Free space, or make the folder writable; the files' own results are not touched.\n"
        )
