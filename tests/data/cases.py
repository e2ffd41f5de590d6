"""Cases of a test: those of the default run, and those that only the slow run has."""

import os
from collections.abc import Iterable, Mapping

import pytest

TWO_THREADS = ["--threads", "2"] if len(os.sched_getaffinity(0)) > 1 else []
"""Options for two threads; none on one CPU, where a command refuses two."""


def slow(*values, id=None):  # noqa: A002 - as in pytest.param
    """Return a case that the default run leaves out; see scripts/test.sh."""
    return pytest.param(*values, id=id, marks=pytest.mark.slow)


def mostly_slow(cases: Iterable, *often) -> list:
    """Return cases of one argument; those not in `often` are slow."""
    return [case if case in often else slow(case) for case in cases]


def table(cases: Mapping[str, tuple], *often: str) -> list:
    """Return cases of several arguments by their names; those not in `often` are slow."""
    return [
        pytest.param(*values, id=name, marks=() if name in often else pytest.mark.slow)
        for name, values in cases.items()
    ]
