"""State of the parts of a run, from their status files."""

import errno
import json
import math
import os
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from virnucpro.durable import file_server_time
from virnucpro.errors import RunLockedError
from virnucpro.run_dir import RunDirectory

__all__ = ["LOST_S", "PartState", "part_states", "refuse_live_parts", "settled_parts"]

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
        ``working``; ``ended``; ``lost``: no heartbeat for more than `LOST_S` seconds; or
        ``unknown``: its heartbeat cannot be read.
    host
        Name of the machine; "" before the first heartbeat.
    age
        Seconds since the last heartbeat, by the clock of the file server.
    ranks
        Last known status of each worker, as in status.json.
    problem
        Why the heartbeat cannot be read, with the name of the file; "" if it can be read.
    """

    name: str
    state: str
    host: str
    age: float
    ranks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    problem: str = ""


def part_states(run: RunDirectory) -> list[PartState]:
    """Return the state of every part, sorted by name."""
    parts = [_last_heartbeat(run.part(name)) for name in run.part_names()]
    if not parts:
        return []
    now = _server_time(run) or max(seen for seen, _ in parts)
    return [_with_age(part, max(0.0, now - seen)) for seen, part in parts]


def settled_parts(
    run: RunDirectory, wait: Callable[[float], object] = time.sleep
) -> list[PartState]:
    """Return the states of all parts; first wait until each has ended, is lost or shows life.

    A killed part counts as working for `LOST_S` seconds. The function returns as soon as one part
    has a new heartbeat, and after `LOST_S` seconds at the latest.

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
    """Raise RunLockedError if a part of the run is working, or may be working.

    Parameters
    ----------
    action
        What the caller would do, for the message, such as ``replace this run``.

    Raises
    ------
    RunLockedError
        If a part is working, or its heartbeat cannot be read.
    """
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


def _last_heartbeat(part: RunDirectory) -> tuple[float, PartState]:
    """Return the time of a part's last heartbeat (seconds since 1970), and its state then."""
    name = part.root.name
    try:
        seen, text = _read(part.status_json)
        content = json.loads(text)
        running, host = bool(content["running"]), str(content["host"])
        ranks = {name: rank for name, rank in content["ranks"].items() if {*rank} >= _KEYS}
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        # Before its first heartbeat a part loads its index and starts its workers.
        running, host, ranks = True, "", {}
        try:
            seen = os.lstat(part.index).st_mtime
        except OSError:
            seen = 0.0
    except OSError as error:
        problem = f"{part.status_json} cannot be read ({error.strerror})"
        return 0.0, PartState(name, "unknown", "", 0.0, problem=problem)
    return seen, PartState(name, "working" if running else "ended", host, 0.0, ranks)


def _read(path: Path) -> tuple[float, bytes]:
    """Return the modification time and the content of a file."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):  # a named pipe would block the reader
        raise OSError(errno.EINVAL, "not a regular file")
    return about.st_mtime, path.read_bytes()


def _with_age(part: PartState, age: float) -> PartState:
    lost = part.state == "working" and age > LOST_S
    return replace(part, state="lost" if lost else part.state, age=age)


def _server_time(run: RunDirectory) -> float | None:
    """Return the time of the file server; None if the folder of the run is read-only."""
    try:
        return file_server_time(run.root)
    except OSError:
        return None
