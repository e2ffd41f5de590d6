import os
import queue
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import empty_run

from virnucpro.run_dir import RunDirectory
from virnucpro.store import coverage, segment
from virnucpro.store.coverage import ROUNDING, Survey, difference, survey, valid_segment
from virnucpro.store.schema import RowState
from virnucpro.store.segment import encode_segment, read_segment
from virnucpro.store.writer import ShardWriter

FINGERPRINT = "f" * 64
BOUNDS = np.array([0, 5, 7, 12])


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    return empty_run(tmp_path)


def unit_of_run(make_segment, unit, **changes):
    """Return a unit of BOUNDS."""
    return make_segment(unit, int(BOUNDS[unit]), int(BOUNDS[unit + 1]), **changes)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_of_several_copies_that_with_the_fewest_quarantined_rows_is_used(run, make_segment, order):
    """A device can kill a row that another device computes."""
    copies = [unit_of_run(make_segment, 2, quarantined=rows) for rows in ([8, 9], [], [8])]
    copies[0] = replace(copies[0], reasons={8: "poison", 9: "poison"})
    for rank, number in enumerate(order):
        ShardWriter(run, rank).commit(copies[number])
    found = survey(run, BOUNDS, FINGERPRINT)
    assert found.done == {2: run.segment(order.index(1), 2)}
    assert (found.rejected, found.reasons) == ((), {})
    assert found.row_state[7:].tolist() == [RowState.DONE] * 5
    np.testing.assert_array_equal(found.scores[7:], copies[1].scores)


@pytest.mark.parametrize("n_classes", [0, 3])
def test_segments_of_all_ranks_count_with_all_their_scores(run, make_segment, n_classes):
    first, last = unit_of_run(make_segment, 0), unit_of_run(make_segment, 2, quarantined=[8])
    classes = np.linspace(0, 1, 5 * n_classes, dtype="f4").reshape(5, n_classes)
    first, last = (
        replace(one, scores=np.concatenate([one.scores, classes * (one.state == 0)[:, None]], 1))
        for one in (first, last)
    )
    ShardWriter(run, 17).commit(last)
    ShardWriter(run, 0).commit(first)
    coverage = survey(run, BOUNDS, FINGERPRINT)
    assert coverage.done == {0: run.segment(0, 0), 2: run.segment(17, 2)}
    assert coverage.missing == (1,)
    assert coverage.rejected == ()
    assert coverage.row_state.tolist() == [0] * 5 + [2] * 2 + [0, 1, 0, 0, 0]
    np.testing.assert_array_equal(coverage.scores[:5], first.scores)
    assert np.isnan(coverage.scores[[5, 6, 8]]).all()
    np.testing.assert_array_equal(coverage.scores[9:], last.scores[2:])
    assert coverage.reasons == {8: "not finite"}


def test_after_slow_segments_the_next_ones_are_verified_in_parallel(run, make_segment, monkeypatch):
    monkeypatch.setattr(segment, "_LONG_FILES", 1)
    for unit in range(3):
        ShardWriter(run, 2 - unit).commit(unit_of_run(make_segment, unit))
    together = threading.Barrier(2, timeout=20)

    def verified(path, **_):
        if path.name == "unit-000002.h5":
            time.sleep(0.01)
        else:
            together.wait()
        return read_segment(path)

    monkeypatch.setattr(coverage, "read_segment", verified)
    assert list(survey(run, BOUNDS, FINGERPRINT).done) == [0, 1, 2]


def test_fast_segments_are_verified_without_threads(run, make_segment, monkeypatch):
    for unit in range(3):
        ShardWriter(run, 0).commit(unit_of_run(make_segment, unit))
    threads = []

    def verified(path, **_):
        threads.append(threading.current_thread())
        return read_segment(path)

    monkeypatch.setattr(segment, "_LONG_S", 20)
    monkeypatch.setattr(coverage, "read_segment", verified)
    assert list(survey(run, BOUNDS, FINGERPRINT).done) == [0, 1, 2]
    assert threads == [threading.main_thread()] * 3


