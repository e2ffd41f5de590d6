"""Write the tables of a run that several machines compute.

Works at any time: the tables of an incomplete run are partial, and missing.tsv lists the sequences
without a result. Exit code 0: every sequence has a result; 2: partial.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from virnucpro.cli import options
from virnucpro.cli.run_job import exit_code
from virnucpro.console import say
from virnucpro.run.execution import Execution
from virnucpro.run.reporter import open_reporter

if TYPE_CHECKING:
    from virnucpro.cluster.merge import Merged


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``merge``."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of the run")
    text = (
        "if units are missing and no task works, begin a round for them, as virnucpro rescue; "
        "waits up to 90 s until killed tasks are known"
    )
    parser.add_argument("--then-rescue", action="store_true", help=text)
    options.add(parser, Execution, only=("report", "lock", "fail_empty"))
    options.add_quiet(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``merge``; return its exit code."""
    from virnucpro.cluster.merge import merge

    folder = arguments.folder
    execution = Execution(folder, **options.chosen(Execution, arguments))
    stopped = "All segments are kept. Rerun the command."
    quiet = arguments.quiet
    with open_reporter(quiet=quiet, if_stopped=stopped) as reporter:
        merged = merge(
            folder,
            reporter,
            then_rescue=arguments.then_rescue,
            lock=execution.lock,
            report=execution.report,
        )
        reporter.finish(merged.outcome, if_partial=_next_step(merged, folder))
    if not quiet:
        for line in _lines(merged):
            say(line)
    return exit_code(merged.outcome, arguments)


def _next_step(merged: "Merged", folder: Path) -> str:
    """Return the advice for sequences without a result."""
    if merged.working:
        return f"Tasks still work: run virnucpro merge {folder} after their end."
    begin = "" if merged.next_round else f"virnucpro rescue {folder}, then "
    return f"To compute these: {begin}virnucpro work {folder} or virnucpro submit {folder}."


def _lines(merged: "Merged") -> Iterator[str]:
    outcome = merged.outcome
    yield f"units: {outcome.units - len(outcome.missing_units):,} of {outcome.units:,} valid"
    if outcome.copies:
        yield f"{outcome.copies:,} segments are copies of units that two workers computed"
    if merged.next_round is not None:
        yield f"round {merged.next_round.number} begun for {len(merged.next_round.units):,} units"
