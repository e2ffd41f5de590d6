"""One campaign: a run that gets random signals until it is complete, and its checks."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from soaking.checks import (
    Ledger,
    Rows,
    byte_problems,
    count_rows,
    folder_problems,
    table_problems,
)
from soaking.records import write_records
from soaking.signals import (
    SentSignal,
    choose_signal,
    freeze_session,
    processes_of,
    send_signal,
    wait_for_empty_session,
)

from virnucpro.errors import VirnucproError
from virnucpro.run_dir import RunDirectory

BUNDLES = ("mini-deep", "mini")
"""Bundles of the runs."""

ORPHAN_S = 2.0
"""Seconds after the coordinator's end within which all its processes must end."""

MAX_RESTARTS = 3
"""Signals to ranks in one launch up to which the run must be complete, not partial."""

_STOPPING = {signal.SIGTERM, signal.SIGINT}

_FREEZE_S = 4.0
"""Maximum seconds for which a task is stopped."""

_TWICE = 0.3
"""Probability that a second copy of a task runs at the same time."""

_FREEZE = 0.3
"""Probability that all processes of a task are stopped and continued, instead of one signal."""


@dataclass(slots=True)
class Campaign:
    """One run and its faults.

    Attributes
    ----------
    signals_left
        Number of signals still to send.
    stops
        SIGSTOP is among them; ranks then have short deadlines.
    max_tasks
        Maximum number of tasks of ``virnucpro predict`` at once; 0: no tasks.
    usual
        Seconds of the undisturbed run.
    worlds
        Ranks of each launch so far; with tasks, ``3x2``: three commands of two ranks.
    """

    seed: int
    folder: Path
    bundle: str
    dice: random.Random
    max_ranks: int
    signals_left: int
    stops: bool
    max_tasks: int = 0
    usual: float = 0.0
    worlds: list[str] = field(default_factory=list)
    sent: list[SentSignal] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    rows: Rows | None = None

    @property
    def run(self) -> RunDirectory:
        """The run that gets signals."""
        return RunDirectory(self.folder / "run")

    @property
    def undisturbed(self) -> RunDirectory:
        """The undisturbed run."""
        return RunDirectory(self.folder / "undisturbed")

    @property
    def temporary(self) -> Path:
        """TMPDIR of all commands."""
        return self.folder / "tmp"

    @property
    def fasta(self) -> Path:
        """The input of both."""
        return self.folder / "input.fa"


@dataclass(slots=True)
class _Started:
    """A started command, which leads a session, and the signals that its processes got."""

    process: subprocess.Popen[bytes]
    log: Path
    sent: list[SentSignal] = field(default_factory=list)


def run_campaign(
    root: Path,
    seed: int,
    *,
    records: int,
    max_ranks: int,
    max_signals: int,
    bundle: str,
    max_tasks: int = 0,
) -> Campaign:
    """Run one campaign to its end or to its first problem.

    Parameters
    ----------
    records
        Approximate number of records.
    max_ranks, max_signals, max_tasks
        Upper limits.
    bundle
        One of `BUNDLES`.
    """
    dice = random.Random(seed)  # noqa: S311 - the same campaign for the same seed
    campaign = Campaign(
        seed=seed,
        folder=root / f"campaign-{seed}",
        bundle=bundle,
        dice=dice,
        max_ranks=max_ranks,
        signals_left=dice.randint(min(3, max_signals), max_signals),
        stops=not max_tasks and dice.random() < 0.4,
        max_tasks=max_tasks,
    )
    campaign.folder.mkdir()
    n_records = int(records * dice.uniform(0.75, 1.25))
    write_records(campaign.fasta, dice, n_records)
    _run_undisturbed(campaign)
    ledger = Ledger(campaign.run)
    most_launches = campaign.signals_left + 3
    while not campaign.problems:
        code = _launch(campaign)
        campaign.problems += ledger.problems()
        if code == 0:
            break
        if len(campaign.worlds) >= most_launches:
            campaign.problems.append(f"not complete after {len(campaign.worlds)} launches")
    if not campaign.problems:
        try:
            _check_complete_run(campaign, ledger)
        except (OSError, KeyError, ValueError, VirnucproError) as error:
            campaign.problems.append(f"cannot be checked: {type(error).__name__}: {error}")
    return campaign


