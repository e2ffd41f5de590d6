import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from virnucpro.classifier.calibration import LOGIT_LIMIT
from virnucpro.classifier.consensus import (
    Call,
    Evidence,
    PieceScores,
    Status,
    call_windows,
    score_records,
)
from virnucpro.sequences.items import WINDOW_ITEM
from virnucpro.sequences.spec import RecordStatus
from virnucpro.store.schema import RowState

DONE, QUARANTINED, MISSING = RowState.DONE, RowState.QUARANTINED, RowState.MISSING


def windows_of(groups, frame=None, without_item=None):
    """Return windows from lists of (score2, state), one pair for each item."""
    first = np.cumsum([0, *map(len, groups)])
    items = [item for group in groups for item in group]
    scores = np.array([(1 - virus, virus) for virus, _ in items], np.float32).reshape(-1, 2)
    state = np.array([state for _, state in items], np.uint8)
    scores[state != DONE] = np.nan
    frame = np.zeros(len(items)) if frame is None else frame
    if without_item is None:
        without_item = np.full(len(groups), Status.NO_OPEN_FRAME)
    return call_windows(
        first,
        np.arange(len(items)),
        scores,
        state,
        np.asarray(frame, np.uint8),
        np.asarray(without_item, np.uint8),
    )


def records_of(first, windows, status=None, lengths=None, pieces=None):
    """Return the scores of records; all windows have 500 bases unless `lengths` is given.

    `pieces` are the pieces of each record: length, virus score, fact and state.
    """
    n_records = len(first) - 1
    status = [RecordStatus.SCORABLE] * n_records if status is None else status
    lengths = np.full(len(windows.status), 500) if lengths is None else np.array(lengths)
    pieces = pieces or [[]] * n_records
    every = [piece for record in pieces for piece in record]
    scores = [(1 - virus, virus, fact) for _, virus, fact, _ in every]
    return score_records(
        np.array(first),
        np.array(status, np.uint8),
        np.full(n_records, 1000),
        windows,
        lengths,
        PieceScores(
            np.cumsum([0, *map(len, pieces)]),
            np.array([length for length, *_ in every], np.int32),
            np.array(scores, np.float32).reshape(-1, 3),
            np.array([state for *_, state in every], np.uint8),
        ),
    )


def test_the_score_of_a_record_is_the_mean_of_its_scored_windows():
    windows = windows_of([[(0.9, DONE)], [(0.5, DONE)], [], [(0.2, DONE)], [(0.5, DONE)]])
    records = records_of([0, 3, 4, 5], windows)
    assert records.score == pytest.approx([0.7, 0.2, 0.5])
    assert records.n_windows.tolist() == [3, 1, 1]
    assert records.n_scored.tolist() == [2, 1, 1]
    assert records.best_window.tolist() == [0, 3, 4]


def test_a_record_with_a_missing_window_has_a_score_and_is_missing():
    windows = windows_of([[(0.9, DONE)], [(0.9, MISSING)]])
    records = records_of([0, 2], windows)
    assert records.status.tolist() == [Status.MISSING]
    assert records.score == pytest.approx([0.9])
    assert records.n_missing.tolist() == [1]


def test_records_without_windows_have_a_status():
    windows = windows_of([[]])
    status = [RecordStatus.TOO_SHORT, RecordStatus.AMBIGUOUS_BASES, RecordStatus.NO_OPEN_FRAME]
    records = records_of([0, 0, 0, 1], windows, status)
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
    records = records_of([0], windows_of([]))
    assert windows.status.tolist() == [Status.NO_OPEN_FRAME] * n_windows
    assert len(records.score) == len(records.logit) == 0


def test_the_logit_of_a_record_is_the_mean_of_its_scored_windows():
    windows = windows_of([[(0.9, DONE)], [(0.2, DONE), (0.6, DONE)], [], [(0.7, QUARANTINED)]])
    records = records_of([0, 4], windows, lengths=[500, 300, 400, 200])
    # the second window: 0.6 is the highest virus score, and 0.8 the highest score of others
    expected = (math.log(0.9 / 0.1) + math.log(0.6 / 0.8)) / 2
    assert records.logit == pytest.approx([expected], abs=1e-5)
    assert records.scored_bases.tolist() == [800]
    assert records.n_scored.tolist() == [2]


def test_the_logit_of_a_window_is_limited():
    windows = windows_of([[(1.0, DONE)], [(0.0, DONE)], [(1.0, DONE)], [(0.5, DONE)]])
    records = records_of([0, 1, 2, 4], windows)
    assert records.logit == pytest.approx([LOGIT_LIMIT, -LOGIT_LIMIT, LOGIT_LIMIT / 2])


