"""One campaign: a run that gets random signals until it is complete, and its checks."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from soaking.checks import Ledger, Rows, count_rows, folder_problems, table_problems
from soaking.records import write_records
from soaking.signals import (
    SentSignal,
    choose_signal,
    processes_of,
    send_signal,
    wait_for_empty_session,
)

from virnucpro.errors import VirnucproError
from virnucpro.run_dir import RunDirectory

BUNDLES = ("mini-deep", "mini")
"""Bundles of the runs; mini-deep by open frames alone."""

ORPHAN_S = 2.0
"""Seconds after the coordinator's end within which all its processes must end."""

MAX_RESTARTS = 3
"""Signals to ranks in one launch up to which the run must be complete, not partial."""

_STOPPING = {signal.SIGTERM, signal.SIGINT}


@dataclass(slots=True)
class Campaign:
    """One run and its faults.

    Attributes
    ----------
    signals_left
        Number of signals still to send.
    stops
        SIGSTOP is among them; ranks then have short deadlines.
    usual
        Seconds of the undisturbed run.
    worlds
        Number of ranks of each launch so far.
    """

    seed: int
    folder: Path
    bundle: str
    dice: random.Random
    max_ranks: int
    signals_left: int
    stops: bool
    usual: float = 0.0
    worlds: list[int] = field(default_factory=list)
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
    def fasta(self) -> Path:
        """The input of both."""
        return self.folder / "input.fa"


def run_campaign(
    root: Path, seed: int, *, records: int, max_ranks: int, max_signals: int, bundle: str
) -> Campaign:
    """Run one campaign to its end or to its first problem.

    Parameters
    ----------
    records
        Approximate number of records.
    max_ranks, max_signals
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
        stops=dice.random() < 0.4,
    )
    campaign.folder.mkdir()
    n_records = int(records * dice.uniform(0.75, 1.25))
    write_records(campaign.fasta, dice, n_records)
    _run_undisturbed(campaign)
    ledger = Ledger(campaign.run)
    most_launches = campaign.signals_left + 3
    while not campaign.problems:
        code, sent = _launch(campaign)
        campaign.problems += end_problems(campaign.run, code, sent)
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
    command = _command(campaign, campaign.undisturbed, ranks)
    subprocess.run(command, check=True, timeout=600)
    campaign.usual = time.monotonic() - started


def _command(campaign: Campaign, run: RunDirectory, ranks: int) -> list[str]:
    command = [sys.executable, "-m", "virnucpro", "predict", str(campaign.fasta)]
    command += ["--embeddings", "fp16"]
    command += ["-o", str(run.root), "--devices", f"cpu:{ranks}", "--resume", "--quiet"]
    command += ["--bundle", campaign.bundle]
    command += ["--no-fallback", "--published-files"] if campaign.bundle == "mini-deep" else []
    if campaign.stops and campaign.usual:
        # Several times the usual time: on a busy machine a slow rank must not count as hanging.
        command += ["--progress-timeout", f"{max(4.0, campaign.usual / 3):.1f}"]
        command += ["--start-timeout", f"{max(15.0, 1.5 * campaign.usual):.1f}"]
    return command


def _launch(campaign: Campaign) -> tuple[int | None, list[SentSignal]]:
    """Start or resume the run, and send signals until the coordinator ends.

    Returns
    -------
    Its exit code, None if it hung, and the signals.
    """
    ranks = campaign.dice.randint(1, campaign.max_ranks)
    campaign.worlds.append(ranks)
    sent: list[SentSignal] = []
    log = campaign.folder / f"launch-{len(campaign.worlds)}.log"
    with (
        log.open("wb") as stream,
        subprocess.Popen(
            _command(campaign, campaign.run, ranks),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        ) as process,
    ):
        try:
            code = _signal_until_end(campaign, process, sent)
        except BaseException:
            process.kill()  # all its processes end with it
            raise
        campaign.sent += sent
        if left := wait_for_empty_session(process.pid, ORPHAN_S):
            campaign.problems.append(f"{len(left)} processes outlive the coordinator: {left}")
    if code == 1 and b"Could not import runpy module" in log.read_bytes():
        code = -signal.SIGINT  # it hit the interpreter, before the command
    return code, sent


def _signal_until_end(
    campaign: Campaign, process: subprocess.Popen[bytes], sent: list[SentSignal]
) -> int | None:
    timeout = 60.0 + 20.0 * campaign.usual
    while True:
        pause = campaign.dice.uniform(0.0, 0.4 * campaign.usual)
        try:
            return process.wait(pause if campaign.signals_left else timeout)
        except subprocess.TimeoutExpired:
            if not campaign.signals_left:
                process.send_signal(signal.SIGABRT)  # its log then shows the stacks
                return None
        chosen = choose_signal(processes_of(process.pid), campaign.dice, stops=campaign.stops)
        one = chosen and send_signal(*chosen, process.pid)
        if one:
            sent.append(one)
            campaign.signals_left -= 1


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
    tables = {path: path.read_bytes() for path in run.root.glob("*.tsv")}
    code = subprocess.run(
        _command(campaign, run, campaign.dice.randint(1, campaign.max_ranks)), check=False
    ).returncode
    if code != 0:
        problems.append(f"{run.root}: a resume of the complete run ended with exit code {code}")
    problems += ledger.problems()
    problems += [
        f"{path}: changed by a resume of the complete run"
        for path, content in tables.items()
        if not path.exists() or path.read_bytes() != content
    ]
