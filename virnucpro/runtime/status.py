"""The status of a worker, and how messages and the end of its process change it. No I/O."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from virnucpro.runtime.messages import (
    UNGUARDED_CODE,
    Ask,
    Failure,
    Finished,
    Mark,
    Message,
    Progress,
    Report,
    Started,
)

NO_MAIN_GUARD: Final = "NoMainGuard"
"""Kind of the failure of a worker that imports a main script without a main guard."""

GUARD_ADVICE: Final = (
    "each worker process imports the main script again: put the script's statements below the line "
    '`if __name__ == "__main__":`'
)


class WorkerState(StrEnum):
    """Possible states of a worker: from the start of its process to its end or restart."""

    STARTING = "starting"
    """The process was started, and has not sent a message yet."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    """The function returned (or called ``sys.exit(0)``) and the process ended with code 0."""
    FAILED = "failed"
    STOPPED = "stopped"
    """The parent stopped the worker before it was finished."""
    WAITING = "waiting"
    """The worker failed and will be restarted; `WorkerStatus.faults` has the reason."""


@dataclass(frozen=True, slots=True)
class Death:
    """End of a process, as seen by its parent.

    Attributes
    ----------
    code
        Exit code, or the negative signal number if a signal killed the process; None if unknown.
    unfinished
        Number of received bytes of an incomplete last message; 0 if all messages are complete.
    stuck
        Whether the process survived SIGKILL; the parent has stopped waiting for its end.
    """

    code: int | None
    unfinished: int = 0
    stuck: bool = False

    def lacks_main_guard(self, *, starting: bool) -> bool:
        """Return whether the process ended because the main script lacks the main guard.

        `starting` is whether the worker was still starting: later, its code may exit with the same
        code.
        """
        return starting and self.code == UNGUARDED_CODE


@dataclass(frozen=True, slots=True)
class Fault:
    """Failure of one attempt of a worker. An attempt is one start of the worker's process.

    Attributes
    ----------
    rank, attempt
        Number of the worker; number of the attempt, from 1.
    exit, kind, reason, traceback, permanent
        As in `WorkerStatus`.
    place
        The piece of work in which the worker failed, as in `Mark`; empty if it failed before its
        first piece.
    passed
        Number of pieces of work of the same stage that the worker finished in this attempt.
    done
        Number of rows computed at the end of this attempt, including earlier attempts.
    """

    rank: int
    attempt: int
    exit: int | str | None
    kind: str
    reason: str
    traceback: str = ""
    permanent: bool = False
    place: tuple[int, ...] = ()
    passed: int = 0
    done: int = 0


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker's state at one moment.

    Attributes
    ----------
    rank
        Number of the worker.
    state
        State of the worker.
    pid
        Process id of the worker.
    exit
        How the process ended: an exit code, or a signal's name such as ``"SIGKILL"``. None if the
        process is alive, or the exit code is unknown.
    kind
        Class of the exception that ended the worker (``"ValueError"``), or "".
    reason
        The error, or why the worker was stopped, in one line; "" if alive or succeeded.
    traceback
        The exception's traceback, or "".
    done, total
        Number of computed rows and total number of rows, as last reported by the worker.
    returned
        Whether the worker function returned.
    attempt
        Number of starts of the worker.
    permanent
        Whether the exception would occur again after a restart.
    place
        The last piece of work that the worker started, as in `Mark`; empty before the first one and
        while it waits.
    begun
        For each stage, the number of its pieces started in this attempt. The stage of a piece is
        the second number of the piece, and -1 while the worker waits.
    asked, answered
        Number of messages `Ask` in this attempt, and number of answers that the parent has sent.
    faults
        Failures of the worker's earlier attempts, in order.
    started_at, last_heartbeat, began_at, ended_at
        Times in seconds of `time.monotonic`: start of the process, last message, start of the
        first piece of work, end of the process; None for an event that has not occurred.
    """

    rank: int
    state: WorkerState
    pid: int | None
    started_at: float
    last_heartbeat: float
    exit: int | str | None = None
    kind: str = ""
    reason: str = ""
    traceback: str = ""
    done: int = 0
    total: int = 0
    returned: bool = False
    attempt: int = 1
    permanent: bool = False
    place: tuple[int, ...] = ()
    begun: Mapping[int, int] = field(default_factory=dict)
    asked: int = 0
    answered: int = 0
    faults: tuple[Fault, ...] = ()
    began_at: float | None = None
    ended_at: float | None = None

    @property
    def ended(self) -> bool:
        """Whether the process has ended and no restart is scheduled."""
        return self.ended_at is not None and self.state is not WorkerState.WAITING

    @property
    def waits(self) -> bool:
        """Whether the worker can only continue after an answer of the parent."""
        return bool(self.begun) and not self.place and self.asked > self.answered

    @property
    def succeeded(self) -> bool:
        """Whether the worker finished its work."""
        return self.state is WorkerState.SUCCEEDED

    @property
    def fault(self) -> Fault:
        """Description of the failure of the current attempt."""
        shared = {name: getattr(self, name) for name in Fault.__match_args__ if name != "passed"}
        begun = self.begun.get(_stage(self.place), 0) if self.place else 0
        return Fault(**shared, passed=max(0, begun - 1))


