"""Reports of a running part. Each call saves them, so that a timeout loses nothing."""

import time
from pathlib import Path

from gpu_check.results import PartResult, Results, Value


class Recorder:
    """Collects the figures and problems of one part.

    Parameters
    ----------
    name
        The part's.
    out
        Folder of the results.

    Attributes
    ----------
    results
        Those of all parts so far.
    """

    def __init__(self, name: str, out: Path) -> None:
        self.results = Results.load(out)
        self._part = self.results.parts[name] = PartResult("not run")
        self._name, self._out, self._started = name, out, time.monotonic()

    def step(self, text: str) -> None:
        """Print what the part does next."""
        print(f"  [{time.monotonic() - self._started:6.1f} s] {self._name}: {text}", flush=True)

    def figure(self, row: str, **columns: Value) -> None:
        """Add columns to a row of the part's table; an underscore in a name becomes a space."""
        named = {name.replace("_", " "): value for name, value in columns.items()}
        self._part.figures.setdefault(row, {}).update(named)
        self.results.save(self._out)

    def problem(self, text: str) -> None:
        """Report a failure or a disagreement; the part continues."""
        self.step(f"PROBLEM: {text}")
        self._part.problems.append(text)
        self.results.save(self._out)

    def require(self, condition: bool, text: str) -> None:  # noqa: FBT001 - as assert
        """Report a problem unless `condition` holds."""
        if not condition:
            self.problem(text)
