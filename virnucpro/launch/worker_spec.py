"""Worker classes of a launch: base class, import by name, selection of keyword arguments."""

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from virnucpro.console import described
from virnucpro.dispatch import BaseWorker
from virnucpro.dispatch.worker import import_file
from virnucpro.errors import UsageError
from virnucpro.runtime.devices import Kind

DEFAULT_WORKER = "virnucpro.predict"
"""Default worker of a launch; it does the same as ``virnucpro predict``."""

_MODULES = {DEFAULT_WORKER: "virnucpro.predict_worker"}
_DEFAULT_CLASS = "Worker"

_MEMORY_BYTES = 1 << 29
"""Default memory of a worker in bytes: enough for torch and a small model."""


class FileWorker(BaseWorker):
    """Base class of workers with class methods (hooks) that a launch calls in the parent.

    A launch calls them before the workers start.
    """

    @classmethod
    def prepare(cls, device: Kind, output_dir: Path, keywords: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG003 - for subclasses
        """Return the keyword arguments for `setup`; by default, a copy of `keywords`.

        A subclass can change the arguments here, or do work that all workers need only once.
        """
        return dict(keywords)

    @classmethod
    def uses_gpu(cls, keywords: Mapping[str, Any]) -> bool:  # noqa: ARG003 - for subclasses
        """Return whether the workers compute on a GPU if there is one; `keywords` as below."""
        return True

    @classmethod
    def finished(
        cls,
        data: str,  # noqa: ARG003 - for subclasses
        input_dir: Path,  # noqa: ARG003 - for subclasses
        output_dir: Path,  # noqa: ARG003 - for subclasses
        keywords: Mapping[str, Any],  # noqa: ARG003 - for subclasses
    ) -> dict[str, Any] | None:
        """Return the result of a file that an earlier launch has processed; None to process it.

        `keywords` are the keyword arguments that `prepare` returned. By default, None.
        """
        return None

    @classmethod
    def memory_bytes(cls, keywords: Mapping[str, Any]) -> int:  # noqa: ARG003 - for subclasses
        """Return the memory in bytes that one CPU worker needs.

        `keywords` are the keyword arguments that `prepare` returned.

        With ``gpus="auto"``, all CPU workers together use at most half of the usable memory.
        """
        return _MEMORY_BYTES


def load_worker(worker: str | type[BaseWorker]) -> type[BaseWorker]:
    """Import the worker class with the given name; return a class argument unchanged.

    Parameters
    ----------
    worker
        A class, ``package.module:Class`` or ``path/to/file.py:Class``; the default class name is
        ``Worker``.

    Raises
    ------
    UsageError
        If `worker` is not a `BaseWorker`, or cannot be imported.
    """
    if not isinstance(worker, str):
        return _checked(worker, f"{worker!r} is not a worker class")
    module_name, _, class_name = worker.partition(":")
    class_name = class_name or _DEFAULT_CLASS
    file = Path(module_name) if module_name.endswith(".py") else None
    if file is not None and not file.is_file():
        raise UsageError(f"worker {worker!r}: the file {str(file)!r} does not exist.")
    try:
        module = (
            importlib.import_module(_MODULES.get(module_name, module_name))
            if file is None
            else import_file(file)
        )
    except Exception as error:
        raise UsageError(
            f"worker {worker!r} cannot be imported ({described(error)}). Give "
            "package.module:Class or path/to/file.py:Class."
        ) from error
    found = getattr(module, class_name, None)
    return _checked(found, f"worker {worker!r}: {module_name} has no worker class {class_name}")


def _checked(worker: object, message: str) -> type[BaseWorker]:
    if isinstance(worker, type) and issubclass(worker, BaseWorker):
        return worker
    raise UsageError(f"{message}: give a subclass of virnucpro.dispatch.BaseWorker.")


def accepted_keywords(worker: type[BaseWorker], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dict of the arguments in `offered` that the worker's ``setup`` accepts."""
    parameters = inspect.signature(worker.setup).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return dict(offered)
    return {name: value for name, value in offered.items() if name in parameters}
