"""The parts, in their order, and the process that runs one of them."""

import signal
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from gpu_check.recorder import Recorder
from gpu_check.results import LOG
from gpu_check.sizes import SIZES, Setting


class Part(NamedTuple):
    """A part of the check.

    Attributes
    ----------
    module, function
        Below this package; imported in the part's own process.
    seconds
        Longest time.
    """

    module: str
    function: str
    seconds: float


PARTS: Final[dict[str, Part]] = {
    "tests": Part("runs", "check_tests", 130.0),
    "parity": Part("encoders", "check_parity", 120.0),
    "throughput": Part("encoders", "check_throughput", 130.0),
    "predict": Part("runs", "check_predict", 130.0),
    "two_ranks": Part("runs", "check_two_ranks", 90.0),
    "memory": Part("runs", "check_memory", 70.0),
    "killed": Part("runs", "check_killed", 80.0),
}
"""Together longer than the whole check may take: parts usually take about two thirds of this."""


def perform(
    function: Callable[[Setting, Recorder], None], setting: Setting, recorder: Recorder
) -> None:
    """Run a part's function; record an exception as a problem."""
    try:
        function(setting, recorder)
    except Exception as error:  # noqa: BLE001 - the part's figures so far are kept
        traceback.print_exc()
        recorder.problem(f"{type(error).__name__}: {error}")


def _stop(signum: int, _frame: object) -> NoReturn:
    """Leave by an exception, so that the part's own processes are killed."""
    sys.exit(128 + signum)


def main() -> None:
    """Run one part: NAME DEVICE SIZES WORK OUT."""
    name, device, sizes, work, out = sys.argv[1:]
    signal.signal(signal.SIGTERM, _stop)
    part = PARTS[name]
    function = getattr(import_module(f"gpu_check.{part.module}"), part.function)
    setting = Setting(device, SIZES[sizes], Path(work), Path(out) / LOG)
    perform(function, setting, Recorder(name, Path(out)))


if __name__ == "__main__":
    main()
