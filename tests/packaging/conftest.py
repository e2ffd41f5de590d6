"""The tools that build and check packages, in environments of their own."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def root():
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def packaging():
    """The folder with the definitions of packages."""
    return ROOT / "scripts" / "packaging"


@pytest.fixture(scope="session")
def tool():
    """Return a function that returns the path of a program in .venv-packaging."""

    def path(name, environment="tools"):
        program = ROOT / ".venv-packaging" / environment / "bin" / name
        if not program.exists():
            pytest.fail(f"no {program}: run bash scripts/packaging/setup.sh")
        return program

    return path


@pytest.fixture(scope="session")
def identity():
    """The environment of a git commit."""
    names = {
        f"GIT_{who}_{what}": "virnucpro"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    return {**os.environ, **names}


@pytest.fixture
def on_path(tmp_path_factory):
    """An environment with the program virnucpro on PATH, and nothing else of its environment."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "virnucpro").symlink_to(Path(sys.executable).with_name("virnucpro"))
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
