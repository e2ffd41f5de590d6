"""From ``package.module:Class`` to a worker, and what a worker is told."""

import importlib
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from virnucpro.dispatch import BaseWorker
from virnucpro.errors import UsageError

__all__ = ["accepted", "load_worker"]

_DEFAULT_CLASS = "Worker"


def load_worker(spec: str) -> type[BaseWorker]:
    """Import a worker class.

    Parameters
    ----------
    spec
        ``package.module:Class``, or ``path/to/file.py:Class``, whose folder becomes one that is
        imported from, here and in the workers. ``Worker`` where no class is named.

    Raises
    ------
    UsageError
        When there is no such module or class, or it is no `BaseWorker`.
    """
    module_name, _, class_name = spec.partition(":")
    class_name = class_name or _DEFAULT_CLASS
    if module_name.endswith(".py"):
        module_name = _importable(Path(module_name))
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise UsageError(
            f"worker {spec!r} cannot be imported ({error}). Give package.module:Class, or "
            "path/to/file.py:Class."
        ) from error
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, BaseWorker)):
        raise UsageError(
            f"worker {spec!r}: {module_name} has no class {class_name} that is a "
            "virnucpro.dispatch.BaseWorker."
        )
    return found


def _importable(file: Path) -> str:
    if not file.is_file():
        raise UsageError(f"worker {str(file)!r}: there is no such file.")
    sys.path.insert(0, str(file.parent.absolute()))
    return file.stem


def accepted(worker: type[BaseWorker], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the keywords that a worker's `setup` takes."""
    parameters = inspect.signature(worker.setup).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return dict(offered)
    return {name: value for name, value in offered.items() if name in parameters}
