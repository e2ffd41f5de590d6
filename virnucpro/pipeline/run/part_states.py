"""State of the parts of a run, from their status files."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from virnucpro.durable import temporary_beside
from virnucpro.errors import RunLockedError
from virnucpro.run_dir import RunDirectory

__all__ = ["LOST_S", "PartState", "part_states", "refuse_live_parts"]

LOST_S: Final = 90.0
"""Seconds without a heartbeat after which a part counts as lost.

A working part writes its status every 10 s; other machines may see it 60 s later.
"""


@dataclass(frozen=True, slots=True)
class PartState:
    """State of one attempt of a task.

    Attributes
    ----------
    name
        Name of the part, which begins with the number of its task.
    state
        ``working``; ``ended``; or ``lost``: no heartbeat for more than `LOST_S` seconds.
    host
        Name of the machine; "" before the first heartbeat.
    age
        Seconds since the last heartbeat, by the clock of the file server.
    ranks
        Last known status of each worker, as in status.json.
    """

    name: str
    state: str
    host: str
    age: float
    ranks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def part_states(run: RunDirectory) -> list[PartState]:
    """Return the state of every part, sorted by name."""
    names = run.part_names()
    now = _server_time(run) if names else 0.0
    return [_state(run.part(name), now) for name in names]


def refuse_live_parts(run: RunDirectory, action: str) -> None:
    """Raise RunLockedError if a part of the run is working.

    Parameters
    ----------
    action
        What the caller would do, for the message, such as ``replace this run``.

    Raises
    ------
    RunLockedError
        If a part is working.
    """
    working = [part for part in part_states(run) if part.state == "working"]
    if working:
        shown = ", ".join(
            f"{part.name} on {part.host or 'another machine'}" for part in working[:3]
        )
        raise RunLockedError(
            f"{run.root}: cannot {action} while {len(working)} of its tasks work ({shown}). Cancel "
            f"them, or wait for their end (see virnucpro status {run.root})."
        )


def _state(part: RunDirectory, now: float) -> PartState:
    name = part.root.name
    try:
        seen = part.status_json.stat().st_mtime
        content = json.loads(part.status_json.read_bytes())
        running, host, ranks = content["running"], str(content["host"]), dict(content["ranks"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        # Before its first heartbeat a part loads its index and starts its workers.
        running, host, ranks = True, "", {}
        try:
            seen = os.lstat(part.index).st_mtime
        except FileNotFoundError:
            seen = 0.0
    age = max(0.0, now - seen)
    state = "ended" if not running else "working" if age <= LOST_S else "lost"
    return PartState(name, state, host, age, ranks)


def _server_time(run: RunDirectory) -> float:
    """Return the time of the file server in seconds since 1970, from a new file in the run.

    If the folder is read-only, the clock of this machine is used.
    """
    probe = temporary_beside(run.root / "clock")
    try:
        probe.symlink_to("clock")
    except OSError:
        return time.time()
    try:
        return os.lstat(probe).st_mtime
    finally:
        probe.unlink()