def exit_name(code: int | None) -> int | str | None:
    """Return the name of a signal for a negative exit code (-9: ``"SIGKILL"``), else the code."""
    if code is None or code >= 0:
        return code
    try:
        return signal.Signals(-code).name
    except ValueError:  # real-time signals have no name
        return f"SIG{-code}"


def after_message(status: WorkerStatus, message: Message, now: float) -> WorkerStatus:
    """Return the status after a message from the worker, received at the time `now`."""
    asked = status.asked + isinstance(message, Ask)
    status = replace(status, last_heartbeat=now, asked=asked)
    match message:
        case Started():
            return replace(status, state=WorkerState.RUNNING)
        case Progress(done, total):
            return replace(status, done=done, total=total)
        case Mark(place):
            began = now if status.began_at is None else status.began_at
            stage = _stage(place)
            begun = {**status.begun, stage: status.begun.get(stage, 0) + 1}
            return replace(status, place=place, begun=begun, began_at=began)
        case Failure(kind, text, traceback, permanent):
            reason = f"{kind}: {text}" if text else kind
            return replace(
                status, kind=kind, reason=reason, traceback=traceback, permanent=permanent
            )
        case Finished():
            return replace(status, returned=True)
        case Ask() | Report():
            return status


_WAITS = -1
"""Stage of a worker that waits."""


def _stage(place: tuple[int, ...]) -> int:
    if not place:
        return _WAITS
    return place[1] if len(place) > 1 else 0


def waiting(status: WorkerStatus) -> WorkerStatus:
    """Return the status of an ended worker whose restart is scheduled; it has no open question."""
    faults = (*status.faults, status.fault) if status.state is WorkerState.FAILED else status.faults
    return replace(status, state=WorkerState.WAITING, faults=faults, asked=0, answered=0)


def after_exit(status: WorkerStatus, death: Death, now: float, stopped: str = "") -> WorkerStatus:
    """Return the status after the end of a worker's process and after all of its messages.

    Parameters
    ----------
    stopped
        Reason why the parent stopped the worker; "" if the parent did not stop it.
    """
    ended = replace(status, exit=exit_name(death.code), ended_at=now)
    if status.returned and death.code in {0, None} and not death.stuck:
        return replace(ended, state=WorkerState.SUCCEEDED, kind="", reason="", traceback="")
    if death.lacks_main_guard(starting=status.state is WorkerState.STARTING):
        ended = replace(ended, kind=NO_MAIN_GUARD, reason=GUARD_ADVICE, permanent=True)
    reason = stopped or ended.reason or _reason(ended, death.code)
    if death.stuck:
        reason += "; it is stuck in the kernel and survives SIGKILL: see dmesg"
    if death.unfinished:
        reason += f"; its last message is incomplete: {death.unfinished:,} bytes"
    state = WorkerState.STOPPED if stopped else WorkerState.FAILED
    return replace(ended, state=state, reason=reason)


def exit_text(code: int | None) -> str:
    """Describe an exit code in words, such as ``killed by SIGSEGV`` or ``exited with code 3``."""
    if code is None:
        return "ended with an unknown exit status (other code in this program collected it)"
    if code >= 0:
        return f"exited with code {code}"
    hint = " (the kernel does this when memory runs out)" if -code == signal.SIGKILL else ""
    return f"killed by {exit_name(code)}{hint}"


def _reason(status: WorkerStatus, code: int | None) -> str:
    ending = exit_text(code)
    if status.returned:
        return f"{ending} after the worker function returned"
    if status.state is WorkerState.STARTING and code is not None and code > 0:
        return (
            f"{ending} before the worker function was called: see standard error (a script that "
            'starts workers needs `if __name__ == "__main__":`)'
        )
    return f"{ending} before the worker function returned"
