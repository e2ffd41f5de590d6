"""Segments outside their run."""

import shutil

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.errors import InputError, SegmentError
from virnucpro.run.aggregate_segments import find_segments
from virnucpro.store.aggregate import RowNames, write_embeddings
from virnucpro.store.coverage import survey
from virnucpro.store.segment import commit_segment

VIEWS = {"joined": 8}


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=7), data=st.data())
def test_segments_in_any_order_are_written_by_ascending_row(
    sizes, data, make_segment, tmp_path_factory
):
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
    shard = [put(0, "run/shards/rank-0000"), put(1, "run/shards/rank-0000")]
    (tmp_path / "run/shards/rank-0000/unit-000002.h5.1-00000000.tmp").touch()
    for folder in ("run", "run/shards", "run/shards/rank-0000"):
        assert find_segments([tmp_path / folder, shard[1]]) == shard
