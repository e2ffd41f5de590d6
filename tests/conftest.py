"""What all tests share."""

import os
from pathlib import Path

import pytest

_SHARED = Path(os.environ.get("VIRNUCPRO_SHARED", Path(__file__).parents[2] / "shared"))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with the real genomes and the reference output."""
    if not (_SHARED / "genomes" / "genomes.tsv").is_file():
        pytest.skip(f"no real data at {_SHARED}: point VIRNUCPRO_SHARED at the shared folder")
    return _SHARED
