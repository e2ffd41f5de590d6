"""Call of a function in a separate process, for input files that may crash the program."""

import resource
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar, cast

from virnucpro.errors import UsageError, VirnucproError, WorkerError
from virnucpro.runtime.devices import Device
from virnucpro.runtime.gpu_coordinator import GPUProcessCoordinator
from virnucpro.runtime.messages import WorkerChannel
from virnucpro.runtime.status import NO_MAIN_GUARD
from virnucpro.runtime.watchdog import Deadlines
from virnucpro.temporary import owned_prefix

T = TypeVar("T")

_PAGE_BYTES: Final = resource.getpagesize()


def run_isolated(
    function: Callable[..., T], *arguments: object, n_bytes: int = 4 << 30, seconds: float = 600.0
) -> T:
    """Call ``function(*arguments)`` in a spawned process and return its result.

    Parameters
    ----------
    function
        A function at the top level of a module. Arguments and result must be picklable.
    n_bytes
        Maximum memory in bytes that the call may allocate; the memory of imports is not included.
    seconds
        Maximum duration in seconds, including the start of the process and the imports.

    Raises
    ------
    VirnucproError
        If the function raises a VirnucproError, which is raised unchanged.
    UsageError
        If the main script of this process lacks the main guard.
    WorkerError
        If the function raises any other exception, or the process dies or exceeds a limit.
    """
    with (
        tempfile.TemporaryDirectory(prefix=owned_prefix("isolated")) as folder,
        GPUProcessCoordinator(
            1, folder, [Device("cpu")], threads=1, deadlines=Deadlines(start=seconds)
        ) as coordinator,
    ):
        coordinator.spawn_workers(_call, (function, arguments, n_bytes))
        coordinator.wait_for_completion()
        results, status = coordinator.collect_results(), coordinator.statuses[0]
    if status.kind == NO_MAIN_GUARD:
        raise UsageError(status.reason)
    if not status.succeeded:
        late = status.kind == "Hang"
        raise WorkerError(f"exceeded its limit of {seconds:g} s" if late else status.reason)
    (result,) = results
    if isinstance(result, VirnucproError):
        raise result
    return cast("T", result)


def _call(
    rank: int,  # noqa: ARG001 - the coordinator's first two arguments
    world_size: int,  # noqa: ARG001 - as above
    channel: WorkerChannel,
    function: Callable[..., object],
    arguments: tuple[object, ...],
    n_bytes: int,
) -> None:
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_AS)  # of the shell, or of a scheduler
    soft = in_use + n_bytes if hard == resource.RLIM_INFINITY else min(in_use + n_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        result = function(*arguments)
    except VirnucproError as error:
        channel.put(error)
    else:
        channel.put(result)
