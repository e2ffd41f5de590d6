"""Row 21: a power cut loses unsynced data and no committed segment.

A real ext4 on a loop device is shut down without writing its journal, by an ioctl for file system
tests. The next mount shows only data that an fsync has written. The tests cover the file system's
rules for data, names and folders, but not disks that report a flush too early.
"""

import fcntl
import os
import signal
import struct
import subprocess
import sys
import time

import numpy as np
import pytest
from cases import slow
from programs import PREDICT, VIRNUCPRO, run_captured

from virnucpro.run.verify import verify_run
from virnucpro.run_dir import RunDirectory
from virnucpro.store.coverage import survey

SHUTDOWN = 0x8004587D
WITHOUT_LOG = 2

WRITER = """
import sys
from pathlib import Path
import numpy as np
from virnucpro.run_dir import RunDirectory
from virnucpro.store.segment import Segment
from virnucpro.store.writer import ShardWriter

writer = ShardWriter(RunDirectory(Path(sys.argv[1])), 0)
for unit in range(10_000):
    rows = np.arange(unit * 4, unit * 4 + 4)
    vectors = np.repeat(rows[:, None], 9000, axis=1).astype("f4")
    writer.commit(Segment(unit, "f", rows, np.zeros(4, "u1"), vectors, None))
    print(unit, flush=True)
"""


def call(*command):
    return run_captured(*command)


class Disk:
    """A disk with a function that simulates a power cut."""

    def __init__(self, image, folder):
        self.image, self.folder = image, folder
        with image.open("wb") as stream:
            stream.truncate(256 << 20)
        self.made = call("mkfs.ext4", "-q", "-F", image)
        folder.mkdir()

    def mount(self):
        done = call("mount", "-o", "loop", self.image, self.folder)
        if done.returncode:
            pytest.skip(f"needs root and loop devices: {done.stderr.strip()}")

    def cut(self):
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(handle, SHUTDOWN, struct.pack("I", WITHOUT_LOG))
        finally:
            os.close(handle)

    def mount_again(self):
        deadline = time.monotonic() + 10
        while (done := call("umount", self.folder)).returncode:
            assert time.monotonic() < deadline, done.stderr
            time.sleep(0.02)  # until the last killed process has closed its files
        self.mount()


@pytest.fixture
def disk_with_power_cut(tmp_path):
    try:
        disk = Disk(tmp_path / "image", tmp_path / "mounted")
    except FileNotFoundError:
        pytest.skip("needs mkfs.ext4 (e2fsprogs)")
    disk.mount()
    yield disk
    call("umount", "-l", disk.folder)


def test_the_simulated_power_cut_drops_unsynced_data(disk_with_power_cut):
    (disk_with_power_cut.folder / "unsynced").write_bytes(b"x" * 100_000)
    disk_with_power_cut.cut()
    disk_with_power_cut.mount_again()
    unsynced = disk_with_power_cut.folder / "unsynced"
    assert not unsynced.exists() or unsynced.stat().st_size == 0


@pytest.mark.parametrize("after", [slow(0), slow(1), slow(7), 20])
def test_acknowledged_segments_survive_a_power_cut(disk_with_power_cut, after):
    run = RunDirectory(disk_with_power_cut.folder / "run")
    run.machine.mkdir(parents=True)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, run.root], stdout=subprocess.PIPE, text=True
    ) as writer:
        acknowledged = [int(writer.stdout.readline()) for _ in range(after + 1)]
        time.sleep(0.003 * after)
        disk_with_power_cut.cut()
        writer.send_signal(signal.SIGKILL)
        # lines between the last one read and the cut are acknowledgements, too
        later = [int(line) for line in writer.stdout if line.endswith("\n")]
    disk_with_power_cut.mount_again()
    coverage = survey(run, np.arange(0, 40_004, 4), "f")
    assert coverage.rejected == ()
    assert {*acknowledged, *later} <= coverage.done.keys()
    assert len(coverage.done) <= len(acknowledged) + len(later) + 1


@pytest.mark.slow
def test_a_run_resumes_after_a_power_cut(
    disk_with_power_cut, few_fasta, undisturbed, virnucpro, difference_of
):
    run = RunDirectory(disk_with_power_cut.folder / "run")
    command = [*VIRNUCPRO, *PREDICT, few_fasta, "-o", run.root, "-q", "--devices", "cpu:1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True) as process:
        while len(run.segments()) < 2 and process.poll() is None:
            time.sleep(0.002)
        disk_with_power_cut.cut()
        os.killpg(process.pid, signal.SIGKILL)
    disk_with_power_cut.mount_again()
    found = verify_run(run)
    assert found.problems == ()
    assert found.units_missing
    assert len(found.units_missing) < found.units
    virnucpro("predict", few_fasta, "-o", run.root, "--resume", "--devices", "cpu:1", code=0)
    assert difference_of(undisturbed, run.root) == []
