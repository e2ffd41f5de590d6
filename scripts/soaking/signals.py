"""Signals to random processes of a run, at random moments."""

import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

Role = Literal["coordinator", "rank", "helper", "all"]

_WEIGHTS: dict[Role, int] = {"coordinator": 4, "rank": 9, "helper": 2}
_SIGNALS: dict[Role, list[signal.Signals]] = {
    "coordinator": [signal.SIGKILL] * 5 + [signal.SIGTERM, signal.SIGINT],
    "rank": [signal.SIGKILL] * 7 + [signal.SIGTERM, signal.SIGSEGV, signal.SIGSTOP],
    "helper": [signal.SIGKILL],
}


class RunProcess(NamedTuple):
    """A live process of a run."""

    pid: int
    role: Role


@dataclass(frozen=True, slots=True)
class SentSignal:
    """A signal that was sent."""

    role: Role
    signum: signal.Signals

    def __str__(self) -> str:
        return f"{self.role} {self.signum.name}"


def processes_of(session: int) -> list[RunProcess]:
    """List the live processes of a session, whose leader is the coordinator."""
    return [RunProcess(pid, _role(pid, session)) for pid in _pids(session)]


def choose_signal(
    processes: list[RunProcess], dice: random.Random, *, stops: bool
) -> tuple[RunProcess, signal.Signals] | None:
    """Choose a process and a signal for it; None if there is no process.

    Parameters
    ----------
    stops
        Include SIGSTOP.
    """
    if not processes:
        return None
    roles = sorted({one.role for one in processes})
    (role,) = dice.choices(roles, [_WEIGHTS[one] for one in roles])
    target = dice.choice([one for one in processes if one.role == role])
    signals = [one for one in _SIGNALS[role] if stops or one != signal.SIGSTOP]
    return target, dice.choice(signals)


def send_signal(target: RunProcess, signum: signal.Signals, session: int) -> SentSignal | None:
    """Send a signal to a process of a session; return None if the process has ended.

    Race: the process may end and its number be reused between the choice and this call. A process
    descriptor never changes its process, so the session is checked after the descriptor is open.
    """
    try:
        descriptor = os.pidfd_open(target.pid)
    except ProcessLookupError:
        return None
    try:
        if _session(target.pid) != session:
            return None
        signal.pidfd_send_signal(descriptor, signum)
    except ProcessLookupError:
        return None
    finally:
        os.close(descriptor)
    return SentSignal(target.role, signum)


def freeze_session(session: int, seconds: float) -> SentSignal | None:
    """Stop all processes of a session, and continue them later, as a machine that freezes.

    Returns None if the session has no process.
    """
    stopped = list(_pids(session))
    for pid in stopped:
        send_signal(RunProcess(pid, "all"), signal.SIGSTOP, session)
    time.sleep(seconds)
    for pid in stopped:
        send_signal(RunProcess(pid, "all"), signal.SIGCONT, session)
    return SentSignal("all", signal.SIGSTOP) if stopped else None


def wait_for_empty_session(session: int, seconds: float) -> list[int]:
    """Wait until a session has no process; kill and return the remaining process ids.

    A process that was stopped before it could ask the kernel to be killed with its parent must end
    as soon as it continues.
    """
    deadline = time.monotonic() + seconds
    while (left := list(_pids(session))) and time.monotonic() < deadline:
        for pid in left:
            send_signal(RunProcess(pid, "helper"), signal.SIGCONT, session)
        time.sleep(0.01)
    for pid in left:
        send_signal(RunProcess(pid, "helper"), signal.SIGKILL, session)
    return left


def _pids(session: int) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        if _session(int(folder.name)) == session:
            yield int(folder.name)


def _session(pid: int) -> int | None:
    """Return the session of a live process; None for an ended one."""
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
