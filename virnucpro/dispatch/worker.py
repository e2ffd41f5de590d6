"""Base class of the user's workers, and import of worker classes from files."""

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
"""Of the names of modules outside the import path."""


class WorkerUnusable(Exception):  # noqa: N818 - a state of the worker, not an error of the task
    """Raised in ``process`` if the worker's process cannot continue, such as after a lost device.

    The process ends and is replaced. The task is charged with its death, and retried up to the
    dispatcher's `max_attempts`.
    """


class BaseWorker(ABC):
    """Processes tasks in its own process, after one setup.

    Define a subclass at the top level of a module that can be imported. Its ``__init__`` takes no
    arguments, should be fast, and runs in the worker's process.

    Attributes
    ----------
    progress_timeout
        Maximum seconds in a task between two calls of `progressed`, unless the dispatcher has its
        own limit; None, the default, for no limit. Pickling a result and unpickling a task each
        count as one interval: choose a limit above the time of the largest value. The transfer
        between the processes counts as progress while bytes flow.
    """

    progress_timeout: ClassVar[float | None] = None

    _beat: Callable[[], object] = staticmethod(lambda: None)

    @abstractmethod
    def setup(self, gpu_id: int, seed: int, **kwargs: Any) -> None:  # noqa: ANN401 - whatever run() was given
        """Prepare the worker before its first task: load a model, open files.

        Parameters
        ----------
        gpu_id
            The device to use, as in the dispatcher's `gpu_ids`.
        seed
            Differs from worker to worker.
        **kwargs
            The further keyword arguments of `Dispatcher.run`.
        """

    @abstractmethod
    def process(self, data: Any) -> Any:  # noqa: ANN401 - tasks and results are the user's
        """Process one task and return its result, any object that can be pickled.

        Copy tensors to the CPU (``.cpu()``): the parent would start CUDA to read them. The result
        is copied before the next task starts.

        Raises
        ------
        WorkerUnusable
            Replaces the worker. Any other exception is the answer to this task only.
        """

    def progressed(self) -> None:
        """Report progress within a task, such as a finished batch. Takes less than a microsecond.

        With a `progress_timeout`, of the class or the dispatcher, a worker without such a call for
        that time is hung: it is killed and replaced, and the task is charged with its death. From
        any thread. Does nothing without a dispatcher.
        """
        self._beat()

    def cleanup(self) -> None:  # noqa: B027 - few workers need one
        """Release what `setup` prepared, after the last task."""


def import_file(file: Path) -> ModuleType:
    """Import a file as a module under a unique name.

    Its folder is added at the end of the search path: the file can import its neighbours, and they
    shadow no other module.

    Raises
    ------
    Exception
        Any error of the file's code.
    """
    path = file.absolute()
    name = f"{_PREFIX}{zlib.crc32(bytes(path)):08x}_{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
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
    """Return the file of a class imported by `import_file`, or None."""
    if not worker.__module__.startswith(_PREFIX):
        return None
    return Path(str(sys.modules[worker.__module__].__file__))
