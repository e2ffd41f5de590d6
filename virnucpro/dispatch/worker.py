"""What a user of the dispatcher writes."""

from abc import ABC, abstractmethod
from typing import Any

__all__ = ["BaseWorker"]


class BaseWorker(ABC):
    """Does tasks in a process of its own, with what it has set up once.

    A subclass stands at the top level of a module that can be imported. Its ``__init__`` takes no
    arguments and is light; it runs in the worker's process.
    """

    @abstractmethod
    def setup(self, gpu_id: int, seed: int, **kwargs: Any) -> None:  # noqa: ANN401 - whatever run() was given
        """Prepare once, before the first task: load a model, open files.

        Parameters
        ----------
        gpu_id
            The device to use, as in the dispatcher's `gpu_ids`.
        seed
            Differs from worker to worker.
        **kwargs
            The keyword arguments of `Dispatcher.run` that it does not know itself.
        """

    @abstractmethod
    def process(self, data: Any) -> Any:  # noqa: ANN401 - tasks and results are the user's
        """Do one task, and return its result: anything that can be pickled.

        Bring tensors back from a device (``.cpu()``): the parent would start CUDA to read them. The
        result is copied before the next task begins.
        """

    def cleanup(self) -> None:  # noqa: B027 - few workers need one
        """Put away what `setup` prepared, after the last task."""
