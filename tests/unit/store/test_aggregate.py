import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import h5py
import numpy as np
import pytest
from cases import slow
from hypothesis import given
from hypothesis import strategies as st
from programs import run_captured
from samples import empty_run, items_of

from virnucpro import arrays
from virnucpro.errors import SegmentError, StoreError
from virnucpro.run_dir import RunDirectory
from virnucpro.store import aggregate, row_items, vector_ranges
from virnucpro.store.aggregate import _BYTES, EarlySync, write_embeddings
from virnucpro.store.coverage import Survey, survey
from virnucpro.store.schema import RowState
from virnucpro.store.segment import read_segment
from virnucpro.store.writer import ShardWriter

FINGERPRINT = "f" * 64
VIEWS = {"nucleotide": 3, "protein": 5}
BOUNDS = np.array([0, 5, 7, 12])


@pytest.fixture
def run(tmp_path, make_segment) -> RunDirectory:
    """Return a run without unit 1 and with a quarantined row 8."""
    run = empty_run(tmp_path)
    ShardWriter(run, 0).commit(make_segment(0, 0, 5))
    ShardWriter(run, 1).commit(make_segment(2, 7, 12, quarantined=[8]))
    return run


def expected_vectors(item_row, state, dtype) -> np.ndarray:
    rows = np.asarray(item_row, np.int64)
    vectors = (rows[:, None] + np.arange(8) / 16).astype(dtype)
    vectors[state[rows] != RowState.DONE] = np.nan
    return vectors


def test_vectors_are_in_input_order_and_nan_in_gaps(run):
    item_row = [11, 8, 0, 6, 0, 3, 4, 5, 7]
    coverage = survey(run, BOUNDS, FINGERPRINT)
    write_embeddings(run.embeddings, coverage, items_of(item_row), VIEWS)
    with h5py.File(run.embeddings) as file:
        assert file["embeddings"].dtype == np.float32
        np.testing.assert_array_equal(
            file["embeddings"][:], expected_vectors(item_row, coverage.row_state, "f4")
        )
        assert file["sequence_ids"].asstr()[:2].tolist() == ["récord␀0", "r_chunk_1F1"]
        codes = file["status"].attrs["codes"]
        assert [codes[code] for code in file["status"][:4]] == [
            "done",
            "quarantined",
            "done",
            "missing",
        ]
        assert file["embeddings"].attrs["views"].tolist() == list(VIEWS)
        assert file["embeddings"].attrs["dims"].tolist() == list(VIEWS.values())
        assert not file.attrs["complete"]
        assert (file.attrs["n_missing"], file.attrs["n_quarantined"]) == (2, 1)
        assert file.attrs["fingerprint"] == FINGERPRINT
        assert file.attrs["schema_version"] == 1


def test_a_run_without_gaps_is_complete(run, make_segment):
    ShardWriter(run, 2).commit(make_segment(1, 5, 7))
    write_embeddings(run.embeddings, survey(run, BOUNDS, FINGERPRINT), items_of(range(12)), VIEWS)
    with h5py.File(run.embeddings) as file:
        assert file.attrs["complete"]


