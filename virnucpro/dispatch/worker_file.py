"""A worker class in a file that lies anywhere: imported under a name of its own, in any process."""

import importlib.util
import sys
import zlib
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import cast

from virnucpro.dispatch.worker import BaseWorker

__all__ = ["class_of_file", "file_of", "import_file"]

_PREFIX = "virnucpro_worker_"


def import_file(file: Path) -> ModuleType:
    """Import a file as a module that shadows no other one, whatever it is called.

    Its folder is searched last, so that the modules beside it are found and shadow nothing.

    Raises
    ------
    Exception
        Whatever the file raises.
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
    """Say which file a class was imported from by `import_file`, if it was."""
    if not worker.__module__.startswith(_PREFIX):
        return None
    return Path(str(sys.modules[worker.__module__].__file__))


def class_of_file(file: Path, name: str) -> type[BaseWorker]:
    """Give a file's class, in a process that may not have imported the file yet."""
    return cast("type[BaseWorker]", attrgetter(name)(import_file(file)))
