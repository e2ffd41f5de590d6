"""Fixtures of the Python API: a run that several tests read, and an own temporary folder."""

import random
import tempfile

import pytest

import virnucpro

DICE = random.Random(14)
PAIRS = [
    ("NA", "".join(DICE.choices("ACGT", k=1300))),
    ("é|b", "".join(DICE.choices("ACGT", k=700))),
    ("too_short", "ACGTACGT"),
    ("<b>&amp;", "".join(DICE.choices("ACGT", k=500))),
]


@pytest.fixture(scope="session")
def pairs():
    return PAIRS


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """Result of a run that keeps its vectors and has a sequence without any."""
    outdir = tmp_path_factory.mktemp("api") / "run"
    return virnucpro.classify(PAIRS, outdir=outdir, embeddings="fp32", threads=1)


@pytest.fixture
def own_temporary_folder(tmp_path_factory, monkeypatch):
    """The folder for temporary files of one test, without those of other libraries."""
    folder = tmp_path_factory.mktemp("own")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture(params=["pandas", "numpy"])
def tables(request, monkeypatch, needs):
    """The library of the tables: once pandas, if it is installed, and once NumPy alone."""
    if request.param == "pandas":
        needs("pandas")
    else:
        monkeypatch.setattr("virnucpro.api.tables.find_spec", lambda _: None)
    return request.param
