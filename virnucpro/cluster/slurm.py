"""Engine for SLURM: its own arrays, dependencies and requeues; no process of ours remains."""

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from virnucpro.cluster.request import Request
from virnucpro.errors import EngineError, UsageError
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.program import output_of


class SlurmEngine:
    """Submits all rounds of a run as SLURM jobs.

    Parameters
    ----------
    report
        Function that gets each sbatch command, and then the number of its job, as lines.
    """

    def __init__(self, report: Callable[[str], object] = print) -> None:
        self._report = report

    def check(self, request: Request) -> None:
        """Raise UsageError if an option of sbatch is one that the engine sets itself."""
        submissions(request)

    def submit(self, request: Request) -> int:
        """Submit an array of tasks and a merge for each round; return 0.

        Raises
        ------
        UsageError
            If SLURM is not installed, or an option is invalid.
        EngineError
            If SLURM refuses a job or does not answer.
        """
        jobs = submissions(request)
        RunDirectory(request.run).logs.mkdir(exist_ok=True)
        numbers: dict[str, str] = {}
        for job in jobs:
            words = job.words(numbers.get(job.after, ""))
            self._report(shlex.join(words))
            try:
                answer = _output(words).split()
            except EngineError as error:
                if numbers:
                    queued = " ".join(numbers.values())
                    error.add_note(f"Submitted before: {queued}. Cancel with: scancel {queued}")
                raise
            numbers[job.name] = answer[-1].partition(";")[0]
            self._report(f"{job.name}: job {numbers[job.name]}")
        return 0


def require_array(tasks: int) -> None:
    """Check that the arrays of this cluster can have a number of tasks.

    Raises
    ------
    UsageError
        If they are too small, or SLURM is not installed here.
    EngineError
        If SLURM does not answer.
    """
    refuse_larger_array(tasks, _output(["scontrol", "show", "config"]))


def _output(words: Sequence[str]) -> str:
    try:
        return output_of(words)
    except FileNotFoundError:
        raise UsageError(
            f"{words[0]} is not installed here. Run this command on a login node of a SLURM "
            "cluster, print its commands with --print, or choose another --engine."
        ) from None


_SIGNAL_S: Final = 120
"""Default seconds from the signal to a job's time limit."""

_TIME: Final = re.compile(r"(?:(?P<days>\d+)-)?(?P<parts>\d+(?::\d+){0,2})")
"""Time limit of sbatch."""

_MARGIN_S: Final = 30
"""Seconds that a task needs to end after its last unit."""

_OWN: Final = {"array": "a", "dependency": "d", "parsable": "", "wrap": "", "test-only": ""}
"""Options of sbatch that the engine sets, and their letters."""

_OF_MERGES: Final = {
    "account": "A",
    "partition": "p",
    "qos": "q",
    "clusters": "M",
    "reservation": "",
    "container": "",
    "export": "",
    "chdir": "D",
}
"""Options of the arrays that the merges have too; they need neither devices nor much time."""


@dataclass(frozen=True, slots=True)
class Submission:
    """One job.

    Attributes
    ----------
    name
        Name of the job in this list, such as ``merge1``.
    options
        Options of sbatch.
    command
        Command that the job runs.
    after
        Name of the job whose end this job waits for; "" for none.
    """

    name: str
    options: tuple[str, ...]
    command: tuple[str, ...]
    after: str = ""

    def words(self, job: str = "") -> list[str]:
        """Return the sbatch command; `job` is the number of the job `after`."""
        dependency = [f"--dependency=afterany:{job}"] if self.after else []
        wrap = f"--wrap=exec {shlex.join(self.command)}"
        return ["sbatch", "--parsable", *dependency, *self.options, wrap]