def test_the_system_loads_the_next_files_while_files_are_read(tmp_path, monkeypatch):
    paths = [tmp_path / f"{number:03}" for number in range(150)]
    for path in paths:
        path.touch()
    paths[70].unlink()
    paths[71].unlink()
    os.mkfifo(paths[71])  # must not be waited for
    loaded, fetch = queue.Queue(), segment._fetch

    def fetched(some):
        fetch(some)
        loaded.put(some)

    monkeypatch.setattr(segment, "_fetch", fetched)
    waits = {paths[0]: paths[64:128], paths[64]: paths[128:]}

    def read(path):
        assert path not in waits or loaded.get(timeout=20) == waits[path]
        return path.name

    found = list(segment.read_ahead(read, iter(paths)))
    assert found == [(path, path.name) for path in paths]


def test_segments_are_read_from_the_last_unit_and_listed_from_the_first(run, make_segment):
    for unit in range(3):
        ShardWriter(run, 0).commit(unit_of_run(make_segment, unit, quarantined=[int(BOUNDS[unit])]))
        ShardWriter(run, 1).commit(unit_of_run(make_segment, unit))
        torn = run.segment(1, unit)
        torn.write_bytes(torn.read_bytes()[:-1])
    reading = Survey(run, BOUNDS, FINGERPRINT)
    assert [segment.unit for _, segment in reading.read()] == [2, 1, 0]
    found = reading.coverage()
    assert list(found.done) == [0, 1, 2]
    assert list(found.reasons) == BOUNDS[:3].tolist()
    assert found.rejected_paths == tuple(run.segment(1, unit) for unit in range(3))


def test_an_error_that_is_not_the_file_s_ends_the_survey(run, make_segment, monkeypatch):
    ShardWriter(run, 0).commit(unit_of_run(make_segment, 0))

    def failing(path, **_):
        raise OSError(24, "Too many open files", str(path))

    monkeypatch.setattr(coverage, "read_segment", failing)
    with pytest.raises(OSError, match="Too many open files"):
        survey(run, BOUNDS, FINGERPRINT)


def test_a_copy_is_rejected_only_if_it_differs_by_more_than_rounding(run, make_segment):
    segment = unit_of_run(make_segment, 1)
    rounded = replace(segment, embeddings=segment.embeddings * np.float32(1.001))
    other = replace(segment, embeddings=segment.embeddings[::-1].copy())
    for rank, copy in enumerate((segment, rounded, other)):
        ShardWriter(run, rank).commit(copy)
    coverage = survey(run, BOUNDS, FINGERPRINT)
    assert coverage.done == {1: run.segment(0, 1)}
    [rejected] = coverage.rejected
    assert rejected.path == run.segment(2, 1)
    assert not rejected.damaged
    differs = f"different embeddings of 2 rows, first row 5 compared with {run.segment(0, 1)}"
    assert differs in rejected.reason


def test_a_run_without_a_head_has_no_scores(run, make_segment):
    ShardWriter(run, 0).commit(unit_of_run(make_segment, 0, head=False))
    coverage = survey(run, BOUNDS, FINGERPRINT)
    assert coverage.row_state[:5].tolist() == [RowState.DONE] * 5
    assert np.isnan(coverage.scores).all()


@pytest.mark.parametrize(
    ("unit", "rows", "run_of", "reason"),
    [
        (0, (0, 4), "f", "rows are not 0 to 4"),
        (1, (4, 6), "f", "rows are not 5 to 6"),
        (3, (12, 14), "f", "unit 3 is not in the run, which has 3"),
        (0, (0, 5), "e", "fingerprint eee"),
    ],
)
def test_a_segment_of_a_wrong_unit_rows_or_run_is_rejected_by_name(
    run, make_segment, unit, rows, run_of, reason
):
    ShardWriter(run, 0).commit(make_segment(unit, *rows, fingerprint=run_of * 64))
    coverage = survey(run, BOUNDS, FINGERPRINT)
    assert coverage.missing == (0, 1, 2)
    assert coverage.rejected[0].path == run.segment(0, unit)
    assert reason in coverage.rejected[0].reason
    assert str(run.segment(0, unit)) in coverage.rejected[0].reason
    assert (coverage.row_state == RowState.MISSING).all()


def test_stray_files_are_ignored(run, make_segment):
    ShardWriter(run, 0).commit(unit_of_run(make_segment, 0))
    image = encode_segment(unit_of_run(make_segment, 1))
    for name in ("unit-000001.h5.77.tmp", "unit-1.h5", "notes.txt", "unit-000001.h5~"):
        (run.shard(0) / name).write_bytes(image)
    (run.shards / "unit-000001.h5").write_bytes(image)
    coverage = survey(run, BOUNDS, FINGERPRINT)
    assert coverage.missing == (1, 2)
    assert coverage.rejected == ()


