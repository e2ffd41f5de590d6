"""From ``package.module:Class`` to a worker, and what a worker is told."""

import importlib
import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from virnucpro.dispatch import BaseWorker
from virnucpro.dispatch.worker_file import import_file
from virnucpro.errors import UsageError

__all__ = ["accepted", "load_worker"]

_DEFAULT_CLASS = "Worker"


def load_worker(spec: str) -> type[BaseWorker]:
    """Import a worker class.

    Parameters
    ----------
    spec
        ``package.module:Class``, or ``path/to/file.py:Class``. ``Worker`` where no class is named.

    Raises
    ------
    UsageError
        When there is no such module or class, it cannot be imported, or it is no `BaseWorker`.
    """
    module_name, _, class_name = spec.partition(":")
    class_name = class_name or _DEFAULT_CLASS
    file = Path(module_name) if module_name.endswith(".py") else None
    if file is not None and not file.is_file():
        raise UsageError(f"worker {str(file)!r}: there is no such file.")
    try:
        module = importlib.import_module(module_name) if file is None else import_file(file)
    except Exception as error:
        raise UsageError(
            f"worker {spec!r} cannot be imported ({type(error).__name__}: {error}). Give "
            "package.module:Class, or path/to/file.py:Class."
        ) from error
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, BaseWorker)):
        raise UsageError(
            f"worker {spec!r}: {module_name} has no class {class_name} that is a "
            "virnucpro.dispatch.BaseWorker."
        )
    return found


def accepted(worker: type[BaseWorker], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the keywords that a worker's `setup` takes."""
    parameters = inspect.signature(worker.setup).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return dict(offered)
    return {name: value for name, value in offered.items() if name in parameters}
