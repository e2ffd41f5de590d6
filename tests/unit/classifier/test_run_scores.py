from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.classifier import run_scores
from virnucpro.classifier.consensus import (
    RecordScores,
    Status,
    WindowCalls,
    call_windows,
    score_records,
)
from virnucpro.classifier.run_scores import (
    RunWindows,
    piece_scores,
    record_blocks,
    run_windows,
    score_run,
)
from virnucpro.sequences.items import WINDOW_ITEM
from virnucpro.sequences.spec import RecordStatus
from virnucpro.store.schema import RowState
from virnucpro.tables.source import likely_sources


def bounds_of(counts):
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def run_of(seed, windows, items, *, kind="frames"):
    """Return a random index and coverage, with any states, duplicates and empty windows."""
    dice = np.random.default_rng(seed)
    first_item = bounds_of(items)
    n_windows, n_items = len(items), int(first_item[-1])
    n_rows = max(1, n_items)
    starts = dice.integers(0, 50, n_windows)
    first_piece = bounds_of(dice.integers(0, 4, len(windows)))
    index = SimpleNamespace(
        spec=SimpleNamespace(kind=kind),
        n_records=len(windows),
        n_windows=n_windows,
        record_first_window=bounds_of(windows),
        judged_letters=dice.integers(0, 999, len(windows)),
        record_first_piece=first_piece,
        piece_row=dice.integers(0, n_rows, first_piece[-1]),
        row_lengths=dice.integers(1, 99, n_rows, np.int32),
        record_status=dice.integers(0, len(RecordStatus), len(windows)).astype(np.uint8),
        window_first_item=first_item,
        window_starts=starts,
        window_ends=starts + dice.integers(1, 120, n_windows),
        item_row=dice.integers(0, n_rows, n_items),
        item_frame=dice.choice([0, 3, WINDOW_ITEM], n_items).astype(np.uint8),
    )
    state = dice.choice([0, 0, 0, 0, 0, 1, 2], n_rows).astype(np.uint8)
    scores = dice.random((n_rows, 5), np.float32)
    scores[state != RowState.DONE] = np.nan
    return index, SimpleNamespace(row_state=state, scores=scores)


def calls_at_once(index, coverage):
    if index.spec.kind == "windows":
        short = index.window_ends - index.window_starts < 60
        without = np.where(short, Status.TOO_SHORT, Status.AMBIGUOUS_BASES).astype(np.uint8)
    else:
        without = np.full(index.n_windows, Status.NO_OPEN_FRAME, np.uint8)
    return call_windows(
        index.window_first_item,
        index.item_row,
        coverage.scores[:, :2],
        coverage.row_state,
        index.item_frame,
        without,
    )


def records_at_once(index, coverage, windows):
    return score_records(
        index.record_first_window,
        index.record_status,
        index.judged_letters,
        windows,
        index.window_ends - index.window_starts,
        piece_scores(index, coverage, 2, 0, index.n_records),
    )


def assert_identical(found, wanted):
    for name in type(wanted).__slots__:
        one, other = getattr(found, name), getattr(wanted, name)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other, err_msg=name)


@given(
    seed=st.integers(0, 2**32),
    windows=st.lists(st.integers(0, 12), max_size=12),
    kind=st.sampled_from(["frames", "windows"]),
    at_once=st.integers(1, 40),
    data=st.data(),
)
def test_blocks_have_the_same_bits_as_all_at_once(seed, windows, kind, at_once, data):
    counts = st.lists(st.integers(0, 4), min_size=sum(windows), max_size=sum(windows))
    index, coverage = run_of(seed, windows, data.draw(counts), kind=kind)
    whole = calls_at_once(index, coverage)
    records = records_at_once(index, coverage, whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_scores, "_WINDOWS_AT_ONCE", at_once)
        calls = RunWindows(index, coverage)
        assert_identical(score_run(index, calls, coverage, 2), records)
        first = data.draw(st.integers(0, index.n_windows))
        last = data.draw(st.integers(first, index.n_windows))
        assert_identical(calls.block(first, last), whole.block(first, last))
        patch.setattr(run_scores, "_WINDOWS_KEPT", data.draw(st.integers(0, 40)))
        assert_identical(run_windows(index, coverage).block(first, last), whole.block(first, last))
        in_blocks = likely_sources(index, calls, coverage, 2)
    np.testing.assert_array_equal(in_blocks, likely_sources(index, whole, coverage, 2))


def test_long_records_have_the_same_bits_as_all_at_once(monkeypatch):
    dice = np.random.default_rng(1)
    windows = dice.integers(0, 60_000, 6)
    index, coverage = run_of(2, windows, dice.integers(0, 4, windows.sum()))
    whole = calls_at_once(index, coverage)
    wanted = records_at_once(index, coverage, whole)
    monkeypatch.setattr(run_scores, "_WINDOWS_AT_ONCE", 7)
    assert_identical(score_run(index, RunWindows(index, coverage), coverage, 2), wanted)


@pytest.mark.parametrize("windows", [[], [0] * 10, [3, 0, 9, 1, 1, 1, 0]])
def test_blocks_of_records_are_complete_and_small(windows, monkeypatch):
    monkeypatch.setattr(run_scores, "_WINDOWS_AT_ONCE", 4)
    index = SimpleNamespace(n_records=len(windows), record_first_window=bounds_of(windows))
    blocks = list(record_blocks(index))
    assert [number for a, b in blocks for number in range(a, b)] == list(range(len(windows)))
    assert all(b - a == 1 or (sum(windows[a:b]) <= 4 and b - a <= 4) for a, b in blocks)


def test_results_have_one_entry_per_attribute():
    assert WindowCalls.__slots__ == tuple(WindowCalls.__annotations__)
    assert RecordScores.__slots__ == tuple(RecordScores.__annotations__)
