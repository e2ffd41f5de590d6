"""What the tests of the launcher share."""

import importlib
import sys
from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture
def workers(monkeypatch):
    """Workers that a spawned process can import, without importing pytest again."""
    monkeypatch.syspath_prepend(str(DATA))
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    return importlib.import_module("launch_workers")


@pytest.fixture
def files(tmp_path):
    """Make a folder of files from names and contents."""

    def make(**contents):
        folder = tmp_path / "in"
        for name, content in contents.items():
            path = folder / (name.replace("__", "/") + ".txt")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return folder

    return make
