"""Kill a process at each of its system calls and print what it left on the disk.

A child is traced (ptrace) and stops at the entry and exit of every system call of its main thread.
It is killed at the n-th stop, for each n. No other tool is needed.

    python stepped.py commit FOLDER
    python stepped.py aggregate RUN FOLDER STRIDE

Prints a JSON list: the state after each kill, and at the end the state without a kill.
"""

import ctypes
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np

from virnucpro.run.manifest import read_manifest
from virnucpro.run_dir import RunDirectory
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.partition import unit_bounds
from virnucpro.store.aggregate import write_embeddings
from virnucpro.store.coverage import survey
from virnucpro.store.segment import Segment, commit_segment, encode_segment

TRACE_ME, STEP_TO_SYSTEM_CALL = 0, 24
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def trace(request, pid):
    if libc.ptrace(request, pid, None, None) != 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def ends_before(stop, action):
    """Kill a child that runs `action` at its `stop`-th stop; return whether it ended before."""
    pid = os.fork()
    if pid == 0:
        trace(TRACE_ME, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        action()
        os._exit(0)
    os.waitpid(pid, 0)
    for _ in range(stop):
        trace(STEP_TO_SYSTEM_CALL, pid)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSTOPPED(status):
            assert status == 0, status
            return True
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False


def after_kills(stride, action, look):
    """List the results of `look` after a kill at every `stride`-th stop, and after a normal end."""
    seen, stop, ended = [], 1, False
    while not ended:
        ended = ends_before(stop, action)
        seen.append(look())
        stop += stride
    return seen


def commits(folder):
    run = RunDirectory(folder)
    run.shard(0).mkdir(parents=True)
    units = [
        Segment(
            unit,
            "f",
            np.arange(unit * 9, unit * 9 + 9),
            np.zeros(9, "u1"),
            np.full((9, 99), unit, "f4"),
            None,
        )
        for unit in range(2)
    ]
    images = [encode_segment(unit) for unit in units]
    commit_segment(run.segment(0, 0), units[0])

    def look():
        coverage = survey(run, np.array([0, 9, 18]), "f")
        unfinished = len(list(run.shard(0).glob("*.tmp")))
        whole = all(path.read_bytes() == images[unit] for unit, path in coverage.done.items())
        state = [sorted(coverage.done), len(coverage.rejected), whole, unfinished]
        run.segment(0, 1).unlink(missing_ok=True)
        run.remove_unfinished()
        return state

    return after_kills(1, lambda: commit_segment(run.segment(0, 1), units[1]), look)


def aggregations(root, folder, stride):
    run = RunDirectory(root)
    manifest, index = read_manifest(run), SequenceIndex.open(run.index)
    bounds = unit_bounds(index.row_lengths, manifest.units["rows"], manifest.units["positions"])
    coverage = survey(run, bounds, manifest.fingerprint)
    output = folder / "embeddings.h5"

    def write():
        write_embeddings(output, coverage, index, manifest.views)

    write()
    new = output.read_bytes()
    output.write_bytes(b"former")

    def look():
        content = output.read_bytes()
        for path in folder.glob("*.tmp"):
            path.unlink()
        if content == new:
            output.write_bytes(b"former")
            return "new"
        return content.decode(errors="replace")[:20]

    return after_kills(stride, write, look)


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    if what == "commit":
        result = commits(Path(arguments[0]))
    else:
        result = aggregations(Path(arguments[0]), Path(arguments[1]), int(arguments[2]))
    print(json.dumps(result))
