"""Parts are working, ended or lost by the age of their heartbeats."""

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from samples import empty_run

from virnucpro.run.part_states import LOST_S, part_states, read_heartbeat, settled_parts


@pytest.fixture
def run(tmp_path):
    return empty_run(tmp_path)


def beat(run, name, *, age=0.0, running=True, **facts):
    part = run.part(name)
    part.machine.mkdir(parents=True, exist_ok=True)
    content = {"running": running, "host": "h", "ranks": {}, **facts}
    part.status_json.write_text(json.dumps(content))
    moment = time.time() - age
    os.utime(part.status_json, (moment, moment))


def states(parts):
    return {part.name[:4]: part.state for part in parts}


def test_a_part_is_lost_after_its_last_heartbeat(run):
    beat(run, "0000.00000000")
    beat(run, "0001.00000000", age=LOST_S + 5)
    beat(run, "0002.00000000", age=LOST_S + 5, running=False)
    beat(run, "0003.00000000", age=-LOST_S - 5)  # the clock was set back
    expected = {"0000": "working", "0001": "lost", "0002": "ended", "0003": "lost"}
    assert states(part_states(run)) == expected


def test_the_host_of_a_part_is_safe_to_print(run):
    beat(run, "0000.00000000", host="h\x1b[31m")
    assert [part.host for part in part_states(run)] == ["h\\x1b[31m"]


def test_a_part_is_lost_at_once_if_its_process_was_killed_here(run, monkeypatch):
    program = "from virnucpro.owner import *; print(process_name(), flush=True); input()"
    command = [sys.executable, "-c", program]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        name = process.stdout.readline().strip()
        number, start, place = name.split("-")
        beat(run, "0000.00000000", process=name)
        beat(run, "0001.00000000", process=f"{number}-{start}-00000000")  # of another machine
        beat(run, "0002.00000000", process=f"{os.getpid()}-1-{place}")  # its number was used again
        beat(run, "0003.00000000", process=name, running=False)
        beat(run, "0004.00000000", process="x")
        others = {"0001": "working", "0002": "lost", "0003": "ended", "0004": "working"}
        assert states(part_states(run)) == {"0000": "working", **others}
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # its parent has not noticed
        assert states(part_states(run)) == {"0000": "lost", **others}
        process.wait()
        assert states(part_states(run)) == {"0000": "lost", **others}
    monkeypatch.setattr(os, "geteuid", lambda: -1)  # processes of another user may be hidden
    assert set(states(part_states(run)).values()) == {"working", "ended"}


def test_a_killed_part_is_waited_for_until_it_counts_as_lost(run):
    beat(run, "0000.00000000", age=30)
    waited = []

    def wait(seconds):
        waited.append(seconds)
        beat(run, "0000.00000000", age=30 + sum(waited))

    assert states(settled_parts(run, wait)) == {"0000": "lost"}
    assert LOST_S - 30 <= sum(waited) < LOST_S - 30 + 5


@pytest.mark.parametrize("name", ["0000.00000000", "0001.00000000"])
def test_a_new_heartbeat_or_part_ends_the_wait(run, name):
    beat(run, "0000.00000000", age=30)
    waited = []

    def wait(seconds):
        waited.append(seconds)
        beat(run, name)

    assert set(states(settled_parts(run, wait)).values()) == {"working"}
    assert len(waited) == 1


def test_ended_parts_are_not_waited_for(run):
    beat(run, "0000.00000000", running=False)
    assert states(settled_parts(run, pytest.fail)) == {"0000": "ended"}


@pytest.mark.parametrize("content", ["", "{}", "[" * 100_000])
def test_a_damaged_heartbeat_is_none(run, content):
    beat(run, "0000.00000000")
    part = run.part("0000.00000000")
    part.status_json.write_text(content)
    assert read_heartbeat(part) is None


@pytest.mark.parametrize("code", [errno.EACCES, errno.ESTALE, errno.EIO])
def test_an_error_of_the_file_server_concerns_one_part(run, monkeypatch, code):
    for name in ("0000.00000000", "0001.00000000"):
        beat(run, name)
    broken, read = run.part("0000.00000000").status_json, Path.read_bytes

    def fail(path):
        if path == broken:
            raise OSError(code, os.strerror(code), str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", fail)
    unknown, working = part_states(run)
    assert (unknown.state, working.state) == ("unknown", "working")
    assert unknown.problem == f"{broken} cannot be read ({os.strerror(code)})"