@pytest.mark.parametrize("bounds", [[0], [0, 4]])
def test_a_run_without_segments_has_only_gaps(tmp_path, bounds):
    run = empty_run(tmp_path)
    coverage = survey(run, np.array(bounds), FINGERPRINT)
    write_embeddings(run.embeddings, coverage, items_of(range(bounds[-1])), VIEWS)
    with h5py.File(run.embeddings) as file:
        assert file["embeddings"].shape == (bounds[-1], 8)
        assert np.isnan(file["embeddings"][:]).all()
        assert len(file["sequence_ids"]) == len(file["status"]) == bounds[-1]


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    dtype=st.sampled_from(["f2", "f4"]),
    data=st.data(),
)
def test_vectors_are_right_for_any_order_part_size_and_gaps(
    sizes, dtype, data, make_segment, tmp_path_factory
):
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    n_rows = int(bounds[-1])
    item_row = data.draw(st.lists(st.integers(0, n_rows - 1), max_size=40))
    quarantined = data.draw(st.sets(st.integers(0, n_rows - 1)))
    run = empty_run(tmp_path_factory.mktemp("run"))
    for unit in data.draw(st.sets(st.integers(0, len(sizes) - 1), min_size=1)):
        first, last = int(bounds[unit]), int(bounds[unit + 1])
        bad = sorted(row for row in quarantined if first <= row < last)
        segment = make_segment(unit, first, last, dtype=dtype, quarantined=bad)
        ShardWriter(run, unit % 3).commit(segment)
    coverage = survey(run, bounds, FINGERPRINT)
    with pytest.MonkeyPatch.context() as patch:
        for module, constant, most in (
            (aggregate, "_BLOCK_BYTES", 300),
            (arrays, "_AT_ONCE", 30),
            (row_items, "_ITEMS_AT_ONCE", 30),
            (row_items, "_BUCKET_BITS", 6),
            (vector_ranges, "_RANGE_BYTES", 100),
            (vector_ranges, "_HELD_BYTES", 400),
            (vector_ranges, "_LEAST_BYTES", 100),
        ):
            patch.setattr(module, constant, data.draw(st.integers(1, most), label=constant))
        write_embeddings(run.embeddings, coverage, items_of(item_row), VIEWS)
        patch.setattr(vector_ranges, "_PAGE_BYTES", 0)
        write_embeddings(run.root / "direct", coverage, items_of(item_row), VIEWS)
    assert run.embeddings.read_bytes() == (run.root / "direct").read_bytes()
    with h5py.File(run.embeddings) as file:
        np.testing.assert_array_equal(
            file["embeddings"][:], expected_vectors(item_row, coverage.row_state, dtype)
        )
        assert file["embeddings"].dtype == dtype
        np.testing.assert_array_equal(file["status"][:], coverage.row_state[item_row])
        assert len(file["sequence_ids"].asstr()[:]) == len(item_row)
    shutil.rmtree(run.root)


class CountingRows:
    """A column that counts the values that are read."""

    def __init__(self, values):
        self.values = values
        self.n_read = 0

    def __len__(self):
        return len(self.values)

    def __getitem__(self, key):
        found = self.values[key]
        self.n_read += found.size
        return found


def test_items_are_read_as_often_for_many_segments_as_for_one(tmp_path, make_segment):
    n_read = []
    for n_units in (1, 50):
        run = empty_run(tmp_path / str(n_units))
        bounds = np.linspace(0, 100, n_units + 1).astype(np.int64)
        for unit in range(n_units):
            ShardWriter(run, 0).commit(make_segment(unit, bounds[unit], bounds[unit + 1]))
        index = items_of(np.random.default_rng(0).integers(0, 100, 400))
        index.item_row = CountingRows(index.item_row)
        write_embeddings(run.embeddings, survey(run, bounds, FINGERPRINT), index, VIEWS)
        n_read.append(index.item_row.n_read)
    assert n_read[0] == n_read[1] <= 4 * 400


def test_a_segment_damaged_since_the_survey_leaves_the_former_file(run):
    coverage = survey(run, BOUNDS, FINGERPRINT)
    run.embeddings.write_bytes(b"former")
    path = run.segment(1, 2)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SegmentError, match="truncated"):
        write_embeddings(run.embeddings, coverage, items_of(range(12)), VIEWS)
    assert run.embeddings.read_bytes() == b"former"
    assert sorted(path.name for path in run.root.iterdir()) == ["embeddings.h5", "run"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": None}, "has no embeddings"),
        ({"dim": 7}, r"shape \(5, 7\) and type float32 instead of \(5, 8\) and float32"),
        ({"dtype": "f2"}, r"shape \(5, 8\) and type float16 instead of \(5, 8\) and float32"),
    ],
)
def test_vectors_of_another_shape_or_type_are_refused_by_name(run, make_segment, changes, message):
    ShardWriter(run, 1).commit(make_segment(2, 7, 12, **changes))
    coverage = survey(run, BOUNDS, FINGERPRINT)
    with pytest.raises(StoreError, match=rf"unit-000002\.h5: .*{message}"):
        write_embeddings(run.embeddings, coverage, items_of(range(12)), VIEWS)


