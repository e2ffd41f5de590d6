"""Fixtures of the launcher's tests."""

import pytest


@pytest.fixture(scope="module")
def workers(importable):
    """The module of workers that a spawned process can import."""
    return importable("launch_workers")


@pytest.fixture
def files(tmp_path):
    """Return a function that makes a folder of files from names and contents."""

    def make(**contents):
        folder = tmp_path / "in"
        for name, content in contents.items():
            path = folder / (name.replace("__", "/") + ".txt")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return folder

    return make
