"""What is known of a worker, and how it changes with what the worker says and how it ends. Pure."""

import signal
from dataclasses import dataclass, replace
from enum import StrEnum

from virnucpro.runtime.messages import Failure, Finished, Message, Progress, Report, Started

__all__ = ["WorkerState", "WorkerStatus", "after_exit", "after_message", "exit_name"]


class WorkerState(StrEnum):
    """Where a worker stands."""

    STARTING = "starting"
    """The process was started; the wrapper has not spoken yet."""
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    """The function returned (or called ``sys.exit(0)``) and the process ended with code 0."""
    FAILED = "failed"
    STOPPED = "stopped"
    """The parent stopped it before it was done."""


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker's state at one moment.

    Attributes
    ----------
    rank
        The worker's number.
    state
        Where it stands.
    pid
        Its process id.
    exit
        How the process ended: an exit code, a signal's name such as ``"SIGKILL"``, or None (still
        alive, or somebody else collected the exit status).
    kind
        Class of the exception that ended it (``"ValueError"``), or "".
    reason
        What went wrong, in a line; "" for a worker that is alive or succeeded.
    traceback
        The exception's traceback, or "".
    done, total
        Rows done and rows to do, as the worker last said.
    returned
        Whether the function returned.
    started_at, last_heartbeat, ended_at
        Seconds of `time.monotonic`: the start, the last message of any kind, the death (or None).
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
    ended_at: float | None = None

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self.ended_at is not None

    @property
    def succeeded(self) -> bool:
        """Whether the worker did all that it had to do."""
        return self.state is WorkerState.SUCCEEDED


def exit_name(code: int | None) -> int | str | None:
    """Name a process's exit code as `multiprocessing` counts it: -9 is ``"SIGKILL"``, 3 is 3."""
    if code is None or code >= 0:
        return code
    try:
        return signal.Signals(-code).name
    except ValueError:  # real-time signals have no name
        return f"SIG{-code}"


def after_message(status: WorkerStatus, message: Message, now: float) -> WorkerStatus:
    """Return the status once the worker has said `message` at the time `now`."""
    status = replace(status, last_heartbeat=now)
    match message:
        case Started():
            return replace(status, state=WorkerState.RUNNING)
        case Progress(done, total):
            return replace(status, done=done, total=total)
        case Failure(kind, text, traceback):
            reason = f"{kind}: {text}" if text else kind
            return replace(status, kind=kind, reason=reason, traceback=traceback)
        case Finished():
            return replace(status, returned=True)
        case Report():
            return status


def after_exit(
    status: WorkerStatus,
    code: int | None,
    now: float,
    *,
    unfinished: int = 0,
    stopped: bool = False,
) -> WorkerStatus:
    """Return the status once the process has ended and its pipe was read to the end.

    Parameters
    ----------
    code
        Exit code as `multiprocessing` counts it, None where it cannot be known.
    unfinished
        Bytes of a message whose end never came.
    stopped
        Whether the parent had asked it to stop while it was at work.
    """
    ended = replace(status, exit=exit_name(code), ended_at=now)
    if status.returned and code in {0, None}:
        return replace(ended, state=WorkerState.SUCCEEDED, kind="", reason="", traceback="")
    reason = status.reason or _reason(ended, code)
    if unfinished:
        reason += f"; its last message was cut short after {unfinished:,} bytes"
    if stopped:
        return replace(ended, state=WorkerState.STOPPED, reason=f"stopped by its parent: {reason}")
    return replace(ended, state=WorkerState.FAILED, reason=reason)


def _reason(status: WorkerStatus, code: int | None) -> str:
    ending = _ending(status.exit, code)
    if status.returned:
        return f"{ending} after its function had returned"
    if status.state is WorkerState.STARTING and code is not None and code > 0:
        return (
            f"{ending} before its function could be called: see standard error (a script that "
            'starts workers needs `if __name__ == "__main__":`)'
        )
    return f"{ending} before its function returned"


def _ending(exit_: int | str | None, code: int | None) -> str:
    if code is None:
        return "ended in an unknown way (its exit status was collected by somebody else)"
    if code >= 0:
        return f"exited with code {code}"
    hint = " (the kernel does so when memory runs out)" if exit_ == "SIGKILL" else ""
    return f"killed by {exit_}{hint}"