def _run_undisturbed(campaign: Campaign) -> None:
    started = time.monotonic()
    ranks = min(2, campaign.max_ranks)
    _require(campaign, *_predict(campaign, campaign.undisturbed, ranks))
    campaign.usual = time.monotonic() - started


def _require(campaign: Campaign, *words: str) -> None:
    """Run a command that must succeed."""
    if code := _call(campaign, *words):
        campaign.problems.append(f"{words[0]} ended with exit code {code}: see calls.log")


def _call(campaign: Campaign, *words: str) -> int:
    """Run a command that gets no signals; return its exit code."""
    with _popen(campaign, campaign.folder / "calls.log", words) as process:
        try:
            return process.wait(600)
        finally:
            process.kill()


def _popen(campaign: Campaign, log: Path, words: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own; its output goes to the end of `log`."""
    campaign.temporary.mkdir(exist_ok=True)
    with log.open("ab") as stream:
        return subprocess.Popen(
            [sys.executable, "-m", "virnucpro", *words],
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env={**os.environ, "TMPDIR": str(campaign.temporary)},
            start_new_session=True,
        )


def _job(campaign: Campaign, run: RunDirectory) -> list[str]:
    words = [str(campaign.fasta), "-o", str(run.root), "--bundle", campaign.bundle]
    words += ["--embeddings", "fp16"]
    words += ["--published-files"] if campaign.bundle == "mini-deep" else []
    return words


def _predict(campaign: Campaign, run: RunDirectory, ranks: int) -> list[str]:
    command = ["predict", *_job(campaign, run), "--devices", f"cpu:{ranks}", "--resume", "--quiet"]
    if campaign.stops and campaign.usual:
        # Several times the usual time: on a busy machine a slow rank must not count as hanging.
        command += ["--progress-timeout", f"{max(4.0, campaign.usual / 3):.1f}"]
        command += ["--start-timeout", f"{max(15.0, 1.5 * campaign.usual):.1f}"]
    return command


def _launch(campaign: Campaign) -> int | None:
    """Start or resume the run, and send signals until its commands end; record their problems.

    Returns
    -------
    The exit code that states whether the run is complete: of its only command, or of the
    aggregation after several tasks; None if a command hung.
    """
    ranks = campaign.dice.randint(1, campaign.max_ranks)
    commands = [_predict(campaign, campaign.run, ranks)]
    campaign.worlds.append(f"{ranks}")
    if campaign.max_tasks:
        commands = _tasks(campaign, ranks)
        campaign.worlds[-1] = f"{len(commands)}x{ranks}"
    code: int | None = None
    with ExitStack() as stack:
        started = [_start(campaign, stack, number, words) for number, words in enumerate(commands)]
        try:
            _signal_until_end(campaign, started)
        except BaseException:
            for one in started:
                one.process.kill()  # all its processes end with it
            raise
        for one in started:
            code = _end(campaign, one)
    if campaign.max_tasks and not campaign.problems:
        code = _call(campaign, "aggregate", str(campaign.run.root), "--quiet")
        begun = campaign.run.run_json.exists()
        if code not in ({0, 2} if begun else {1}):
            campaign.problems.append(f"{campaign.run.root}: aggregate ended with exit code {code}")
    return code


def _tasks(campaign: Campaign, ranks: int) -> list[list[str]]:
    """Return the commands of all tasks, some of them twice; each launch has another number."""
    dice, n_tasks = campaign.dice, campaign.dice.randint(1, campaign.max_tasks)
    numbers = [n for n in range(n_tasks) for _ in range(2 if dice.random() < _TWICE else 1)]
    command = _predict(campaign, campaign.run, ranks)
    return [[*command, "--task", f"{number}/{n_tasks}"] for number in numbers]


def _start(campaign: Campaign, stack: ExitStack, number: int, words: Sequence[str]) -> _Started:
    log = campaign.folder / f"launch-{len(campaign.worlds)}-{number}.log"
    return _Started(stack.enter_context(_popen(campaign, log, words)), log)


def _signal_until_end(campaign: Campaign, started: Sequence[_Started]) -> None:
    """Send signals to random processes, until all commands have ended or one hangs."""
    deadline = time.monotonic() + 60.0 + 20.0 * campaign.usual
    while alive := [one for one in started if one.process.poll() is None]:
        if not campaign.signals_left:
            try:
                alive[0].process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                return
            continue
        time.sleep(campaign.dice.uniform(0.0, 0.4 * campaign.usual))
        one = campaign.dice.choice(alive)
        if sent := _signal(campaign, one.process.pid):
            one.sent.append(sent)
            campaign.signals_left -= 1
            deadline = time.monotonic() + 60.0 + 20.0 * campaign.usual


def _signal(campaign: Campaign, session: int) -> SentSignal | None:
    dice = campaign.dice
    if campaign.max_tasks and dice.random() < _FREEZE:
        return freeze_session(session, dice.uniform(0.0, _FREEZE_S))
    chosen = choose_signal(processes_of(session), dice, stops=campaign.stops)
    return chosen and send_signal(*chosen, session)


def _end(campaign: Campaign, one: _Started) -> int | None:
    """Record the end of a command and its problems; return its exit code, None if it hung."""
    code = one.process.poll()
    if code is None:
        one.process.send_signal(signal.SIGABRT)  # its log then shows the stacks
    campaign.sent += one.sent
    if left := wait_for_empty_session(one.process.pid, ORPHAN_S):
        campaign.problems.append(f"{len(left)} processes outlive the coordinator: {left}")
    log = one.log.read_bytes()
    if code == 1 and b"KeyboardInterrupt" in log and b"__main__.py" not in log:
        code = -signal.SIGINT  # it hit the interpreter, before the command
    campaign.problems += end_problems(campaign.run, code, one.sent)
    return code


def end_problems(run: RunDirectory, code: int | None, sent: Sequence[SentSignal]) -> list[str]:
    """List the problems of the coordinator's exit code, given the signals that were sent."""
    if code is None:
        return ["the coordinator hung"]
    allowed = {0}
    for one in sent:
        if one.role == "coordinator":
            stopping = one.signum in _STOPPING
            allowed.add(128 + one.signum if stopping else -one.signum)
            # Before the program installs its handlers, and after it restores them, the default
            # action applies.
            allowed |= {-one.signum} if stopping else set()
    if sum(one.role == "rank" for one in sent) > MAX_RESTARTS:
        allowed |= {1, 2}
    if code in allowed:
        return []
    signals = ", ".join(map(str, sent)) or "no signal"
    return [f"{run.root}: ended with exit code {code} after {signals}: see the launch's log"]


def _check_complete_run(campaign: Campaign, ledger: Ledger) -> None:
    """Check the complete run; resume it once more and check that nothing changes."""
    run, problems = campaign.run, campaign.problems
    campaign.rows = count_rows(run)
    if any(campaign.rows[1:4]):
        problems.append(f"rows of {run.root}: {campaign.rows}")
    problems += folder_problems(run)
    problems += table_problems(campaign.undisturbed, run)
    if campaign.bundle == "mini":  # mini-deep has rounding
        problems += byte_problems(campaign.undisturbed, run)
    tables = {path: path.read_bytes() for path in run.root.rglob("*.tsv")}
    ranks = campaign.dice.randint(1, campaign.max_ranks)
    code = _call(campaign, *_predict(campaign, run, ranks))
    if code != 0:
        problems.append(f"{run.root}: a resume of the complete run ended with exit code {code}")
    problems += ledger.problems()
    problems += [
        f"{path}: changed by a resume of the complete run"
        for path, content in tables.items()
        if not path.exists() or path.read_bytes() != content
    ]
    problems += [f"{path}: temporary file left" for path in campaign.temporary.iterdir()]
