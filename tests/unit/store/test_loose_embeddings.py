"""Writing loose segments with one reading, compared with a survey and a second reading."""

import errno
import os
import shutil
from dataclasses import replace

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import items_of

from virnucpro.errors import InputError, SegmentError, StoreError
from virnucpro.run.aggregate_segments import find_segments
from virnucpro.store import aggregate
from virnucpro.store.aggregate import RowNames, write_embeddings
from virnucpro.store.coverage import Survey, survey
from virnucpro.store.segment import commit_segment

VIEWS = {"joined": 8}
BOUNDS = np.array([0, 5, 10, 15])


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=7),
    dtype=st.sampled_from(["f2", "f4"]),
    data=st.data(),
)
def test_one_reading_gives_the_bytes_of_two(sizes, dtype, data, make_segment, tmp_path_factory):
    folder = tmp_path_factory.mktemp("loose")
    bounds = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    units = st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=12)
    names = st.integers(0, 3)  # the name of a loose file may be that of another unit
    for number, unit in enumerate(data.draw(units, label="units, copies among them")):
        path = folder / str(number) / f"unit-{data.draw(names, label='name'):06d}.h5"
        path.parent.mkdir()
        first, last = bounds[unit], bounds[unit + 1]
        segment = make_segment(
            unit, first, last, dtype=dtype, quarantined=[last - 1] if unit % 3 == 2 else []
        )
        rounded = segment.embeddings * np.array(1 + number / 4096, dtype)
        commit_segment(path, replace(segment, embeddings=rounded))
    paths = data.draw(st.permutations(list(folder.glob("*/*"))))
    torn = data.draw(st.sampled_from([None, *paths[1:]]), label="torn")
    if torn is not None:
        torn.write_bytes(torn.read_bytes()[:-1])
    index = items_of(data.draw(st.lists(st.integers(0, bounds[-1] - 1), max_size=40)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aggregate, "_BLOCK_BYTES", data.draw(st.integers(1, 300)))
        coverage = write_embeddings(folder / "once", Survey(paths, np.array(bounds)), index)
    twice = survey(paths, np.array(bounds))
    write_embeddings(folder / "twice", twice, index, VIEWS)
    assert coverage.done == twice.done
    assert (folder / "once").read_bytes() == (folder / "twice").read_bytes()
    shutil.rmtree(folder)


def test_segments_are_read_from_the_last_unit_to_the_first(put):
    paths = [put(0), put(2, "b"), put(1), put(1, "c"), put(2, "c")]
    read = [path for path, _ in Survey(paths, BOUNDS).read()]
    assert read == [paths[1], paths[2], paths[0]]


def test_rows_without_a_segment_are_nan(put, tmp_path):
    index = items_of([12, 7, 3, 6, 0])
    coverage = write_embeddings(tmp_path / "out", Survey([put(2), put(0)], BOUNDS), index)
    assert coverage.gaps == [(5, 10)]
    with h5py.File(tmp_path / "out") as file:
        assert file["status"][:].tolist() == [0, 2, 0, 2, 0]
        assert np.isnan(file["embeddings"][:]).all(axis=1).tolist() == [False, True] * 2 + [False]
        assert file.attrs["n_missing"] == 2
        assert not file.attrs["complete"]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"fingerprint": "e"}, StoreError, r"b/unit-000001\.h5: belongs to a run with finger"),
        (
            {"dim": 7},
            StoreError,
            r"b/unit-000001\.h5: the vectors have shape \(5, 7\) and type float32",
        ),
        ({"dim": None}, StoreError, r"b/unit-000001\.h5: the segment has no embeddings"),
    ],
)
def test_refused_segments_leave_the_former_file(put, tmp_path, changes, error, message):
    out = tmp_path / "out"
    out.write_bytes(b"former")
    paths = [put(0), put(2), put(1, "b", **changes)]
    with pytest.raises(error, match=message):
        write_embeddings(out, Survey(paths, BOUNDS), items_of(range(15)))
    assert out.read_bytes() == b"former"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "out"]


def test_vectors_without_reserved_disk_space_are_not_joined(put, tmp_path, monkeypatch):
    """A temporary file could take their space away."""
    paths = [put(0), put(1), put(2)]

    def written(name):
        index = items_of([4, 14, 3, 7, 9, 0])
        write_embeddings(tmp_path / name, Survey(paths, BOUNDS), index)
        return (tmp_path / name).read_bytes()

    joined = written("joined")

    def refused(*_):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "posix_fallocate", refused)
    monkeypatch.setattr(aggregate, "in_ranges", None)
    assert written("direct") == joined


