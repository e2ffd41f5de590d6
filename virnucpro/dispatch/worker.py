"""What a user of the dispatcher writes."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

__all__ = ["BaseWorker", "WorkerUnusable"]


class WorkerUnusable(Exception):  # noqa: N818 - a state of the worker, not an error of the task
    """Raised in ``process`` where the worker's process can do nothing more: its device is lost.

    The process ends and is replaced. The task counts as one whose worker died of it: it is begun
    again, as often as the dispatcher's `max_attempts` allows.
    """


class BaseWorker(ABC):
    """Does tasks in a process of its own, with what it has set up once.

    A subclass stands at the top level of a module that can be imported. Its ``__init__`` takes no
    arguments and is light; it runs in the worker's process.

    Attributes
    ----------
    progress_timeout
        Longest time in seconds that a task of this class goes on without `progressed`, where the
        dispatcher is given no other. None, as here, for as long as it takes. The worker's own
        pickling of a result, and unpickling of a task, falls under it, each by itself: longer than
        that for the largest value. The way between the processes does not, while bytes flow.
    """

    progress_timeout: ClassVar[float | None] = None

    _beat: Callable[[], object] = staticmethod(lambda: None)

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

        Raises
        ------
        WorkerUnusable
            To have the worker replaced. Whatever else is raised is the answer to this one task.
        """

    def progressed(self) -> None:
        """Say that the task gets on: a batch is done, a piece was read. Costs next to nothing.

        For a worker with a `progress_timeout`, or of a dispatcher that was given one: should so
        much time pass in a task without this word, the worker hangs. It is ended and replaced; the
        task counts as one whose worker died of it. From any thread; nobody hears it where there is
        no dispatcher.
        """
        self._beat()

    def cleanup(self) -> None:  # noqa: B027 - few workers need one
        """Put away what `setup` prepared, after the last task."""
