"""Engine for SLURM: an array, a dependent job, requeues; no process of ours remains."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Final

from virnucpro.cluster.request import Request
from virnucpro.errors import EngineError, UsageError
from virnucpro.runtime.program import output_of

_SCRIPT: Final = Path(__file__).with_name("task.sh")

_SET_HERE: Final = {"array": "a", "dependency": "d", "parsable": "", "wrap": "", "test-only": ""}
"""Options of sbatch that the engine sets, and their letters."""

_OF_AGGREGATION: Final = {
    "account": "A",
    "partition": "p",
    "qos": "q",
    "clusters": "M",
    "reservation": "",
    "container": "",
    "export": "",
    "chdir": "D",
    "mem": "",
    "time": "t",
}
"""Options of the array that the aggregation has too; it needs no devices."""


class SlurmEngine:
    """Submits an array of tasks, and a job that writes the tables after its end.

    Parameters
    ----------
    report
        Function that gets each sbatch command, and then the number of its job, as lines.
    """

    def __init__(self, report: Callable[[str], object] = print) -> None:
        self._report = report

    def submit(self, request: Request) -> int:
        """Submit both jobs; return 0.

        Raises
        ------
        UsageError
            If SLURM is not installed, or an option of sbatch is one that the engine sets.
        EngineError
            If SLURM refuses a job or does not answer.
        """
        tasks = self._sbatch("tasks", array(request))
        try:
            self._sbatch("aggregate", aggregation(request, tasks))
        except EngineError as error:
            error.add_note(f"Submitted before: {tasks}. Cancel with: scancel {tasks}")
            raise
        return 0

    def _sbatch(self, name: str, words: Sequence[str]) -> str:
        """Submit a job; return its number."""
        self._report(shlex.join(words))
        try:
            answer = output_of(words)
        except FileNotFoundError:
            raise UsageError(
                "sbatch is not installed here. Run this command on a login node of a SLURM "
                "cluster, or choose another --engine."
            ) from None
        number = answer.split()[-1].partition(";")[0]  # sbatch prints JOB, or JOB;CLUSTER
        self._report(f"{name}: job {number}")
        return number


def array(request: Request) -> list[str]:
    """Return the sbatch command of the tasks.

    Raises
    ------
    UsageError
        If an option of sbatch is one that the engine sets.
    """
    if names := sorted(_values(request.engine_options, _SET_HERE)):
        raise UsageError(
            f"--{names[0]} is set by virnucpro submit: remove it behind --. For the array, give "
            "--tasks and --limit."
        )
    limit = f"%{request.limit}" if request.limit else ""
    return [
        *("sbatch", "--parsable", f"--array=0-{request.tasks - 1}{limit}"),
        *("--job-name=virnucpro", "--nodes=1", "--ntasks=1", "--requeue", "--open-mode=append"),
        *("--signal=B:TERM@120", *request.engine_options),
        *(str(_SCRIPT), *request.task("auto")),
    ]


def aggregation(request: Request, job: str) -> list[str]:
    """Return the sbatch command that writes the tables after the end of `job`."""
    inherited = _values(request.engine_options, _OF_AGGREGATION)
    return [
        *("sbatch", "--parsable", f"--dependency=afterany:{job}", "--job-name=virnucpro-aggregate"),
        *("--nodes=1", "--ntasks=1", "--requeue", "--open-mode=append"),
        *(f"--{name}={value}" for name, value in inherited.items()),
        f"--wrap=exec {shlex.join(request.aggregation)}",
    ]


def _values(words: Sequence[str], names: Mapping[str, str]) -> dict[str, str]:
    """Return the values of some options of sbatch; `names` are these, and the letter of each."""
    letters = {letter: name for name, letter in names.items() if letter}
    return {name: value for name, value in _options(words, letters) if name in names}


def _options(words: Sequence[str], letters: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield name and value of the options; the value is the next word if ``=`` is missing."""
    for word, after in zip_longest(words, words[1:], fillvalue=""):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            yield name, value if equals else after
        elif word[:1] == "-" and word[1:2] in letters:
            yield letters[word[1]], word[2:] or after
