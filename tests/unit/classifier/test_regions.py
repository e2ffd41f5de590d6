from dataclasses import replace
from itertools import groupby
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.classifier.calibration import Calibration, PlattLine, Preset, RecordCalibration
from virnucpro.classifier.consensus import Call, Status, WindowCalls
from virnucpro.classifier.decision import Reason, RecordCalls
from virnucpro.classifier.prevalence import PRIOR, Prevalence
from virnucpro.classifier.regions import (
    STRETCH_PRIOR,
    evidence_of,
    find_regions,
    prior_odds,
    window_spans,
    without_short_ends,
)
from virnucpro.classifier.spans import SpanOdds

CALIBRATION = Calibration(
    lines=(PlattLine(1, 0, 1.0, 0.0),),
    prevalence=0.5,
    presets={name: Preset(0.76, 0.5) for name in ("sensitive", "default", "conservative")},
    min_bases=100,
    min_scored=0.5,
    gc=(0.2, 0.7),
)
OF_RECORDS = RecordCalibration((1.0, 10_000.0), (1.0, 1.0), (0.1, 0.1), (0.0, 0.0), 9.0)
WITH_RECORDS = replace(CALIBRATION, records=OF_RECORDS)
WINDOW, OVERLAP = 500, 20


def run_of(records, *, reason=Reason.NONE, viral=(), words=1.0, limits=(0.76, 0.5)):
    """Return arguments of `find_regions`; a record is a list of log-odds, NaN without a score.

    `viral` are the numbers of the records that are called viral, `words` their known host words.
    """
    odds = np.array([one for record in records for one in record], np.float64)
    counts = np.array([len(record) for record in records], np.int64)
    first = np.concatenate([[0], np.cumsum(counts)])
    number = np.arange(len(odds)) - np.repeat(first[:-1], counts)
    starts = number * (WINDOW - OVERLAP)
    virus = (1 / (1 + np.exp(-odds))).astype(np.float32)
    missing = np.isnan(odds)
    zeros = np.zeros(len(odds), np.int64)
    calls = WindowCalls(
        others=1 - virus,
        virus=virus,
        score=virus,
        n_items=zeros,
        n_scored=zeros,
        best_item=zeros,
        call=np.where(missing, Call.NOT_SCORED, Call.VIRAL).astype(np.uint8),
        evidence=zeros.astype(np.uint8),
        status=np.where(missing, Status.NO_OPEN_FRAME, Status.SCORED).astype(np.uint8),
    )
    scored = np.array([np.isfinite(record).any() for record in records], bool)
    index = SimpleNamespace(
        n_records=len(records),
        record_first_window=first,
        record_lengths=counts * (WINDOW - OVERLAP) + OVERLAP,
        window_starts=starts,
        window_ends=starts + WINDOW,
    )
    status = np.where(scored, Status.SCORED, Status.NO_OPEN_FRAME).astype(np.uint8)
    of_records = SimpleNamespace(
        n_windows=counts,
        status=status,
        errors=lambda rows: np.zeros(len(rows)),
        fact=lambda _: np.full(len(records), words),
    )
    codes = np.full(len(records), reason, np.uint8)
    called = np.isin(np.arange(len(records)), viral)
    call = np.where(called, Call.VIRAL, Call.NON_VIRAL).astype(np.uint8)
    share = np.where(called, 0.99, 0.01)
    decision = RecordCalls(call, share, share, share, codes, codes, codes, None, Preset(*limits))
    return index, calls, of_records, decision, CALIBRATION


def rows(regions):
    return list(
        zip(
            regions.record.tolist(),
            regions.start.tolist(),
            regions.end.tolist(),
            regions.viral.tolist(),
            strict=True,
        )
    )


def test_a_provirus_is_found_between_the_middles_of_the_overlaps():
    provirus = [-2.0] * 20 + [2.0] * 10 + [-2.0] * 20
    regions = find_regions(*run_of([[2.0] * 3, provirus, [-1.0] * 9]))
    low, high = 20 * 480 + OVERLAP // 2, 30 * 480 + OVERLAP // 2
    assert rows(regions) == [(1, 0, low, False), (1, low, high, True), (1, high, 24020, False)]
    assert regions.n_windows.tolist() == [20, 10, 20]
    np.testing.assert_allclose(regions.log_odds, [-2, 2, -2], rtol=1e-5)
    np.testing.assert_allclose(regions.probability, regions.score, rtol=1e-5)
    assert regions.in_both(3).tolist() == [False, True, False]


