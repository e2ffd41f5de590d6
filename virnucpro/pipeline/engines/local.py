"""Engine for one machine without a scheduler: each task is a process."""

from virnucpro.errors import UsageError
from virnucpro.pipeline.engines.request import Request, compute_rounds
from virnucpro.runtime.program import run_programs

__all__ = ["LocalEngine"]


class LocalEngine:
    """Runs the tasks as processes of this machine, and waits for their end."""

    def submit(self, request: Request) -> int:
        """Run tasks and merges of all rounds; return the exit code of the last merge.

        Raises
        ------
        UsageError
            If there are options behind ``--``.
        """
        if request.engine_options or request.merge_options:
            raise UsageError("the engine local has no options of a scheduler: remove them")
        commands = [request.task(number) for number in range(request.tasks)]
        limit = min(request.limit or request.tasks, request.tasks)
        return compute_rounds(request, lambda: run_programs(commands, limit))
