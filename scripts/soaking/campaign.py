"""One campaign: a run that is struck until it is complete, and the checks that follow."""

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
from soaking.strikes import Strike, choose_strike, deliver, members, others_gone

from virnucpro.errors import VirnucproError
from virnucpro.run_dir import RunDirectory

__all__ = ["Campaign", "end_problems", "run_campaign"]

ORPHAN_S = 2.0
"""Within so many seconds of the coordinator's end all its processes must have ended."""

MAX_RESTARTS = 3
"""Blows to ranks, in one launch, up to which the run must not even be partial."""

_STOPPING = {signal.SIGTERM, signal.SIGINT}


@dataclass(slots=True)
class Campaign:
    """One run and what happens to it.

    Attributes
    ----------
    blows_left
        Signals still to be sent.
    stops
        Whether SIGSTOP is among them: ranks then have short deadlines.
    usual
        Seconds that the undisturbed run took.
    worlds
        Number of ranks of each launch so far.
    """

    seed: int
    folder: Path
    dice: random.Random
    max_ranks: int
    blows_left: int
    stops: bool
    usual: float = 0.0
    worlds: list[int] = field(default_factory=list)
    strikes: list[Strike] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    rows: Rows | None = None

    @property
    def run(self) -> RunDirectory:
        """The run that is struck."""
        return RunDirectory(self.folder / "run")

    @property
    def undisturbed(self) -> RunDirectory:
        """The run that nothing happens to."""
        return RunDirectory(self.folder / "undisturbed")

    @property
    def fasta(self) -> Path:
        """The input of both."""
        return self.folder / "input.fa"


def run_campaign(root: Path, seed: int, *, records: int, max_ranks: int, blows: int) -> Campaign:
    """Go through one campaign, to its end or to the first thing that is wrong.

    Parameters
    ----------
    records
        About so many.
    max_ranks, blows
        At most so many.
    """
    dice = random.Random(seed)  # noqa: S311 - the same campaign for the same seed
    campaign = Campaign(
        seed=seed,
        folder=root / f"campaign-{seed}",
        dice=dice,
        max_ranks=max_ranks,
        blows_left=dice.randint(min(3, blows), blows),
        stops=dice.random() < 0.4,
    )
    campaign.folder.mkdir()
    n_records = int(records * dice.uniform(0.75, 1.25))
    write_records(campaign.fasta, dice, n_records)
    _run_undisturbed(campaign)
    ledger = Ledger(campaign.run)
    most_launches = campaign.blows_left + 3
    while not campaign.problems:
        code, struck = _launch(campaign)
        campaign.problems += end_problems(campaign.run, code, struck)
        campaign.problems += ledger.problems()
        if code == 0:
            break
        if len(campaign.worlds) >= most_launches:
            campaign.problems.append(f"not complete after {len(campaign.worlds)} launches")
    if not campaign.problems:
        try:
            _examine(campaign, ledger)
        except (OSError, KeyError, ValueError, VirnucproError) as error:
            campaign.problems.append(f"cannot be examined: {type(error).__name__}: {error}")
    return campaign


def _run_undisturbed(campaign: Campaign) -> None:
    started = time.monotonic()
    ranks = min(2, campaign.max_ranks)
    command = _command(campaign, campaign.undisturbed, ranks)
    subprocess.run(command, check=True, timeout=600)
    campaign.usual = time.monotonic() - started


def _command(campaign: Campaign, run: RunDirectory, ranks: int) -> list[str]:
    command = [sys.executable, "-m", "virnucpro", "predict", str(campaign.fasta)]
    command += ["-o", str(run.root), "--devices", f"cpu:{ranks}", "--resume", "--quiet"]
    if campaign.stops and campaign.usual:
        # Several times what is usual, so that a busy machine does not make a rank hang.
        command += ["--progress-timeout", f"{max(4.0, campaign.usual / 3):.1f}"]
        command += ["--start-timeout", f"{max(15.0, 1.5 * campaign.usual):.1f}"]
    return command


def _launch(campaign: Campaign) -> tuple[int | None, list[Strike]]:
    """Start the run, or resume it, and strike until the coordinator ends.

    Returns
    -------
    Its exit code, None where it hung, and the strikes.
    """
    ranks = campaign.dice.randint(1, campaign.max_ranks)
    campaign.worlds.append(ranks)
    struck: list[Strike] = []
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
            code = _strike_until_it_ends(campaign, process, struck)
        except BaseException:
            process.kill()  # all its processes end with it
            raise
        campaign.strikes += struck
        if left := others_gone(process.pid, ORPHAN_S):
            campaign.problems.append(f"{len(left)} processes outlive the coordinator: {left}")
    return code, struck


def _strike_until_it_ends(
    campaign: Campaign, process: subprocess.Popen[bytes], struck: list[Strike]
) -> int | None:
    patience = 60.0 + 20.0 * campaign.usual
    while True:
        pause = campaign.dice.uniform(0.0, 0.4 * campaign.usual)
        try:
            return process.wait(pause if campaign.blows_left else patience)
        except subprocess.TimeoutExpired:
            if not campaign.blows_left:
                process.send_signal(signal.SIGABRT)  # the log tells where it hung
                return None
        chosen = choose_strike(members(process.pid), campaign.dice, stops=campaign.stops)
        strike = chosen and deliver(*chosen, process.pid)
        if strike:
            struck.append(strike)
            campaign.blows_left -= 1


def end_problems(run: RunDirectory, code: int | None, struck: Sequence[Strike]) -> list[str]:
    """Say what is wrong with how the coordinator ended, given what it had to bear."""
    if code is None:
        return ["the coordinator hung"]
    allowed = {0}
    for strike in struck:
        if strike.role == "coordinator":
            stopping = strike.signum in _STOPPING
            allowed.add(128 + strike.signum if stopping else -strike.signum)
            # Before and after the program's own handlers are in place, Python's defaults count.
            allowed |= {-strike.signum} if stopping else set()
    if sum(strike.role == "rank" for strike in struck) > MAX_RESTARTS:
        allowed |= {1, 2}
    if code in allowed:
        return []
    told = ", ".join(map(str, struck)) or "nothing"
    return [f"{run.root}: ended with {code} after {told}; see the log of the launch"]


def _examine(campaign: Campaign, ledger: Ledger) -> None:
    """Check the run that is complete, resume it once more, and check that this changed nothing."""
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
        problems.append(f"{run.root}: a resume of the complete run ended with {code}")
    problems += ledger.problems()
    problems += [
        f"{path}: changed by a resume of the complete run"
        for path, content in tables.items()
        if not path.exists() or path.read_bytes() != content
    ]