def test_the_valid_segment_of_a_unit_is_that_of_the_survey(run, make_segment):
    assert valid_segment(run, 1, BOUNDS, FINGERPRINT) is None
    ShardWriter(run, 0).commit(unit_of_run(make_segment, 1))
    run.segment(0, 1).write_bytes(run.segment(0, 1).read_bytes()[:-1])
    ShardWriter(run, 1).commit(unit_of_run(make_segment, 1, fingerprint="e" * 64))
    assert valid_segment(run, 1, BOUNDS, FINGERPRINT) is None
    for rank in (12, 3):
        ShardWriter(run, rank).commit(unit_of_run(make_segment, 1))
    found = valid_segment(run, 1, BOUNDS, FINGERPRINT)
    assert found == run.segment(3, 1) == survey(run, BOUNDS, FINGERPRINT).done[1]
    assert valid_segment(run, 0, BOUNDS, FINGERPRINT) is None


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=8),
    data=st.data(),
)
def test_each_unit_is_either_done_or_missing(sizes, data, make_segment, tmp_path_factory):
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    run = empty_run(tmp_path_factory.mktemp("run"))
    owners = data.draw(
        st.lists(st.sets(st.integers(0, 3), max_size=2), min_size=len(sizes), max_size=len(sizes))
    )
    for unit, ranks in enumerate(owners):
        for rank in ranks:
            segment = make_segment(unit, int(bounds[unit]), int(bounds[unit + 1]), dim=None)
            ShardWriter(run, rank).commit(segment)
    coverage = survey(run, bounds, FINGERPRINT)
    expected = {unit: run.segment(min(ranks), unit) for unit, ranks in enumerate(owners) if ranks}
    assert coverage.done == expected
    assert coverage.rejected == ()
    assert sorted([*coverage.done, *coverage.missing]) == list(range(len(sizes)))
    covered = np.isin(np.repeat(np.arange(len(sizes)), sizes), list(expected))
    np.testing.assert_array_equal(coverage.row_state != RowState.MISSING, covered)
    np.testing.assert_array_equal(np.isfinite(coverage.scores).all(axis=1), covered)


# --- two segments of one unit


def scaled(values, row, factor):
    changed = values.copy()
    changed[row] *= factor
    return changed


@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_copies_that_differ_by_rounding_are_equal(make_segment, dtype):
    one = make_segment(first=300, last=900, dtype=dtype, quarantined=[302])
    other = replace(
        one,
        embeddings=scaled(one.embeddings, slice(None), 1 + ROUNDING / 2),
        scores=one.scores * np.float32(1 - ROUNDING / 2),
        reasons={302: "in other words"},
    )
    assert difference(one, other) == ""


@pytest.mark.parametrize(
    ("change", "described"),
    [
        (lambda one: {"rows": one.rows + 1}, "different rows"),
        (
            lambda one: {"state": np.where(one.rows == 8, RowState.QUARANTINED, 0).astype("u1")},
            "different states of row 8",
        ),
        (
            lambda one: {"embeddings": scaled(one.embeddings, 299, 1 + 2 * ROUNDING)},
            "different embeddings of 1 rows, first row 304",
        ),
        (lambda one: {"scores": one.scores[:, ::-1]}, "different scores of"),
        (lambda one: {"embeddings": one.embeddings[:, :7]}, "embeddings of different shapes"),
        (lambda one: {"embeddings": one.embeddings.astype("f2")}, "embeddings of different shapes"),
        (lambda _: {"embeddings": None}, "embeddings of different shapes"),
        (lambda _: {"scores": None}, "scores of different shapes"),
    ],
)
def test_a_larger_difference_is_described(make_segment, change, described):
    one = make_segment(first=5, last=400)
    other = replace(one, **change(one))
    assert described in difference(one, other)
    assert described in difference(other, one)


@given(row=st.integers(0, 4), other_row=st.integers(0, 4))
def test_swapped_vectors_of_any_two_rows_are_a_difference(make_segment, row, other_row):
    one = make_segment(dtype="f4", dim=8)
    vectors = one.embeddings.copy()
    vectors[[row, other_row]] = vectors[[other_row, row]]
    assert bool(difference(one, replace(one, embeddings=vectors))) == (row != other_row)


def test_vectors_of_zeros_are_equal(make_segment):
    one = make_segment()
    one = replace(one, embeddings=np.zeros_like(one.embeddings))
    assert difference(one, one) == ""
