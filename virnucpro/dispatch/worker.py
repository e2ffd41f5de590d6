"""Base class of workers, and import of worker classes from Python files."""

import importlib.util
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

__all__ = ["BaseWorker", "WorkerUnusable", "file_of", "import_file"]

_PREFIX = "virnucpro_worker_"
"""Prefix of the names of modules that `import_file` imports."""


class WorkerUnusable(Exception):  # noqa: N818 - a state of the worker, not an error of the task
    """Raise this in ``process`` if the process cannot continue, for example after a device error.

    The process ends and is replaced. The task has failed one attempt; it is retried up to the
    dispatcher's `max_attempts`.
    """


class BaseWorker(ABC):
    """Base class of a worker: it processes tasks in its own process, after one setup.

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

    @abstractmethod
    def setup(self, gpu_id: int, seed: int, **kwargs: Any) -> None:  # noqa: ANN401 - whatever run() was given
        """Prepare the worker before its first task: load a model, open files.

        Parameters
        ----------
        gpu_id
            Number of the device to use, from the dispatcher's `gpu_ids`.
        seed
            Seed for random numbers; each worker gets a different seed.
        **kwargs
            Additional keyword arguments of `Dispatcher.run`.
        """

    @abstractmethod
    def process(self, data: Any) -> Any:  # noqa: ANN401 - tasks and results are the user's
        """Process one task and return its result, any object that can be pickled.

        Copy tensors to the CPU (``.cpu()``); otherwise the parent must initialize CUDA to read
        them. The result is copied before the next task starts.

        Raises
        ------
        WorkerUnusable
            Ends this worker process; a new process replaces it. Any other exception is the answer
            to this task and the worker continues.
        """

    def progressed(self) -> None:
        """Report progress within a task, for example a finished batch; takes under a microsecond.

        If the class or the dispatcher has a `progress_timeout`, a worker without a call for that
        time is treated as hung: it is killed and replaced, and the task has failed one attempt. Any
        thread may call this. Without a dispatcher it has no effect.
        """
        self._beat()

    def cleanup(self) -> None:  # noqa: B027 - few workers need one
        """Release the resources of `setup`; called once after the last task."""


def import_file(file: Path) -> ModuleType:
    """Import a Python file as a module with a unique name; return the module.

    The folder of the file is added to the end of ``sys.path``: the file can import other modules of
    this folder, and these do not hide installed modules.

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
