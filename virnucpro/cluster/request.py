"""Interface of the engines: what they start, and how a new engine fits in.

An engine starts ``virnucpro work RUN --task K/N`` for each K, waits until all of these have ended,
however they ended, and starts ``virnucpro merge RUN``. If rescue rounds remain and the merge ends
with exit code 2, it does so again: tasks with nothing to do end at once. An engine need not look
into a run, keep a state or restart tasks. A lost, killed or duplicated task is harmless.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from virnucpro.errors import UsageError
from virnucpro.runtime.program import run_programs

PARTIAL: Final = 2
"""Exit code of a merge whose run lacks results."""


@dataclass(frozen=True, slots=True)
class Request:
    """Tasks and merges of one run.

    Attributes
    ----------
    run
        Absolute path of the planned run.
    program
        Command that starts virnucpro on the machines of the tasks.
    tasks
        Number of tasks.
    limit
        Maximum number of tasks at once; None for no limit.
    rescues
        Number of further rounds for units that a round leaves missing.
    work_options
        Options of ``virnucpro work``.
    engine_options
        Options of the engine, in its own syntax.
    merge_options
        Options of the engine for merges alone.
    lock
        Whether merges lock the run.
    quiet
        Whether tasks and merges print only warnings and errors.
    """

    run: Path
    program: tuple[str, ...]
    tasks: int
    limit: int | None = None
    rescues: int = 1
    work_options: tuple[str, ...] = ()
    engine_options: tuple[str, ...] = ()
    merge_options: tuple[str, ...] = ()
    lock: bool = True
    quiet: bool = False

    def work(self, *options: str) -> tuple[str, ...]:
        """Return the command of a task; without ``--task``, the task reads its environment."""
        return (*self._command("work"), *options, *self.work_options)

    def task(self, number: int, *options: str) -> tuple[str, ...]:
        """Return the command of task `number`."""
        return self.work("--task", f"{number}/{self.tasks}", *options)

    def merge(self, round_: int) -> tuple[str, ...]:
        """Return the command of the merge after round `round_`, counted from 0."""
        rescue = ("--then-rescue",) if round_ < self.rescues else ()
        no_lock = () if self.lock else ("--no-lock",)
        return (*self._command("merge"), *rescue, *no_lock)

    def _command(self, name: str) -> tuple[str, ...]:
        return (*self.program, name, str(self.run), *(("--quiet",) if self.quiet else ()))


class Engine(Protocol):
    """Starts the tasks and merges of a run."""

    def check(self, request: Request) -> None:
        """Check the request before the run is planned.

        Raises
        ------
        UsageError
            If an option is invalid, or the engine is not installed.
        """

    def submit(self, request: Request) -> int:
        """Start the tasks and merges; return the exit code of the command.

        An engine with a queue of its own returns 0 when all is queued. Other engines return the
        exit code of the last merge.

        Raises
        ------
        UsageError
            As for `check`.
        EngineError
            If the engine fails to start tasks.
        """


def compute_rounds(request: Request, run_tasks: Callable[[], object]) -> int:
    """Compute all rounds on machines that the caller uses; return the last merge's exit code.

    Parameters
    ----------
    run_tasks
        Runs the tasks of one round, and returns when all have ended.
    """
    code = PARTIAL
    for number in range(request.rescues + 1):
        run_tasks()
        [code] = run_programs([request.merge(number)], limit=1)
        if code != PARTIAL:
            break
    return code


class LocalEngine:
    """Runs the tasks as processes of this machine, and waits for their end."""

    def check(self, request: Request) -> None:
        """Raise UsageError if there are options of a scheduler."""
        if request.engine_options or request.merge_options:
            raise UsageError("the engine local has no options of a scheduler: remove them")

    def submit(self, request: Request) -> int:
        """Run tasks and merges of all rounds; return the exit code of the last merge.

        Raises
        ------
        UsageError
            As for `check`.
        """
        self.check(request)
        commands = [request.task(number) for number in range(request.tasks)]
        limit = min(request.limit or request.tasks, request.tasks)
        return compute_rounds(request, lambda: run_programs(commands, limit))
