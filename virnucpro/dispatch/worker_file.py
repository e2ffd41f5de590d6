"""Worker classes of files outside the import path, imported under a unique name."""

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


def class_of_file(file: Path, name: str) -> type[BaseWorker]:
    """Return a class of a file; import the file if necessary."""
    return cast("type[BaseWorker]", attrgetter(name)(import_file(file)))
