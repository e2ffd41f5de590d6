"""Engine for clusters without a scheduler: each task is a Ray task, which Ray retries."""

import json
import os
from collections.abc import Mapping
from typing import Any

from virnucpro.cluster.request import PARTIAL, Request
from virnucpro.errors import EngineError, UsageError
from virnucpro.extras import require_extra
from virnucpro.runtime.program import run_programs

_RETRIES = 3


class RayEngine:
    """Runs the tasks in a Ray cluster, and waits for their end.

    The cluster is that of the variable RAY_ADDRESS; without it, Ray starts one on this machine.
    """

    def submit(self, request: Request) -> int:
        """Run tasks in Ray and the aggregation here; return the exit code of the latter.

        Raises
        ------
        UsageError
            If Ray is not installed, or an option of a Ray task is invalid.
        EngineError
            If the cluster cannot be reached.
        """
        given = dict(map(_option, request.engine_options))
        task = _remote_task(given)
        import ray  # noqa: PLC0415 - optional

        threads = ("--threads", str(given["num_cpus"])) if "num_cpus" in given else ()
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reports statistics otherwise
        try:
            ray.init(ignore_reinit_error=True)
        except ConnectionError as error:
            raise EngineError(f"no answer from the Ray cluster: {error}") from error
        try:
            waiting = [task.remote(words, os.getcwd()) for words in request.numbered(*threads)]  # noqa: PTH109 - as text
            ray.wait(waiting, num_returns=len(waiting))  # what failed is missing in the tables
        finally:
            ray.shutdown()
        [code] = run_programs([request.aggregation], limit=1)
        return code


def _remote_task(given: Mapping[str, Any]) -> Any:  # noqa: ANN401 - Ray is optional
    require_extra("ray", "--engine ray")
    import ray  # noqa: PLC0415 - optional

    options = {"max_retries": _RETRIES, "retry_exceptions": True, **given}
    try:
        return ray.remote(**options)(_run_task)
    except (TypeError, ValueError) as error:
        raise UsageError(f"options of a Ray task: {error}") from error


def _run_task(words: tuple[str, ...], folder: str) -> None:
    """Run a task on the machine that Ray chose; an error makes Ray retry the task."""
    [code] = run_programs([words], limit=1, folder=folder)
    if code not in {0, PARTIAL}:
        raise EngineError(f"a task ended with exit code {code}")


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