def submissions(request: Request) -> list[Submission]:
    """Return the jobs of all rounds, in the order of their submission.

    Raises
    ------
    UsageError
        If an option of sbatch is one that the engine sets itself.
    """
    given = request.engine_options
    for words in (given, request.merge_options):
        if own := sorted(_values(words, _OWN)):
            raise UsageError(
                f"--{own[0]} is set by virnucpro submit: remove it behind --. For the array, give "
                "--tasks and --limit."
            )
    log = f"{RunDirectory(request.run).logs}".replace("%", "%%")
    always = ("--nodes=1", "--ntasks=1", "--requeue", "--open-mode=append")
    limit = f"%{request.limit}" if request.limit else ""
    array = (
        f"--array=0-{request.tasks - 1}{limit}",
        "--job-name=virnucpro-work",
        *always,
        f"--signal=B:TERM@{_signal(given)}",
        f"--output={log}/slurm-%A_%a.log",
        *given,
    )
    merge = (
        "--job-name=virnucpro-merge",
        *always,
        f"--output={log}/slurm-%j.log",
        *(f"--{name}={value}" for name, value in _values(given, _OF_MERGES).items()),
        *request.merge_options,
    )
    cpus = _values(given, {"cpus-per-task": "c"}).values()
    threads = (word for number in cpus for word in ("--threads", number))
    work = request.work("--lead", str(_lead(given)), *threads)
    jobs: list[Submission] = []
    for number in range(request.rescues + 1):
        before = f"merge{number}" if number else ""
        jobs.append(Submission(f"work{number + 1}", array, work, before))
        jobs.append(Submission(f"merge{number + 1}", merge, request.merge(number), jobs[-1].name))
    return jobs


def script(jobs: Sequence[Submission], request: Request) -> str:
    """Return a shell script that submits the jobs."""
    lines = [
        "#!/bin/sh",
        f"# Computes the run {request.run.name!r} with {request.tasks} tasks.",
        "set -eu",
        f"mkdir -p {shlex.quote(str(RunDirectory(request.run).logs))}",
    ]
    for job in jobs:
        number = f'"${{{job.after}%%;*}}"'  # sbatch prints JOB, or JOB;CLUSTER
        words = [shlex.quote(word).replace("@after@", number) for word in job.words("@after@")]
        sbatch = " \\\n  ".join(words)
        lines += ["", f"{job.name}=$({sbatch})", f'echo "{job.name}: job ${job.name}"']
    return "\n".join(lines) + "\n"


def refuse_larger_array(tasks: int, configuration: str) -> None:
    """Raise UsageError if the cluster's arrays cannot have this number of tasks.

    `configuration` is the output of ``scontrol show config``; without MaxArraySize, there is no
    limit.
    """
    match = re.search(r"^MaxArraySize\s*=\s*(\d+)\s*$", configuration, re.MULTILINE)
    largest = int(match[1]) if match else tasks
    if tasks <= largest:
        return
    ranks = -(-tasks // largest)
    raise UsageError(
        f"{tasks:,} tasks exceed this cluster's limit of {largest:,} (MaxArraySize). Give each "
        f"task {ranks} devices, such as --tasks {-(-tasks // ranks)} -- --gpus-per-node={ranks}"
    )


def _signal(options: Sequence[str]) -> int:
    """Return the default seconds from the signal to the time limit: at most half of the limit."""
    limit = _values(options, {"time": "t"}).get("time", "")
    match = _TIME.fullmatch(limit)
    if match is None:
        return _SIGNAL_S
    days, parts = match["days"], [int(part) for part in match["parts"].split(":")]
    # D-H[:M[:S]] begins with hours, H:M:S too, M[:S] with minutes
    units = (3600, 60, 1) if days or len(parts) == len((3600, 60, 1)) else (60, 1)
    seconds = 86_400 * int(days or 0) + sum(map(math.prod, zip(parts, units, strict=False)))
    return max(1, min(_SIGNAL_S, seconds // 2)) if seconds else _SIGNAL_S  # 0: no limit


def _lead(options: Sequence[str]) -> int:
    """Return the seconds of a task from the signal to its end, for the signal in `options`."""
    signal = _values(options, {"signal": ""}).get("signal", "")
    match = re.search(r"@(\d+)$", signal)
    default = 60 if signal else _signal(options)  # 60: default of sbatch
    seconds = int(match[1]) if match else default
    return max(seconds - _MARGIN_S, seconds // 2, 1)


def _values(words: Sequence[str], names: Mapping[str, str]) -> dict[str, str]:
    """Return the values of some options of sbatch.

    Parameters
    ----------
    names
        Names of the options, and the letter of each; "" for an option without a letter.
    """
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
