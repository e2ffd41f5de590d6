import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.classify.consensus import Call, Status, Thresholds, call_records, call_windows
from virnucpro.sequences.spec import RecordStatus
from virnucpro.store.schema import RowState

DONE, QUARANTINED, MISSING = RowState.DONE, RowState.QUARANTINED, RowState.MISSING


def windows_of(groups):
    """Return windows from lists of (score2, state), one pair for each item."""
    first = np.cumsum([0, *map(len, groups)])
    items = [item for group in groups for item in group]
    scores = np.array([(1 - virus, virus) for virus, _ in items], np.float32).reshape(-1, 2)
    state = np.array([state for _, state in items], np.uint8)
    scores[state != DONE] = np.nan
    return call_windows(first, np.arange(len(items)), scores, state)


def test_a_window_is_viral_if_its_virus_score_is_not_below_the_other():
    calls = windows_of([[(0.1, DONE), (0.95, DONE)], [(0.1, DONE), (0.8, DONE)], [(0.5, DONE)]])
    assert calls.call.tolist() == [Call.VIRAL, Call.NON_VIRAL, Call.VIRAL]
    assert calls.score == pytest.approx([0.95 / 1.85, 0.8 / 1.7, 0.5])
    assert calls.best_item.tolist() == [1, 3, 4]


def test_a_missing_item_prevents_the_call_and_a_quarantined_one_does_not():
    calls = windows_of(
        [
            [(0.9, DONE), (0.9, MISSING)],
            [(0.9, DONE), (0.1, QUARANTINED)],
            [(0.9, QUARANTINED)],
            [],
        ]
    )
    assert [Status(code) for code in calls.status] == [
        Status.MISSING,
        Status.SCORED,
        Status.QUARANTINED,
        Status.NO_OPEN_FRAME,
    ]
    assert np.isnan(calls.score).tolist() == [True, False, True, True]
    assert calls.n_scored.tolist() == [1, 1, 0, 0]
    assert calls.best_item.tolist() == [-1, 2, -1, -1]


def test_the_first_of_equal_items_is_the_best():
    calls = windows_of([[(0.7, DONE), (0.7, DONE)]])
    assert calls.best_item.tolist() == [0]


def test_the_score_of_a_record_is_the_mean_of_its_scored_windows():
    windows = windows_of([[(0.9, DONE)], [(0.5, DONE)], [], [(0.2, DONE)], [(0.5, DONE)]])
    records = call_records(
        np.array([0, 3, 4, 5]),
        np.full(3, RecordStatus.SCORABLE, np.uint8),
        windows,
        Thresholds(viral=0.6, non_viral=0.4),
    )
    assert records.score == pytest.approx([0.7, 0.2, 0.5])
    assert records.call.tolist() == [Call.VIRAL, Call.NON_VIRAL, Call.AMBIGUOUS]
    assert records.n_windows.tolist() == [3, 1, 1]
    assert records.n_scored.tolist() == [2, 1, 1]
    assert records.best_window.tolist() == [0, 3, 4]


def test_a_record_with_a_missing_window_has_a_score_and_no_call():
    windows = windows_of([[(0.9, DONE)], [(0.9, MISSING)]])
    records = call_records(
        np.array([0, 2]), np.array([RecordStatus.SCORABLE], np.uint8), windows, Thresholds()
    )
    assert records.status.tolist() == [Status.MISSING]
    assert records.call.tolist() == [Call.NOT_SCORED]
    assert records.score == pytest.approx([0.9])
    assert records.n_missing.tolist() == [1]


def test_records_without_windows_have_a_status():
    windows = windows_of([[]])
    records = call_records(
        np.array([0, 0, 0, 1]),
        np.array(
            [RecordStatus.TOO_SHORT, RecordStatus.AMBIGUOUS_BASES, RecordStatus.NO_OPEN_FRAME],
            np.uint8,
        ),
        windows,
        Thresholds(),
    )
    assert [Status(code) for code in records.status] == [
        Status.TOO_SHORT,
        Status.AMBIGUOUS_BASES,
        Status.NO_OPEN_FRAME,
    ]
    assert np.isnan(records.score).all()
    assert records.best_window.tolist() == [-1, -1, -1]


@pytest.mark.parametrize("n_windows", [0, 3])
def test_empty_windows_and_records(n_windows):
    windows = windows_of([[]] * n_windows)
    records = call_records(np.array([0]), np.zeros(0, np.uint8), windows_of([]), Thresholds())
    assert windows.status.tolist() == [Status.NO_OPEN_FRAME] * n_windows
    assert len(records.call) == 0


items = st.tuples(
    st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.sampled_from([DONE, QUARANTINED, MISSING])
)


@given(st.lists(st.lists(items, max_size=4), max_size=12))
def test_windows_agree_with_one_window_at_a_time(groups):
    calls = windows_of(groups)
    for number, group in enumerate(groups):
        states = {state for _, state in group}
        scored = [virus for virus, state in group if state == DONE]
        if MISSING in states:
            expected = Status.MISSING
        elif scored:
            expected = Status.SCORED
        else:
            expected = Status.QUARANTINED if group else Status.NO_OPEN_FRAME
        assert calls.status[number] == expected
        if expected == Status.SCORED:
            virus, others = max(scored), max(1 - one for one in scored)
            assert math.isclose(calls.score[number], virus / (virus + others), rel_tol=1e-6)
            assert calls.call[number] == (Call.VIRAL if virus >= others else Call.NON_VIRAL)
        else:
            assert calls.call[number] == Call.NOT_SCORED
