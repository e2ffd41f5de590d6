"""Parts are working, ended or lost by the age of their heartbeats."""

import errno
import json
import os
import time
from pathlib import Path

import pytest

from virnucpro.run.part_states import LOST_S, part_states, settled_parts
from virnucpro.run_dir import RunDirectory


@pytest.fixture
def run(tmp_path):
    return RunDirectory(tmp_path)


def beat(run, name, *, age=0.0, running=True):
    part = run.part(name)
    part.root.mkdir(parents=True, exist_ok=True)
    part.status_json.write_text(json.dumps({"running": running, "host": "h", "ranks": {}}))
    moment = time.time() - age
    os.utime(part.status_json, (moment, moment))


def states(parts):
    return {part.name[:4]: part.state for part in parts}


def test_a_part_is_lost_after_its_last_heartbeat(run):
    beat(run, "0000.00000000")
    beat(run, "0001.00000000", age=LOST_S + 5)
    beat(run, "0002.00000000", age=LOST_S + 5, running=False)
    assert states(part_states(run)) == {"0000": "working", "0001": "lost", "0002": "ended"}


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