def test_a_window_without_an_item_has_the_given_status():
    given_status = [Status.TOO_SHORT, Status.AMBIGUOUS_BASES, Status.NO_OPEN_FRAME]
    calls = windows_of([[], [], [(0.5, DONE)]], without_item=given_status)
    assert calls.status.tolist() == [Status.TOO_SHORT, Status.AMBIGUOUS_BASES, Status.SCORED]


def test_evidence_names_the_items_that_were_scored():
    windows = windows_of(
        [
            [(0.9, DONE), (0.1, DONE)],
            [(0.5, DONE)],
            [],
            [(0.5, QUARANTINED)],
            [(0.5, DONE), (0.5, MISSING)],
            [(0.5, DONE)],
        ],
        frame=[0, 5, WINDOW_ITEM, WINDOW_ITEM, 2, 3, 1],
    )
    assert windows.evidence.tolist() == [
        Evidence.FRAMES,
        Evidence.COMPOSITION,
        Evidence.NONE,
        Evidence.NONE,
        Evidence.NONE,  # this window has no score yet
        Evidence.FRAMES,
    ]
    records = records_of([0, 2, 3, 5, 6], windows)
    assert records.evidence.tolist() == [
        Evidence.BOTH,
        Evidence.NONE,
        Evidence.NONE,
        Evidence.FRAMES,
    ]


items = st.tuples(
    st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.sampled_from([DONE, QUARANTINED, MISSING])
)


@given(st.lists(st.lists(items, max_size=4), max_size=12))
@example([[(0.25, DONE), (0.75, DONE), (0.75, DONE)], [(0.5, DONE)], [(0.25, DONE)]])
@example([[(0.25, DONE)], [], [(0.75, QUARANTINED)], [(0.5, DONE)]])
@example([[(1.0, DONE), (1.0, MISSING)], [(1.0, DONE), (0.0, QUARANTINED)], []])
def test_a_missing_item_prevents_the_call_and_a_quarantined_one_does_not(groups):
    """Calls, scores and best items are those of a loop over windows; the first best item counts."""
    calls = windows_of(groups)
    first = np.cumsum([0, *map(len, groups)])
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
        assert calls.n_scored[number] == len(scored)
        if expected == Status.SCORED:
            best = group.index((max(scored), DONE))
            assert calls.best_item[number] == first[number] + best
            virus, others = max(scored), max(1 - one for one in scored)
            assert math.isclose(calls.score[number], virus / (virus + others), rel_tol=1e-6)
            assert calls.call[number] == (Call.VIRAL if virus >= others else Call.NON_VIRAL)
        else:
            assert calls.call[number] == Call.NOT_SCORED
            assert np.isnan(calls.score[number])
            assert calls.best_item[number] == -1


@pytest.mark.parametrize(
    ("pieces", "logit", "fact", "status"),
    [
        ([], math.nan, math.nan, Status.SCORED),
        ([(500, 0.75, 4, DONE)], math.log(3), 4, Status.SCORED),
        ([(300, 0.75, 4, DONE), (100, 0.25, 1, DONE)], 0.5 * math.log(3), 5, Status.SCORED),
        ([(300, 0.75, 4, DONE), (100, 0.25, 1, QUARANTINED)], math.log(3), 4, Status.SCORED),
        ([(300, 0.75, 4, QUARANTINED)], math.nan, math.nan, Status.SCORED),
        ([(300, 0.75, 4, DONE), (100, 0.25, 1, MISSING)], math.log(3), 4, Status.MISSING),
        ([(300, 1.0, 4, DONE)], LOGIT_LIMIT, 4, Status.SCORED),
    ],
)
def test_a_record_has_the_mean_logit_of_its_scored_pieces(pieces, logit, fact, status):
    windows = windows_of([[(0.9, DONE)], [(0.9, DONE)]])
    found = records_of([0, 1, 2], windows, pieces=[pieces, []])
    assert found.record_logit.tolist() == pytest.approx([logit, math.nan], nan_ok=True)
    assert found.facts[:, 0].tolist() == pytest.approx([fact, math.nan], nan_ok=True)
    assert found.status.tolist() == [status, Status.SCORED]
    assert found.n_missing.tolist() == [status == Status.MISSING, 0]
    assert found.logit == pytest.approx(math.log(9), abs=1e-6)