def test_each_segment_is_read_once(put, tmp_path, monkeypatch):
    from virnucpro.store import coverage

    read_segment = coverage.read_segment

    read = []

    def counted(path, **options):
        read.append(path)
        return read_segment(path, **options)

    monkeypatch.setattr(coverage, "read_segment", counted)
    paths = [put(unit) for unit in range(4)]
    write_embeddings(tmp_path / "out", Survey(paths, np.arange(0, 21, 5)), items_of(range(20)))
    assert sorted(read) == paths


# --- segments outside their run


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=7), data=st.data())
def test_segments_in_any_order_are_written_by_row(sizes, data, make_segment, tmp_path_factory):
    folder = tmp_path_factory.mktemp("loose")
    bounds = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    units = data.draw(
        st.lists(st.integers(0, len(sizes) - 1), min_size=1, unique=True), label="units"
    )
    for unit in units:
        segment = make_segment(unit, bounds[unit], bounds[unit + 1], dtype="f2")
        commit_segment(folder / f"{data.draw(st.integers(0, 99))}-{unit}.h5", segment)
    paths = data.draw(st.permutations(list(folder.iterdir())))
    coverage = survey(paths)
    write_embeddings(folder / "out", coverage, RowNames(coverage), VIEWS)
    covered = sorted(row for unit in units for row in range(bounds[unit], bounds[unit + 1]))
    with h5py.File(folder / "out") as file:
        wanted = (np.array(covered)[:, None] + np.arange(8) / 16).astype("f2")
        np.testing.assert_array_equal(file["embeddings"][:], wanted)
        assert file["sequence_ids"].asstr()[:].tolist() == [str(row) for row in covered]
        assert not file.attrs["complete"]
    in_gaps = [row for first, end in coverage.gaps for row in range(first, end)]
    assert in_gaps == [row for row in range(covered[-1] + 1) if row not in covered]
    assert [[*range(*coverage.bounds[[unit, unit + 1]])] for unit in coverage.done] == [
        [*range(bounds[unit], bounds[unit + 1])] for unit in sorted(units)
    ]
    assert {*coverage.done} | {*coverage.missing} == {*range(len(coverage.bounds) - 1)}
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("unit", "changes", "message"),
    [
        (0, {"dim": 7}, r"b/unit-000000\.h5: embeddings .* compared with .*a/unit-000000\.h5"),
        (0, {"fingerprint": "e"}, r"b/unit-000000\.h5: belongs to a run with fingerprint e"),
        (2, {"fingerprint": "e"}, r"/unit-00000[012]\.h5: belongs to a run with fingerprint"),
    ],
)
def test_different_copies_and_other_runs_are_refused_by_name(put, unit, changes, message):
    with pytest.raises(SegmentError, match=message):
        survey([put(0), put(1), put(unit, "b", **changes)])


def test_a_row_beyond_the_index_is_refused_by_name(put):
    with pytest.raises(SegmentError, match=r"unit-000001\.h5: its rows are not 5 to 6"):
        survey([put(0), put(1)], np.array([0, 5, 7]))


def test_a_truncated_segment_is_a_gap_and_is_listed(put):
    paths = [put(0), put(1), put(2)]
    paths[1].write_bytes(paths[1].read_bytes()[:-1])
    coverage = survey(paths)
    assert coverage.gaps == [(5, 10)]
    assert [(one.path, one.damaged) for one in coverage.rejected] == [(paths[1], True)]


def test_foreign_and_missing_files_are_refused_by_name(put, tmp_path):
    (tmp_path / "notes.txt").write_text("x" * 600)
    with pytest.raises(SegmentError, match=r"notes\.txt: not a segment"):
        survey([put(0), tmp_path / "notes.txt"])
    with pytest.raises(InputError, match="gone: no such file"):
        find_segments([tmp_path / "gone"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty: the folder has no segments"):
        find_segments([tmp_path / "empty"])


def test_files_without_a_valid_segment_are_refused(put):
    path = put(0)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SegmentError, match="none of 1 files is a valid segment"):
        survey([path])


def test_run_shards_and_shard_folders_are_searched_once(put, tmp_path):
    shard = [put(0, "out/run/shards/rank-0000"), put(1, "out/run/shards/rank-0000")]
    (tmp_path / "out/run/shards/rank-0000/unit-000002.h5.1-00000000.tmp").touch()
    for folder in ("out", "out/run/shards", "out/run/shards/rank-0000"):
        assert find_segments([tmp_path / folder, shard[1]]) == shard