FULL_DISK = """
import json, resource, sys
from pathlib import Path
from types import SimpleNamespace
import numpy as np
from virnucpro.run_dir import RunDirectory
from virnucpro.store import vector_ranges
from virnucpro.store.aggregate import write_embeddings
from virnucpro.store.coverage import survey

vector_ranges._HELD_BYTES = vector_ranges._LEAST_BYTES = int(sys.argv[4])
run, target = RunDirectory(Path(sys.argv[1])), Path(sys.argv[2])
coverage = survey(run, np.array([0, 5, 7, 12]), "f" * 64)
rows = np.arange(6000) % 12
index = SimpleNamespace(
    input_names=(),
    n_items=6000, item_row=rows, item_names=lambda items: [f"name_of_item_{i}" for i in items],
    without_vector=lambda rows: np.zeros(len(rows), bool),
)

def attempt():
    try:
        write_embeddings(target / "embeddings.h5", coverage, index, {"nucleotide": 3, "protein": 5})
    except OSError as error:
        assert "embeddings.h5 could not be written" in error.__notes__[-1]
        assert "need more than 192,000 bytes of disk, " in error.__notes__[0]
        return error.strerror
    return "written"

def limited():
    # Python ignores SIGXFSZ: a write beyond the limit fails as on a full disk, with EFBIG.
    for limit in [*range(0, 6000, 250), *range(6000, 800_000, 9973), 1_000_000]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, -1))
        yield limit, attempt()
    resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))

def filled():
    # The disk of `target` has room for two of these files at most; ballast leaves less and less.
    ballast = target / "ballast"
    for free in range(0, 800_000, 32_768):
        ballast.write_bytes(b"")
        with ballast.open("wb") as stream:
            import os
            space = os.statvfs(target)
            size = space.f_bavail * space.f_frsize - free
            os.posix_fallocate(stream.fileno(), 0, size)
        yield free, attempt()
    ballast.unlink()

results = [
    [place, outcome, (target / "embeddings.h5").stat().st_size]
    for place, outcome in (limited() if sys.argv[3] == "limited" else filled())
]
results.append(["free", attempt(), 0])
print(json.dumps(results))
"""


HELD = [slow(64 << 20), 50_000]


def outcomes(run, target, way, held=64 << 20) -> list[tuple[object, str, int]]:
    (target / "embeddings.h5").write_bytes(b"former")
    result = run_captured(sys.executable, "-c", FULL_DISK, run.root, target, way, held)
    assert result.returncode == 0, (result.returncode, result.stderr)
    return json.loads(result.stdout)


@pytest.mark.parametrize("held", HELD, ids=["in memory", "in a temporary file"])
def test_a_file_size_limit_at_any_position_raises_an_error(run, tmp_path, held):
    target = tmp_path / "target"
    target.mkdir()
    results = outcomes(run, target, "limited", held)
    failed = [entry for entry in results if entry[1] == "File too large"]
    assert len(failed) > 60
    assert {size for *_, size in failed} == {len(b"former")}
    assert [outcome for _, outcome, _ in results[-2:]] == ["written", "written"]
    assert [path.name for path in target.iterdir()] == ["embeddings.h5"]
    with h5py.File(target / "embeddings.h5") as file:
        assert file["sequence_ids"].asstr()[5999] == "name_of_item_5999"


