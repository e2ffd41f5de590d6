"""Interface of the engines: what they start, and how a new engine fits in.

An engine starts ``predict --task K/N`` for each K, waits until all of these have ended, however
they ended, and starts ``aggregate``. It need not look into a run, keep a state or restart tasks: a
lost, killed or doubled task is harmless, and the same command again computes what is missing.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from virnucpro.errors import UsageError
from virnucpro.runtime.program import run_programs

PARTIAL: Final = 2
"""Exit code of a command whose run lacks results."""

_OF_BOTH: Final = {"-q", "--quiet", "--no-lock"}
_OF_TABLES: Final = {"--no-report", "--fail-empty"}


@dataclass(frozen=True, slots=True)
class Request:
    """A run, its tasks, and how they are started.

    Attributes
    ----------
    words
        ``predict`` or ``embed`` with all its arguments.
    outdir
        Folder of the run.
    program
        Command that starts virnucpro on the machines of the tasks.
    tasks
        Number of tasks.
    limit
        Maximum number of tasks at once; None for no limit.
    engine_options
        Options of the engine, in its own syntax.
    """

    words: tuple[str, ...]
    outdir: str
    program: tuple[str, ...]
    tasks: int
    limit: int | None = None
    engine_options: tuple[str, ...] = ()

    def task(self, task: str, *options: str) -> tuple[str, ...]:
        """Return the command of a task: ``K/N``, or ``auto`` if its environment has the number."""
        command, *arguments = self.words
        return (*self.program, command, "--task", task, *options, *arguments)

    def numbered(self, *options: str) -> list[tuple[str, ...]]:
        """Return the commands of all tasks."""
        return [self.task(f"{number}/{self.tasks}", *options) for number in range(self.tasks)]

    @property
    def aggregation(self) -> tuple[str, ...]:
        """The command that writes the tables."""
        shared = [word for word in self.words if word in _OF_BOTH | _OF_TABLES]
        return (*self.program, "aggregate", self.outdir, *shared)


class Engine(Protocol):
    """Starts the tasks of a run, and the aggregation after them."""

    def submit(self, request: Request) -> int:
        """Start all; return the exit code of the command.

        An engine with a queue of its own returns 0 when all is queued. Other engines return the
        exit code of the aggregation.

        Raises
        ------
        UsageError
            If an option is invalid, or the engine is not installed.
        EngineError
            If the engine fails to start tasks.
        """


class LocalEngine:
    """Runs the tasks as processes of this machine, and waits for their end."""

    def submit(self, request: Request) -> int:
        """Run tasks and aggregation; raise UsageError if there are options of a scheduler."""
        if request.engine_options:
            raise UsageError("the engine local has no options of a scheduler: remove them")
        run_programs(request.numbered(), min(request.limit or request.tasks, request.tasks))
        [code] = run_programs([request.aggregation], limit=1)
        return code
