import math
import os
import signal
import sys
import time

import pytest
from cases import slow
from programs import run_captured

from virnucpro.errors import UsageError, WorkerError
from virnucpro.runtime.isolation import run_isolated
from virnucpro.sequences.translation import genetic_code


def test_the_result_of_another_process_is_returned():
    assert run_isolated(math.sqrt, 4.0) == 2.0
    assert run_isolated(os.getpid) != os.getpid()


def test_a_hard_limit_of_the_shell_or_scheduler_stays(tmp_path):
    """No process may raise it. Source: ``ulimit -v``, and ``h_vmem`` of Grid Engine."""
    script = tmp_path / "script.py"
    script.write_text(
        "import resource\n"
        "from virnucpro.runtime.isolation import run_isolated\n"
        "if __name__ == '__main__':\n"
        "    resource.setrlimit(resource.RLIMIT_AS, (20 << 30, 40 << 30))\n"
        "    print(*run_isolated(resource.getrlimit, resource.RLIMIT_AS, n_bytes=1 << 40))\n"
    )
    done = run_captured(sys.executable, script)
    assert done.stdout.split() == [str(40 << 30)] * 2, done.stderr


def test_an_error_of_this_package_is_raised_in_the_caller():
    with pytest.raises(UsageError, match="999"):
        run_isolated(genetic_code, 999)


@pytest.mark.parametrize(
    ("function", "arguments", "reason"),
    [
        (signal.raise_signal, (signal.SIGSEGV,), "SIGSEGV"),
        slow(os._exit, (3,), "code 3"),
        (math.sqrt, (-1.0,), "ValueError"),
        slow(bytearray, (1 << 40,), "MemoryError"),
    ],
)
def test_a_crash_is_an_error_with_its_reason(function, arguments, reason):
    with pytest.raises(WorkerError, match=reason):
        run_isolated(function, *arguments)


def test_a_call_that_exceeds_its_limit_is_ended():
    with pytest.raises(WorkerError, match=r"^exceeded its limit of 1 s$"):
        run_isolated(time.sleep, 60, seconds=1.0)