@pytest.fixture
def small_disk(tmp_path):
    """Return a disk of 2 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a small tmpfs: run as root with the right to mount")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("held", HELD, ids=["in memory", "in a temporary file"])
def test_a_disk_full_at_any_position_raises_an_error(run, small_disk, held):
    results = outcomes(run, small_disk, "filled", held)
    failed = [entry for entry in results if entry[1] == "No space left on device"]
    assert len(failed) >= 10
    assert {size for *_, size in failed} == {len(b"former")}
    assert results[-1][1] == "written"
    with h5py.File(small_disk / "embeddings.h5") as file:
        np.testing.assert_array_equal(
            file["embeddings"][:5], read_segment(run.segment(0, 0)).embeddings
        )


class Interrupted(BaseException):
    """Raised by a signal handler."""


@pytest.mark.parametrize("write", range(1, 16))
def test_a_signal_during_hdf5_is_delivered_and_leaves_the_former_file(run, write, monkeypatch):
    """At the first write, the thread still starts for the caller; no thread writes afterwards."""
    from virnucpro.store import embeddings_file

    start = threading.Thread.start
    monkeypatch.setattr(
        threading.Thread, "start", lambda thread: (start(thread), time.sleep(0.1 * (write == 1)))
    )

    def interrupt(signum, frame):
        raise Interrupted

    calls = 0
    plain_write = embeddings_file._UnfailingFile.write

    def interrupted_write(self, data):
        nonlocal calls
        calls += 1
        if calls == write:
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.3 * (write == 1))
        return plain_write(self, data)

    monkeypatch.setattr(embeddings_file._UnfailingFile, "write", interrupted_write)
    run.embeddings.write_bytes(b"former")
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(Interrupted):
            write_embeddings(
                run.embeddings, survey(run, BOUNDS, FINGERPRINT), items_of([11, 8, 0, 6]), VIEWS
            )
        names = [thread.name for thread in threading.enumerate()]
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not [name for name in names if name.startswith("virnucpro-hdf5")]
    assert run.embeddings.read_bytes() == b"former"
    assert list(run.root.glob("*.tmp")) == []


@given(data=st.data(), dtype=st.sampled_from(["f2", "f4"]))
def test_writing_while_verifying_gives_the_same_bytes(data, dtype, make_segment, tmp_path_factory):
    """Copies, quarantined rows, missing units and damaged files in all shards."""
    run = empty_run(tmp_path_factory.mktemp("run"))
    bounds = np.array([0, 3, 4, 9, 12])
    for rank in range(3):
        for unit in data.draw(st.sets(st.integers(0, 3)), label=f"units of rank {rank}"):
            first, last = int(bounds[unit]), int(bounds[unit + 1])
            poison = data.draw(st.sets(st.integers(first, last - 1)), label="quarantined")
            segment = make_segment(unit, first, last, dtype=dtype, quarantined=sorted(poison))
            ShardWriter(run, rank).commit(segment)
            if data.draw(st.integers(0, 4), label="damaged if 0") == 0:
                path = run.segment(rank, unit)
                path.write_bytes(path.read_bytes()[:-1])
    index = items_of(data.draw(st.lists(st.integers(0, 11), max_size=30), label="item_row"))
    once, twice = run.root / "once", run.root / "twice"
    reading = Survey(run, bounds, FINGERPRINT)
    found = write_embeddings(once, reading, index, VIEWS)
    known = survey(run, bounds, FINGERPRINT)
    write_embeddings(twice, known, index, VIEWS)
    assert once.read_bytes() == twice.read_bytes()
    assert (found.done, found.missing) == (known.done, known.missing)
    np.testing.assert_array_equal(found.scores, known.scores)
    shutil.rmtree(run.root)


# --- flushes while a file is written


def test_large_writes_are_flushed_and_small_ones_are_not(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(os, "fdatasync", flushed.append)
    with (tmp_path / "file").open("wb") as stream:
        with EarlySync(stream.fileno()) as sync:
            sync.wrote(_BYTES - 1)
            assert not flushed
            sync.wrote(1)
        assert flushed == [stream.fileno()]


def write_much(path, turns):
    with path.open("wb") as stream, EarlySync(stream.fileno()) as sync:
        for _ in range(turns):
            sync.wrote(_BYTES)
            time.sleep(0.01)


@pytest.mark.parametrize("turns", [1, 50])
def test_a_failed_flush_is_not_lost(tmp_path, monkeypatch, turns):
    def fail(_handle):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(OSError, match="Input/output"):
        write_much(tmp_path / "file", turns)