def test_a_record_of_one_kind_is_one_stretch_from_end_to_end():
    regions = find_regions(*run_of([[1.5] * 12, [-0.9] * 40], viral=[0]))
    assert rows(regions) == [(0, 0, 12 * 480 + 20, True), (1, 0, 40 * 480 + 20, False)]
    assert not regions.in_both(2).any()


def test_a_host_whose_windows_look_half_viral_is_judged_by_its_own_level():
    host = [0.1, -0.1] * 50
    assert not find_regions(*run_of([host])).viral.any()
    with_insert = host[:40] + [1.6] * 20 + host[40:]
    assert find_regions(*run_of([with_insert])).viral.tolist() == [False, True, False]


class Spans:
    """Spans of ten windows each, as long as their windows: +9 for the listed ones, else -9."""

    def __init__(self, viral):
        self.viral = viral

    def log_odds(self, record, middle, *_):
        number = record * 1_000 + middle // 4_800
        head = np.flatnonzero(np.diff(number, prepend=-1))
        odds = np.where(np.isin(number[head] % 1_000, self.viral), 9.0, -9.0)
        return SpanOdds(head, np.diff(head, append=len(record)), (odds, np.full(len(odds), np.nan)))


def test_genes_of_spans_decide_between_windows_that_look_alike():
    *run, _ = run_of([[0.5, -0.5] * 40])
    for viral, wanted in (([], [False]), ([3, 4], [False, True, False])):
        found = find_regions(*run, WITH_RECORDS, Spans(viral))
        assert found.viral.tolist() == wanted
    assert (found.start[1], found.end[1]) == (30 * 480 + 10, 50 * 480 + 10)
    np.testing.assert_allclose(found.probability[1], 1 / (1 + np.exp(-9)), rtol=1e-4)


def test_a_stretch_whose_genes_deny_it_is_not_viral():
    *run, _ = run_of([[-2.0] * 20 + [5.0] * 20 + [-2.0] * 20], limits=(0.6, 0.5))
    for spans, wanted in ((None, [False, True, False]), (Spans([]), [False])):
        found = find_regions(*run, WITH_RECORDS, spans)
        assert found.viral.tolist() == wanted
    assert found.n_windows.tolist() == [60]


def kinds(*records, **given):
    return find_regions(*run_of(records, **given)).viral.tolist()


def test_a_virus_with_odd_windows_is_whole_and_one_with_a_host_beside_it_is_not():
    odd, host = [-1.0] * 10 + [3.0] * 30, [-4.0] * 10 + [3.0] * 30
    assert kinds(odd, viral=[0]) == [True]
    assert kinds(odd) == kinds(host, viral=[0]) == [False, True]


def test_a_virus_with_a_short_host_like_part_is_whole():
    assert kinds([-5.0] * 3 + [3.0] * 30, viral=[0]) == [True]
    assert kinds([-5.0] * 5 + [3.0] * 30, viral=[0]) == [False, True]


def test_a_record_of_less_than_10_kb_has_the_state_of_its_call():
    short = [-4.0] * 8 + [4.0] * 12
    assert kinds(short, viral=[0]) == [True]
    assert kinds(short) == [False]
    assert kinds([-4.0, *short]) == [False, True]


def test_an_rna_virus_and_a_virus_without_host_words_are_whole():
    host = [-4.0] * 10 + [3.0] * 30
    *run, _ = run_of([host, host], viral=[0, 1])
    whole = find_regions(*run, CALIBRATION, whole=np.array([False, True])).viral.tolist()
    assert whole == [False, True, True]
    assert kinds(host, viral=[0], words=0) == [True]


def test_a_stretch_passes_the_rule_of_the_run():
    """Its probability is .88: log odds of 2."""
    provirus = [-2.0] * 20 + [2.0] * 10 + [-2.0] * 20
    assert kinds(provirus, limits=(0.87, 0.5)) == [False, True, False]
    assert kinds(provirus, limits=(0.89, 0.5)) == [False]


def test_a_viral_record_without_a_viral_stretch_is_whole():
    assert kinds([-1.0] * 40, viral=[0]) == [True]


