"""State of the parts of a run, from their status files."""

import errno
import json
import math
import os
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from virnucpro.console import shortened
from virnucpro.durable import file_server_time
from virnucpro.errors import RunLockedError
from virnucpro.owner import has_ended
from virnucpro.run_dir import RunDirectory

LOST_S: Final = 90.0
"""Seconds without a heartbeat after which a part counts as lost.

A working part writes its status every 10 s; other machines may see it 60 s later.
"""


_LOOK_S: Final = 5.0
"""Seconds between two looks at heartbeats."""

_KEYS: Final = {"state", "done", "total", "seconds"}
"""Fields of a worker that the states of parts need."""


@dataclass(frozen=True, slots=True)
class PartState:
    """State of one attempt of a task.

    Attributes
    ----------
    name
        Name of the part, which begins with the number of its task.
    state
        ``working``; ``ended``; ``lost``: killed, or no heartbeat for more than `LOST_S` seconds;
        or ``unknown``: its heartbeat cannot be read.
    host
        Name of the machine; "" before the first heartbeat.
    age
        Seconds since the last heartbeat, by the clock of the file server; seconds until it, if the
        clock was set back.
    ranks
        Last known status of each worker, as in status.json.
    problem
        Why the heartbeat cannot be read, with the name of the file; "" if it can be read.
    killed
        Whether its process has ended in the middle of its work; False also if this is not known,
        as on another machine.
    """

    name: str
    state: str
    host: str
    age: float
    ranks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    problem: str = ""
    killed: bool = False


def part_states(run: RunDirectory) -> list[PartState]:
    """Return the state of every part, sorted by name."""
    parts = [_heartbeat_and_state(run.part(name)) for name in run.part_names()]
    if not parts:
        return []
    now = _server_time(run) or max(seen for seen, _ in parts)
    return [_with_age(part, abs(now - seen)) for seen, part in parts]


def settled_parts(
    run: RunDirectory, wait: Callable[[float], object] = time.sleep
) -> list[PartState]:
    """Return the states of all parts; first wait until each has ended, is lost or shows life.

    A part killed on another machine counts as working for `LOST_S` seconds. The function returns as
    soon as one part has a new heartbeat, and after `LOST_S` seconds at the latest.

    Parameters
    ----------
    wait
        Called with the seconds to wait between two looks.
    """
    parts = part_states(run)
    ages = {part.name: part.age for part in parts}
    while True:
        working = {part.name: part.age for part in parts if part.state == "working"}
        if not working or any(age < ages.get(name, math.inf) for name, age in working.items()):
            return parts
        ages = working
        wait(min(_LOOK_S, LOST_S - min(working.values()) + 1))
        parts = part_states(run)


def refuse_live_parts(run: RunDirectory, action: str) -> None:
    """Raise an error if a part is or may be working, or has links; call it before a removal.

    Parameters
    ----------
    action
        What the caller would do, for the message, such as ``replace this run``.

    Raises
    ------
    RunLockedError
        If a part is working, or its heartbeat cannot be read.
    RunError
        If a folder or log of a part is a symbolic link.
    """
    run.require_own_parts()
    parts = part_states(run)
    working = [part for part in parts if part.state == "working"]
    for part in parts:
        if part.problem:
            raise RunLockedError(
                f"{part.problem}, so its task may work: cannot {action}. Make the file readable or "
                "remove it, then rerun the command."
            )
    if working:
        shown = ", ".join(
            f"{part.name} on {part.host or 'another machine'}" for part in working[:3]
        )
        raise RunLockedError(
            f"{run.root}: cannot {action} while {len(working)} of its tasks work ({shown}). Cancel "
            f"them, or wait for their end (see virnucpro status {run.root})."
        )


class Heartbeat(NamedTuple):
    """Content of a status.json, and the time of its writing in seconds since 1970.

    `killed`: its process is known to have ended while it was `running`.
    """

    seen: float
    running: bool
    killed: bool
    host: str
    ranks: dict[str, dict[str, Any]]


def read_heartbeat(run: RunDirectory) -> Heartbeat | None:
    """Return the last heartbeat of a run or part; None if it is missing or damaged.

    Raises
    ------
    OSError
        If status.json cannot be read.
    """
    try:
        about = run.status_json.stat()
        if not stat.S_ISREG(about.st_mode):  # a named pipe would block the reader
            raise OSError(errno.EINVAL, "not a regular file")
        content = json.loads(run.status_json.read_bytes())
        ranks = {name: rank for name, rank in content["ranks"].items() if {*rank} >= _KEYS}
        running = bool(content["running"])
        own = running and about.st_uid == os.geteuid()
        killed = own and has_ended(str(content.get("process")))
        host = shortened(str(content["host"]))
        return Heartbeat(about.st_mtime, running, killed, host, ranks)
    except (FileNotFoundError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _heartbeat_and_state(part: RunDirectory) -> tuple[float, PartState]:
    """Return the time of a part's last heartbeat (seconds since 1970), and its state then."""
    name = part.root.name
    try:
        beat = read_heartbeat(part)
    except OSError as error:
        problem = f"{part.status_json} cannot be read ({error.strerror})"
        return 0.0, PartState(name, "unknown", "", 0.0, problem=problem)
    if beat is not None:
        state = "working" if beat.running else "ended"
        return beat.seen, PartState(name, state, beat.host, 0.0, beat.ranks, killed=beat.killed)
    try:  # before its first heartbeat a part loads its index and starts its workers
        seen = os.lstat(part.index).st_mtime
    except OSError:
        seen = 0.0
    return seen, PartState(name, "working", "", 0.0)


def _with_age(part: PartState, age: float) -> PartState:
    lost = part.state == "working" and (part.killed or age > LOST_S)
    return replace(part, state="lost" if lost else part.state, age=age)


def _server_time(run: RunDirectory) -> float | None:
    """Return the time of the file server; None if the folder of the run is read-only."""
    try:
        return file_server_time(run.root)
    except OSError:
        return None
