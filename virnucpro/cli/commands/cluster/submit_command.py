"""Start the tasks of a run on a cluster, and the merge that writes the tables after them.

Give a planned run, or input files and -o RUN to plan it first. The engine slurm submits an array of
virnucpro work, a merge after it, and further rounds for units that a round leaves missing; it
prints every sbatch command. The engines local and ray wait for the end and return the exit code of
the merge.

Words behind -- belong to the engine: options of sbatch for the arrays (merges get account,
partition and the like of them), or arguments of a Ray task such as num_gpus=1.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Final, NoReturn

from virnucpro.cli import options
from virnucpro.cli.commands.cluster import work_command
from virnucpro.cli.commands.cluster.plan_command import add_plan_options, plan_from
from virnucpro.cli.exit_codes import ExitCode
from virnucpro.console import say
from virnucpro.errors import EngineError, UsageError
from virnucpro.option import integer_from, positive
from virnucpro.run.execution import Execution
from virnucpro.run.reporter import open_reporter

if TYPE_CHECKING:
    from virnucpro.cluster.request import Engine, Request


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``submit``."""
    text = "folder of a planned run; or input files, as for virnucpro plan, with -o"
    parser.add_argument("inputs", nargs="+", metavar="RUN|FASTA", help=text)
    text = "plan the input files as a new run in this folder"
    parser.add_argument("-o", "--outdir", type=Path, metavar="RUN", help=text)
    text = "default: %(default)s"
    parser.add_argument("--engine", choices=[*_ENGINES], default="slurm", help=text)
    text = "number of tasks; default: the planned number of workers; with the engine local, 1"
    parser.add_argument("--tasks", type=positive, metavar="N", help=text)
    text = "maximum number of tasks at once; default: no limit"
    parser.add_argument("--limit", type=positive, metavar="M", help=text)
    text = "further rounds for missing units; default: %(default)s"
    parser.add_argument("--rescues", type=integer_from(0), default=1, metavar="R", help=text)
    text = "print a shell script with the sbatch commands, and run nothing"
    parser.add_argument("--print", dest="only_print", action="store_true", help=text)
    text = "options of virnucpro work in one text, such as --work-options='--threads 4'"
    parser.add_argument("--work-options", type=_words, default=(), metavar="TEXT", help=text)
    text = "options of sbatch for the merges alone in one text, such as --merge-options='--mem=32G'"
    parser.add_argument("--merge-options", type=_words, default=(), metavar="TEXT", help=text)
    text = (
        "start of virnucpro on the nodes, such as --program='apptainer exec image.sif virnucpro'; "
        "default: the path of this program"
    )
    parser.add_argument("--program", type=_words, metavar="TEXT", help=text)
    options.add(parser, Execution, only=("lock",))
    options.add_quiet(parser)
    add_plan_options(parser)
    parser.set_defaults(behind=[])


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``submit``; return its exit code."""
    from virnucpro.cluster.slurm import script, submissions

    request = _request(arguments)
    if request is None:
        say(f"{arguments.inputs[0]}: complete: nothing to submit")
        return ExitCode.OK
    if arguments.only_print:
        print(script(submissions(request), request), end="")
        return ExitCode.OK
    return _engine(arguments).submit(request)


def _engine(arguments: argparse.Namespace) -> "Engine":
    module, _, name = _ENGINES[arguments.engine].partition(":")
    engine: Engine = getattr(import_module(f"virnucpro.cluster.{module}"), name)()
    return engine


def _request(arguments: argparse.Namespace) -> "Request | None":
    """Return the request, after planning the run if necessary; None for a complete run.

    Without open units the tasks end at once, and the merge writes the tables.
    """
    from virnucpro.cluster.work import is_complete
    from virnucpro.compute.rounds import read_latest_round
    from virnucpro.run.manifest import read_manifest
    from virnucpro.run_dir import RunDirectory

    if arguments.only_print and arguments.engine != "slurm":
        raise UsageError("--print shows the commands of the engine slurm: remove the other engine")
    if arguments.only_print and arguments.outdir is not None:
        raise UsageError("--print needs a planned run: run virnucpro plan first")
    _WorkParser(add_help=False, allow_abbrev=False).check(arguments.work_options)
    if arguments.outdir is not None:  # before a plan, which may take long
        _check_tasks(arguments, arguments.ranks)
        _engine(arguments).check(_request_of(arguments, arguments.outdir, arguments.ranks))
    run = RunDirectory(_planned(arguments))
    read_manifest(run)
    if arguments.outdir is None and is_complete(run):
        return None
    current = read_latest_round(run)
    if arguments.outdir is None:
        _check_tasks(arguments, current.strides)
    return _request_of(arguments, run.root, current.strides)


class _WorkParser(argparse.ArgumentParser):
    """Parser of ``virnucpro work`` for the words of ``--work-options``."""

    def check(self, words: Sequence[str]) -> None:
        """Raise UsageError if ``virnucpro work`` would refuse these options."""
        work_command.add_options(self)
        self.parse_args(["RUN", *words])

    def error(self, message: str) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(f"--work-options: {message}; see virnucpro work --help")


def _request_of(arguments: argparse.Namespace, run: Path, planned: int) -> "Request":
    """Return the request for a run and its planned number of workers."""
    from virnucpro.cluster.request import Request

    return Request(
        run=run,
        program=arguments.program or _this_program(),
        tasks=_tasks(arguments, planned),
        limit=arguments.limit,
        rescues=arguments.rescues,
        work_options=arguments.work_options,
        engine_options=tuple(arguments.behind),
        merge_options=arguments.merge_options,
        lock=getattr(arguments, "lock", True),
        quiet=arguments.quiet,
    )


def _tasks(arguments: argparse.Namespace, planned: int) -> int:
    return int(arguments.tasks or (1 if arguments.engine == "local" else planned))


def _check_tasks(arguments: argparse.Namespace, planned: int) -> None:
    """Check that SLURM takes the number of tasks; commands may be printed without SLURM."""
    from virnucpro.cluster.slurm import require_array

    if arguments.engine != "slurm" or (arguments.only_print and not which("scontrol")):
        return
    try:
        require_array(_tasks(arguments, planned))
    except EngineError as error:
        if not arguments.only_print:
            raise
        say(f"warning: the number of tasks is not compared with MaxArraySize: {error}")


def _planned(arguments: argparse.Namespace) -> Path:
    """Return the absolute path of the run; plan it if there are input files."""
    if arguments.outdir is None:
        if len(arguments.inputs) > 1 or not Path(arguments.inputs[0]).is_dir():
            raise UsageError("give the folder of a planned run, or input files and -o RUN")
        _refuse_plan_options(arguments)
        return Path(arguments.inputs[0]).absolute()
    with open_reporter(quiet=arguments.quiet) as reporter:
        plan = plan_from(arguments, arguments.outdir.absolute(), reporter)
    for warning in plan.warnings:
        say(f"warning: {warning}")
    return plan.root


def _refuse_plan_options(arguments: argparse.Namespace) -> None:
    plain = argparse.ArgumentParser()
    add_plan_options(plain)
    defaults = vars(plain.parse_args([]))
    for name in sorted(plain.get_default("offered") | defaults.keys() - {"offered"}):
        if getattr(arguments, name, None) != defaults.get(name):
            raise UsageError(
                f"--{name.replace('_', '-')} needs input files and -o: this run is planned already "
                "(for tasks, give --work-options)"
            )


def _this_program() -> tuple[str, ...]:
    """Return the command that started this program, with absolute paths."""
    script = Path(sys.argv[0])
    if script.name == "virnucpro" and script.is_file():
        return (str(script.absolute()),)
    return sys.executable, "-P", "-m", "virnucpro"


_ENGINES: Final = {
    "slurm": "slurm:SlurmEngine",
    "local": "request:LocalEngine",
    "ray": "ray_tasks:RayEngine",
}
"""Module and class of each engine."""
