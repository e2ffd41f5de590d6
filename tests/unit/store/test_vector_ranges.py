"""Vectors in any order, joined into ranges with tiny buffers, and a disk that becomes full."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.store import vector_ranges
from virnucpro.store.embeddings_file import ItemVectors, Layout
from virnucpro.store.vector_ranges import in_ranges

UNKNOWN = -1


def layout_of(n_items: int, dim: int = 3, dtype: str = "f4", **other) -> Layout:
    return Layout(n_items, {"joined": dim}, np.dtype(dtype), {}, **other)


def vectors_of(items, layout: Layout, seed: int) -> ItemVectors:
    """Return vectors of `items` at random positions among vectors of other items."""
    items = np.sort(np.asarray(items, np.int64))
    dice = np.random.default_rng(seed)
    positions = dice.permutation(len(items) + 3)[: len(items)]
    vectors = dice.integers(0, 1000, (len(items) + 3, layout.dim)).astype(layout.dtype)
    return ItemVectors(items, positions, vectors)


def array_of(parts, layout: Layout) -> np.ndarray:
    """Return what a file has after the vectors of all parts are written in the given order."""
    written = np.full((layout.n_items, layout.dim), UNKNOWN, layout.dtype)
    for some in parts:
        written[some.items] = some.vectors[some.positions]
    return written


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    # Python ignores SIGXFSZ: a write beyond the limit fails as on a full disk, with EFBIG.
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, former[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)


@contextmanager
def tiny_buffers(data) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for constant, most in (
            ("_RANGE_BYTES", 100),
            ("_MOST_RANGES", 20),
            ("_HELD_BYTES", 600),
            ("_LEAST_BYTES", 200),
            ("_COPIED_ITEMS", 5),
        ):
            value = data.draw(st.integers(1, most), label=constant)
            patch.setattr(vector_ranges, constant, value)
        yield


@given(
    data=st.data(),
    dtype=st.sampled_from(["f2", "f4"]),
    dim=st.integers(1, 4),
    limit=st.sampled_from([None, 0, 100, 1000]),
)
def test_joined_vectors_give_the_same_file(data, dtype, dim, limit, tmp_path_factory):
    """Items in any order, some of them several times or never; on a full disk too."""
    n_items = data.draw(st.integers(0, 80))
    layout = layout_of(n_items, dim, dtype)
    items = st.sets(st.integers(0, n_items - 1)) if n_items else st.just(set[int]())
    groups = data.draw(st.lists(items, max_size=12))
    parts = [vectors_of(list(some), layout, seed) for seed, some in enumerate(groups)]
    folder = tmp_path_factory.getbasetemp()
    with tiny_buffers(data), file_size_limit(-1 if limit is None else limit):
        written = array_of(in_ranges(parts, layout, folder), layout)
    np.testing.assert_array_equal(written, array_of(parts, layout))


@given(data=st.data(), seed=st.integers(0, 1000))
def test_each_item_is_written_once_in_whole_ranges(data, seed, tmp_path_factory):
    layout = layout_of(70)
    dice = np.random.default_rng(seed)
    parts = [
        vectors_of(items, layout, seed)
        for items in np.split(dice.permutation(70), np.sort(dice.integers(0, 70, 6)))
    ]
    with tiny_buffers(data):
        length = max(1, vector_ranges._RANGE_BYTES // 12, -(-70 // vector_ranges._MOST_RANGES))
        joined = in_ranges(parts, layout, tmp_path_factory.getbasetemp())
        written = [some.items.tolist() for some in joined]
    ranges = [list(range(first, min(first + length, 70))) for first in range(0, 70, length)]
    assert sorted(written) == ranges


def test_rare_items_first_and_dense_ones_later_are_written_range_by_range(tmp_path, monkeypatch):
    monkeypatch.setattr(vector_ranges, "_RANGE_BYTES", 120)
    monkeypatch.setattr(vector_ranges, "_HELD_BYTES", 200)
    monkeypatch.setattr(vector_ranges, "_LEAST_BYTES", 1)
    layout = layout_of(100)
    rare = np.arange(0, 100, 7)
    dense = np.setdiff1d(np.arange(100), rare)
    parts = [vectors_of(some, layout, 0) for some in (rare, *np.array_split(dense, 10))]
    written = in_ranges(parts, layout, tmp_path)
    assert [some.items[0] for some in written] == list(range(0, 100, 10))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "layout",
    [layout_of(40, 1024), layout_of(10, offsets=np.arange(0, 44, 4))],
    ids=["vectors of a page", "residues"],
)
def test_large_vectors_and_residues_are_not_joined(tmp_path, layout):
    parts = [vectors_of(range(start, 40, 4), layout, start) for start in range(4)]
    found = list(in_ranges(parts, layout, tmp_path / "absent"))
    assert all(one is other for one, other in zip(found, parts, strict=True))


def test_an_error_other_than_a_full_disk_is_raised(tmp_path, monkeypatch):
    monkeypatch.setattr(vector_ranges, "_HELD_BYTES", 100)
    layout = layout_of(100)
    with pytest.raises(FileNotFoundError):
        list(in_ranges([vectors_of([3, 50], layout, 0)], layout, tmp_path / "absent"))
