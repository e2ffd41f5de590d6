"""Compute a run with many tasks on a cluster: predict or embed in each task, then the tables.

Put this command and its options before a command of one machine: virnucpro submit --tasks 64
predict contigs.fa -o DIR. Submit it again to compute what is missing. The engine slurm submits an
array of tasks and a job that writes the tables after them; it prints both sbatch commands. The
engines local and ray wait for the end.

Words behind -- belong to the engine: options of sbatch, or arguments of a Ray task such as
num_gpus=1.
"""

import argparse
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from virnucpro.cli import options
from virnucpro.cli.commands import embed_command, predict_command
from virnucpro.errors import InputError, UsageError
from virnucpro.option import positive
from virnucpro.run.execution import Execution
from virnucpro.task import Task

if TYPE_CHECKING:
    from virnucpro.cluster.request import Engine

_ENGINES: Final = {
    "slurm": "slurm:SlurmEngine",
    "local": "request:LocalEngine",
    "ray": "ray_tasks:RayEngine",
}
"""Module and class of each engine."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command ``submit``."""
    text = "number of tasks: several per node balance the load"
    parser.add_argument("--tasks", type=positive, required=True, metavar="N", help=text)
    text = "maximum number of tasks at once; default: no limit"
    parser.add_argument("--limit", type=positive, metavar="M", help=text)
    text = "default: %(default)s"
    parser.add_argument("--engine", choices=[*_ENGINES], default="slurm", help=text)
    text = (
        "start of virnucpro on the nodes, such as --program='apptainer exec image.sif virnucpro'; "
        "default: the path of this program"
    )
    parser.add_argument("--program", type=_words, metavar="TEXT", help=text)
    parser.set_defaults(behind=[])
    commands = parser.add_subparsers(required=True, metavar="COMMAND", action=_Command)
    for module in (predict_command, embed_command):
        name = module.__name__.rpartition(".")[2].removesuffix("_command")
        command = commands.add_parser(name, help=f"as virnucpro {name}", description=module.__doc__)
        module.add_options(command)


class _Command(argparse._SubParsersAction):  # type: ignore[type-arg] # noqa: SLF001 - has no public name
    """Keeps the words of the command, for the tasks."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        """Parse the words, and store them."""
        super().__call__(parser, namespace, values, option_string)
        namespace.words = values


def _words(text: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def run(arguments: argparse.Namespace) -> int:
    """Run the command ``submit``; return its exit code."""
    from virnucpro.cluster.request import Request

    if "task" in arguments:
        raise UsageError("--task: virnucpro submit numbers the tasks; remove it")
    Execution(**options.chosen(Execution, arguments), task=Task(0, arguments.tasks))
    for name in arguments.inputs:
        if not Path(name).exists():
            raise InputError(f"{name}: no such file. Check the path.")
    request = Request(
        words=tuple(arguments.words),
        outdir=str(arguments.outdir),
        program=arguments.program or _this_program(),
        tasks=arguments.tasks,
        limit=arguments.limit,
        engine_options=tuple(arguments.behind),
    )
    module, _, name = _ENGINES[arguments.engine].partition(":")
    engine: Engine = getattr(import_module(f"virnucpro.cluster.{module}"), name)()
    return engine.submit(request)


def _this_program() -> tuple[str, ...]:
    """Return the command that started this program, with absolute paths."""
    script = Path(sys.argv[0])
    if script.name == "virnucpro" and script.is_file():
        return (str(script.absolute()),)
    return sys.executable, "-P", "-m", "virnucpro"
