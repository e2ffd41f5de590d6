"""Tasks in a Ray cluster, without Ray."""

import pytest

from virnucpro.cluster.ray_tasks import _run_task
from virnucpro.errors import EngineError


def test_the_error_of_a_task_names_its_number():
    words = ("false", "--task", "3/4", "--threads", "2")
    with pytest.raises(EngineError, match=r"^task 3 ended with exit code 1$"):
        _run_task(3, words)
