"""Signals to random processes of a run, at random moments."""

import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

__all__ = ["Member", "Strike", "choose_strike", "deliver", "members", "others_gone"]

Role = Literal["coordinator", "rank", "helper"]

_WEIGHTS: dict[Role, int] = {"coordinator": 4, "rank": 9, "helper": 2}
_SIGNALS: dict[Role, list[signal.Signals]] = {
    "coordinator": [signal.SIGKILL] * 5 + [signal.SIGTERM, signal.SIGINT],
    "rank": [signal.SIGKILL] * 7 + [signal.SIGTERM, signal.SIGSEGV, signal.SIGSTOP],
    "helper": [signal.SIGKILL],
}


class Member(NamedTuple):
    """A live process of a run."""

    pid: int
    role: Role


@dataclass(frozen=True, slots=True)
class Strike:
    """A signal that was sent."""

    role: Role
    signum: signal.Signals

    def __str__(self) -> str:
        return f"{self.role} {self.signum.name}"


def members(session: int) -> list[Member]:
    """List the live processes of a session, whose leader is the coordinator."""
    return [Member(pid, _role(pid, session)) for pid in _pids(session)]


def choose_strike(
    present: list[Member], dice: random.Random, *, stops: bool
) -> tuple[Member, signal.Signals] | None:
    """Choose whom to hit with what; None where nobody is there.

    Parameters
    ----------
    stops
        Whether SIGSTOP may be among it.
    """
    if not present:
        return None
    roles = sorted({one.role for one in present})
    (role,) = dice.choices(roles, [_WEIGHTS[one] for one in roles])
    victim = dice.choice([one for one in present if one.role == role])
    signals = [one for one in _SIGNALS[role] if stops or one != signal.SIGSTOP]
    return victim, dice.choice(signals)


def deliver(victim: Member, signum: signal.Signals, session: int) -> Strike | None:
    """Send the signal; None when the process has ended by itself meanwhile.

    Race: the process may end, and its number be another's, between the choice and here. A process
    descriptor stays with one process, so what it is is looked up once it is held.
    """
    try:
        held = os.pidfd_open(victim.pid)
    except ProcessLookupError:
        return None
    try:
        if _session(victim.pid) != session:
            return None
        signal.pidfd_send_signal(held, signum)
    except ProcessLookupError:
        return None
    finally:
        os.close(held)
    return Strike(victim.role, signum)


def others_gone(session: int, seconds: float) -> list[int]:
    """Wait until a session is empty; give the processes that are left, which are killed."""
    deadline = time.monotonic() + seconds
    while (left := list(_pids(session))) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in left:
        deliver(Member(pid, "helper"), signal.SIGKILL, session)
    return left


def _pids(session: int) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        if _session(int(folder.name)) == session:
            yield int(folder.name)


def _session(pid: int) -> int | None:
    """Give the session of a process that lives; None for one that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[3])


def _role(pid: int, session: int) -> Role:
    if pid == session:
        return "coordinator"
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return "helper"
    return "rank" if b"spawn_main" in command else "helper"
