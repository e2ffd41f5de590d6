"""Compute a part of a planned run on this machine; any number of machines can do so at once.

Units of failed or slow machines are taken over. Start the command again to continue after a
failure. When all tasks have ended, write the tables with virnucpro merge RUN.

The number of the task comes from --task; else from a SLURM array, and from the variables of srun,
torchrun or MPI. Exit codes: 0 no unit left for this task; 2 a worker failed permanently, and
virnucpro merge lists the missing sequences; 143 stopped by SIGTERM or a
scheduler's warning, such as SIGUSR1.
"""

import argparse
import os
from pathlib import Path

from virnucpro.cli import options
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.console import say
from virnucpro.option import seconds
from virnucpro.run.execution import Execution
from virnucpro.run.reporter import open_reporter

_LEAD_S = 30.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``work``."""
    parser.add_argument("outdir", type=Path, metavar="RUN", help="folder of the planned run")
    text = "number of this task, from 0, and number of tasks; default: from the scheduler, or 0/1"
    parser.add_argument("--task", metavar="K/N", help=text)
    text = "bundle or encoder of the run, if it has another path here; default: as planned"
    parser.add_argument("-b", "--bundle", action=options.Once, metavar="NAME", help=text)
    options.add_quiet(parser)
    text = "seconds after such a signal to finish the unit that is computed; default: 30"
    parser.add_argument(
        "--lead", dest="stop_timeout", type=seconds, default=_LEAD_S, metavar="S", help=text
    )
    text = (
        "minimum seconds from another worker's start of a unit until this worker computes the same "
        "unit, if it has no other work; default: 120"
    )
    parser.add_argument("--copy-after", type=seconds, default=120.0, metavar="S", help=text)
    # `work` needs no lock, and never replaces or resumes a run.
    execution = ("devices", "threads", "max_restarts")
    options.add(parser, Execution, only=(*execution, "start_timeout", "progress_timeout"))


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``work``; return its exit code."""
    from virnucpro.cluster.identity import parse_task, task_of
    from virnucpro.cluster.work import work

    task = parse_task(arguments.task) if arguments.task else task_of(os.environ)
    execution = Execution(**options.chosen(Execution, arguments), lock=False)
    stopped = "Finished units are kept. Start the same command again, here or elsewhere."
    with open_reporter(quiet=arguments.quiet, if_stopped=stopped, resumable=stopped) as reporter:
        worked = work(
            arguments.outdir,
            task,
            execution,
            reporter,
            model=arguments.bundle,
            copy_after=arguments.copy_after,
        )
    if not arguments.quiet:
        say(_summary(worked.part, worked.units, arguments.outdir))
    for rank in worked.failed:
        say(f"warning: worker {rank} failed permanently: see the logs in {worked.part}")
    return ExitCode.PARTIAL if worked.failed else ExitCode.OK


def _summary(part: Path | None, units: int, folder: Path) -> str:
    if part is None:
        return f"{folder}: every unit has a segment. Write the tables with virnucpro merge {folder}"
    return f"{units:,} units computed in {part}. After the last task: virnucpro merge {folder}"
