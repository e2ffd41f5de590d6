import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.sequences.windows import TILINGS, tile, tile_all

lengths = st.integers(0, 20_000)
windows = st.integers(1, 1_200)
tilings = st.sampled_from(TILINGS)


def spans(length, window, tiling):
    starts, ends = tile(length, window, tiling)
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


@pytest.mark.parametrize(
    ("length", "tiling", "expected"),
    [
        (0, "published", []),
        (0, "even", []),
        (1, "published", [(0, 1)]),
        (499, "even", [(0, 499)]),
        (500, "published", [(0, 500)]),
        (501, "published", [(0, 500), (250, 501)]),
        (501, "even", [(0, 500), (1, 501)]),
        (1000, "published", [(0, 500), (500, 1000)]),
        (1300, "published", [(0, 500), (433, 933), (866, 1300)]),
        (1300, "even", [(0, 500), (400, 900), (800, 1300)]),
    ],
)
def test_windows_of_known_lengths(length, tiling, expected):
    assert spans(length, 500, tiling) == expected


@given(lengths, windows, tilings)
def test_windows_cover_the_record_in_order_within_the_limit(length, window, tiling):
    starts, ends = tile(length, window, tiling)
    assert len(starts) == -(-length // window)
    covered = 0
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        assert start <= covered < end
        assert end - start <= window
        covered = end
    assert covered == length


@given(lengths, windows)
def test_even_windows_are_complete_and_equally_spaced(length, window):
    starts, ends = tile(length, window, "even")
    if length >= window:
        assert set(ends - starts) == {window}
        gaps = np.diff(starts)
        assert not gaps.size or gaps.max() - gaps.min() <= 1


@given(st.lists(lengths, max_size=12), windows, tilings)
def test_many_records_have_the_windows_of_single_records(many, window, tiling):
    together = tile_all(np.array(many, dtype=np.int64), window, tiling)
    for i, length in enumerate(many):
        mine = slice(together.first[i], together.first[i + 1])
        starts, ends = tile(length, window, tiling)
        np.testing.assert_array_equal(together.starts[mine], starts)
        np.testing.assert_array_equal(together.ends[mine], ends)
    assert together.first[-1] == len(together.starts) == len(together.ends)
    assert {a.dtype for a in (together.first, together.starts, together.ends)} == {np.dtype("i8")}
