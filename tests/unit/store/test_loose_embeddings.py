"""Writing loose segments with one reading, compared with a survey and a second reading."""

import errno
import os
import shutil
from dataclasses import replace
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from virnucpro.errors import SegmentError, StoreError
from virnucpro.store import aggregate, item_vectors
from virnucpro.store.aggregate import write_embeddings, write_surveyed_embeddings
from virnucpro.store.loose import LooseSurvey, survey_loose
from virnucpro.store.segment import commit_segment

VIEWS = {"joined": 8}


def index_of(item_row) -> SimpleNamespace:
    item_row = np.asarray(item_row, np.int64)
    return SimpleNamespace(
        input_names=(),
        n_items=len(item_row),
        item_row=item_row,
        item_names=lambda items: [f"r_chunk_{item}F1" for item in items],
    )


@pytest.fixture
def put(tmp_path, make_segment):
    """Return a function that commits a segment of five rows and returns its path."""

    def commit(unit, folder="a", **changes):
        path = tmp_path / folder / f"unit-{unit:06d}.h5"
        path.parent.mkdir(parents=True, exist_ok=True)
        commit_segment(path, make_segment(unit, unit * 5, unit * 5 + 5, **changes))
        return path

    return commit


@settings(deadline=None, max_examples=40)
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
    index = index_of(data.draw(st.lists(st.integers(0, bounds[-1] - 1), max_size=40)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(item_vectors, "_BLOCK_BYTES", data.draw(st.integers(1, 300)))
        coverage = write_surveyed_embeddings(
            folder / "once", LooseSurvey(paths, bounds[-1]), index, bounds[-1]
        )
    twice = survey_loose(paths, bounds[-1])
    write_embeddings(folder / "twice", twice, index, VIEWS)
    assert coverage.done == twice.done
    assert (folder / "once").read_bytes() == (folder / "twice").read_bytes()
    shutil.rmtree(folder)


def test_segments_are_read_from_the_last_unit_to_the_first_after_the_lowest_path(put):
    paths = [put(0), put(2, "b"), put(1), put(1, "c"), put(2, "c")]
    read = [path for path, _ in LooseSurvey(paths, 15).read()]
    assert read == [paths[0], paths[1], paths[2]]


def test_rows_without_a_segment_are_nan(put, tmp_path):
    index = index_of([12, 7, 3, 6, 0])
    coverage = write_surveyed_embeddings(
        tmp_path / "out", LooseSurvey([put(2), put(0)], 15), index, 15
    )
    assert coverage.gaps == ((5, 10),)
    with h5py.File(tmp_path / "out") as file:
        assert file["status"][:].tolist() == [0, 2, 0, 2, 0]
        assert np.isnan(file["embeddings"][:]).all(axis=1).tolist() == [False, True] * 2 + [False]
        assert file.attrs["n_missing"] == 2
        assert not file.attrs["complete"]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"fingerprint": "e"}, StoreError, r"not from the run of .*: .*b/unit-000001\.h5. Give"),
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
        write_surveyed_embeddings(out, LooseSurvey(paths, 15), index_of(range(15)), 15)
    assert out.read_bytes() == b"former"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "out"]


@pytest.mark.parametrize("unit", [1, 2])
def test_a_segment_of_another_run_is_refused_by_name(put, tmp_path, unit):
    paths = [put(unit, "b", fingerprint="e", dim=7), put(0), put(3 - unit)]
    with pytest.raises(StoreError, match=rf"not from the run of .*b/unit-00000{unit}\.h5. Give"):
        write_surveyed_embeddings(
            tmp_path / "out", LooseSurvey(paths, 15), index_of(range(15)), 15, views=VIEWS
        )


def test_vectors_without_reserved_disk_space_are_not_joined(put, tmp_path, monkeypatch):
    """A temporary file could take their space away."""
    paths = [put(0), put(1), put(2)]

    def written(name):
        index = index_of([4, 14, 3, 7, 9, 0])
        write_surveyed_embeddings(tmp_path / name, LooseSurvey(paths, 15), index, 15)
        return (tmp_path / name).read_bytes()

    joined = written("joined")

    def refused(*_):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    monkeypatch.setattr(os, "posix_fallocate", refused)
    monkeypatch.setattr(aggregate, "in_ranges", None)
    assert written("direct") == joined


def test_a_refused_coverage_leaves_the_former_file(put, tmp_path):
    def refuse(coverage):
        raise SegmentError(f"{len(coverage.done)} segments of another run")

    with pytest.raises(SegmentError, match="2 segments"):
        write_surveyed_embeddings(
            tmp_path / "out",
            LooseSurvey([put(0), put(1)], 10),
            index_of(range(10)),
            10,
            accept=refuse,
        )
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_each_segment_is_read_once(put, tmp_path, monkeypatch):
    from virnucpro.store import segment

    read_segment = segment.read_segment

    read = []

    def counted(path, **options):
        read.append(path)
        return read_segment(path, **options)

    monkeypatch.setattr(segment, "read_segment", counted)
    paths = [put(unit) for unit in range(4)]
    write_surveyed_embeddings(tmp_path / "out", LooseSurvey(paths, 20), index_of(range(20)), 20)
    assert sorted(read) == paths