def test_stretches_of_others_have_a_prevalence_of_their_own():
    called = np.array([True, False])
    for value, wanted in ((0.001, PRIOR), (0.2, 0.2), (0.9, 0.5)):
        odds = prior_odds(Prevalence(value, value / 2, 1.05 * value, 9), called)
        np.testing.assert_allclose(1 / (1 + np.exp(-odds)), [wanted, STRETCH_PRIOR])
    odds = prior_odds(Prevalence(0.9, 0.9, 0.9), called)
    np.testing.assert_allclose(1 / (1 + np.exp(-odds)), [0.9, STRETCH_PRIOR])


@pytest.mark.parametrize("reason", [Reason.FEW_WINDOWS, Reason.LOW_COMPLEXITY])
def test_records_that_cannot_be_called_are_not_divided(reason):
    assert rows(find_regions(*run_of([[2.0] * 20], reason=reason))) == []
    assert rows(find_regions(*run_of([[2.0] * 20], reason=Reason.UNCERTAIN))) != []


def test_records_without_a_score_or_of_nine_windows_are_not_divided():
    assert rows(find_regions(*run_of([[np.nan] * 20, [2.0] * 9]))) == []


log_odds = st.one_of(st.just(np.nan), st.floats(-5, 5))
records_of_any_scores = st.lists(st.lists(log_odds, min_size=1, max_size=40), max_size=6)


@given(records_of_any_scores)
def test_stretches_cover_their_records_and_alternate(records):
    index, *others = run_of(records)
    regions = find_regions(index, *others)
    divided = [
        number for number, one in enumerate(records) if len(one) >= 10 and np.isfinite(one).any()
    ]
    assert np.unique(regions.record).tolist() == divided
    for record in divided:
        own = regions.select(regions.record == record)
        assert own.start[0] == 0
        assert own.end[-1] == index.record_lengths[record]
        assert (own.start[1:] == own.end[:-1]).all()
        assert (own.viral[1:] != own.viral[:-1]).all()
        assert own.n_windows.sum() == len(records[record])
        assert own.n_scored.sum() == np.isfinite(records[record]).sum()


@given(records_of_any_scores)
def test_evidence_is_the_log_odds_less_a_limited_bias(records):
    first = np.cumsum([0, *map(len, records)])
    odds = np.array([one for record in records for one in record], np.float64)
    evidence = evidence_of(odds, first)
    for record, low in zip(records, first, strict=False):
        known = np.array(record)[np.isfinite(record)]
        own = evidence[low : low + len(record)]
        assert (own[np.isnan(record)] == 0).all()
        if len(known):
            median = np.median(known)
            bias = 0 if median > 0.5 else np.clip(median + 0.6, -0.2, 0.6)
            np.testing.assert_allclose(own[np.isfinite(record)], 1000 * (known - bias), atol=0.51)


def test_overlaps_are_cut_within_records_only():
    starts, ends = np.array([0, 250, 0, 480]), np.array([500, 501, 500, 980])
    found = window_spans(starts, ends, np.array([0, 0, 1, 1]))
    assert [one.tolist() for one in found] == [[0, 375, 0, 490], [375, 501, 490, 980]]


def test_spans_end_at_a_run_of_unknown_letters():
    starts, ends = np.array([0, 400, 950]), np.array([500, 900, 1450])
    found = window_spans(starts, ends, np.zeros(3, np.int64))
    assert [one.tolist() for one in found] == [[0, 450, 950], [450, 900, 1450]]


@given(st.lists(st.lists(st.booleans(), min_size=10, max_size=30), max_size=4))
def test_short_ends_have_the_state_of_their_neighbours(records):
    viral = np.array([state for record in records for state in record], np.bool_)
    owner = np.repeat(np.arange(len(records)), [len(record) for record in records])
    found = without_short_ends(viral, owner)
    for number, record in enumerate(records):
        wanted = list(record)
        runs = [len(list(group)) for _, group in groupby(record)]
        if len(runs) > 1 and runs[0] < 3:
            wanted[: runs[0]] = [record[runs[0]]] * runs[0]
        if len(runs) > 1 and runs[-1] < 3:
            wanted[-runs[-1] :] = [record[-1 - runs[-1]]] * runs[-1]
        assert found[owner == number].tolist() == wanted
