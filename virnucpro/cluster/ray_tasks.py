"""Engine for clusters without a scheduler: each task is a Ray task, which Ray retries."""

import json
import os
from collections.abc import Mapping
from typing import Any

from virnucpro.cluster.request import PARTIAL, Request, compute_rounds
from virnucpro.errors import EngineError, UsageError
from virnucpro.extras import require_extra
from virnucpro.runtime.program import run_programs

_RETRIES = 3


class RayEngine:
    """Runs the tasks in a Ray cluster, and waits for their end.

    The cluster is that of the variable RAY_ADDRESS; without it, Ray starts one on this machine.
    """

    def check(self, request: Request) -> None:
        """Raise UsageError if Ray is not installed, or an option is invalid."""
        _remote_task(dict(map(_option, request.engine_options)))

    def submit(self, request: Request) -> int:
        """Run tasks in Ray and merges here, for all rounds; return the last merge's exit code.

        Raises
        ------
        UsageError
            As for `check`.
        EngineError
            If the cluster cannot be reached.
        """
        given = dict(map(_option, request.engine_options))
        task = _remote_task(given)
        import ray  # noqa: PLC0415 - optional

        threads = ("--threads", str(given["num_cpus"])) if "num_cpus" in given else ()
        commands = [request.task(number, *threads) for number in range(request.tasks)]

        def run_tasks() -> None:
            waiting = [task.remote(number, words) for number, words in enumerate(commands)]
            ray.wait(waiting, num_returns=len(waiting))  # whatever failed is missing in the merge

        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reports statistics otherwise
        try:
            ray.init(ignore_reinit_error=True)
        except ConnectionError as error:
            raise EngineError(f"no answer from the Ray cluster: {error}") from error
        try:
            return compute_rounds(request, run_tasks)
        finally:
            ray.shutdown()


def _remote_task(given: Mapping[str, Any]) -> Any:  # noqa: ANN401 - Ray is optional
    require_extra("ray", "--engine ray")
    import ray  # noqa: PLC0415 - optional

    options = {"max_retries": _RETRIES, "retry_exceptions": True, **given}
    try:
        return ray.remote(**options)(_run_task)
    except (TypeError, ValueError) as error:
        raise UsageError(f"options of a Ray task: {error}") from error


def _run_task(number: int, words: tuple[str, ...]) -> None:
    """Run task `number` on the machine that Ray chose; an error makes Ray retry the task."""
    [code] = run_programs([words], limit=1)
    if code not in {0, PARTIAL}:
        raise EngineError(f"task {number} ended with exit code {code}")


def _option(word: str) -> tuple[str, Any]:
    name, equals, value = word.partition("=")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        if equals and name:
            return name, value
    raise UsageError(
        f"{word!r} is not NAME=VALUE: give options of a Ray task, such as -- num_gpus=1 num_cpus=8"
    )
