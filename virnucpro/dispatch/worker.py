"""Base class of workers, and import of worker classes from Python files."""

import importlib.util
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Generic

if TYPE_CHECKING:  # the default is for a BaseWorker without type parameters
    from typing_extensions import TypeVar

    Task = TypeVar("Task", default=Any)
    Result = TypeVar("Result", default=Any)
else:
    from typing import TypeVar

    Task, Result = TypeVar("Task"), TypeVar("Result")

_PREFIX = "virnucpro_worker_"
"""Prefix of the names of modules that `import_file` imports."""


class WorkerUnusable(Exception):  # noqa: N818 - a state of the worker, not an error of the task
    """Error to raise in ``process`` if the worker cannot continue, for example after a GPU error.

    The worker process ends and a new process replaces it. The task has failed one attempt; a task
    has at most `max_attempts` attempts (parameter of the dispatcher).
    """


class BaseWorker(ABC, Generic[Task, Result]):
    """Base class of a worker, which runs one setup and then tasks in its own process.

    A type checker knows the types of tasks and results from ``BaseWorker[Task, Result]``; without
    parameters, both are Any.

    Define a subclass at the top level of a module that can be imported. Its ``__init__`` must have
    no arguments and should be fast; it runs in the worker's process.

    Attributes
    ----------
    progress_timeout
        Maximum seconds between two calls of `progressed` in a task; None (default) for no limit.
        The parameter `progress_timeout` of the dispatcher has priority. While the worker pickles a
        result or unpickles a task, it cannot report progress: choose a limit above the time that
        the largest value needs. The transfer of bytes between processes counts as progress.
    """

    progress_timeout: ClassVar[float | None] = None

    _beat: Callable[[], object] = staticmethod(lambda: None)

    # Type checkers accept any parameters of an override: setup(self, gpu_id, seed, *, power).
    @abstractmethod
    def setup(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - of the subclass
        """Prepare the worker before its first task: load a model, open files.

        It is called as ``setup(gpu_id, seed, **kwargs)``; a subclass names these parameters.

        The dispatcher gives ``gpu_id``, the number of the device to use (from its `gpu_ids`),
        ``seed``, a seed for random numbers that differs for each worker, and the additional keyword
        arguments of `Dispatcher.run`.
        """

    @abstractmethod
    def process(self, data: Task) -> Result:
        """Process one task and return its result, any object that can be pickled.

        Copy tensors to the CPU (``.cpu()``); otherwise the parent must initialize CUDA to read
        them. The result is copied before the next task starts.

        Raises
        ------
        WorkerUnusable
            If this worker process must end; a new process replaces it. Any other exception becomes
            the answer to this task, and the worker continues.
        """

    def progressed(self) -> None:
        """Report progress within a task, for example a finished batch; takes under a microsecond.

        If a task makes no call within `progress_timeout` (of the class or the dispatcher), the
        worker is treated as hung. It is killed and replaced, and the task has failed one attempt.
        Any thread may call this method. Without a dispatcher, the call has no effect.
        """
        self._beat()

    def cleanup(self) -> None:
        """Release the resources of `setup`; called once after the last task."""


def import_file(file: Path) -> ModuleType:
    """Import a Python file as a module with a unique name; return the module.

    The folder of the file is added to the end of ``sys.path``, so that the file can import other
    modules of this folder. Installed modules with the same name have priority.

    Raises
    ------
    Exception
        Any error that the code of the file raises.
    """
    path = file.absolute()
    name = f"{_PREFIX}{zlib.crc32(bytes(path)):08x}_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def file_of(worker: type[BaseWorker]) -> Path | None:
    """Return the Python file of a worker class; None if `import_file` did not import the class."""
    if not worker.__module__.startswith(_PREFIX):
        return None
    return Path(str(sys.modules[worker.__module__].__file__))
