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

from virnucpro.errors import StoreError
from virnucpro.store import aggregate
from virnucpro.store.aggregate import write_embeddings
from virnucpro.store.coverage import Survey, survey
from virnucpro.store.segment import commit_segment

VIEWS = {"joined": 8}
BOUNDS = np.array([0, 5, 10, 15])


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=7),
    dtype=st.sampled_from(["f2", "f4"]),
    data=st.data(),
)
def test_one_reading_gives_the_same_bytes_as_two(
    sizes, dtype, data, make_segment, tmp_path_factory
):
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
