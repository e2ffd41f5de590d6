import dataclasses
import math
import warnings

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from virnucpro import arrays
from virnucpro.classifier.calibration import (
    Calibration,
    PlattLine,
    Preset,
    RecordCalibration,
    Tails,
    q_values,
)
from virnucpro.classifier.call_options import PRESETS, CallOptions
from virnucpro.classifier.consensus import (
    FACTS,
    Call,
    Evidence,
    RecordScores,
    Status,
    Thresholds,
)
from virnucpro.classifier.decision import Flag, Reason, RecordQuality, call_records
from virnucpro.classifier.prevalence import posterior
from virnucpro.errors import UsageError

VIRAL, OTHER, AMBIGUOUS, NOT_SCORED = Call.VIRAL, Call.NON_VIRAL, Call.AMBIGUOUS, Call.NOT_SCORED

CALIBRATION = Calibration(
    lines=(PlattLine(1, 0, 1.0, 0.0),),
    prevalence=0.5,
    presets={
        "sensitive": Preset(0.5, 0.2),
        "default": Preset(0.7, 0.4),
        "conservative": Preset(0.9, 0.6),
    },
    min_bases=100,
    min_scored=0.5,
    gc=(0.25, 0.7),
)


def records_of(probability, n_windows=None, n_scored=None, bases=None, status=None):
    """Return records whose probability at a prevalence of 0.5 is given; None for no score."""
    n = len(probability)
    known = [math.nan if one is None else one for one in probability]
    n_windows = np.full(n, 4) if n_windows is None else np.array(n_windows)
    scored = np.array([one is not None for one in probability])
    n_scored = np.where(scored, n_windows, 0) if n_scored is None else np.array(n_scored)
    if status is None:
        status = np.where(scored, Status.SCORED, Status.NO_OPEN_FRAME)
    with np.errstate(divide="ignore"):
        logit = np.clip(np.log(known) - np.log1p(-np.array(known)), -30, 30)
    return RecordScores(
        score=np.array(known, np.float32),
        logit=logit,
        length=np.full(n, 2000),
        record_logit=np.full(n, np.nan),
        facts=np.empty((n, 0)),
        n_windows=n_windows,
        n_scored=n_scored,
        n_missing=np.zeros(n, np.int64),
        scored_bases=np.where(scored, 2000, 0) if bases is None else np.array(bases),
        best_window=np.arange(n),
        evidence=np.full(n, Evidence.COMPOSITION, np.uint8),
        status=np.array(status, np.uint8),
    )


def quality_of(n, gc=0.5, known=1.0, is_complex=True):
    return RecordQuality(np.full(n, gc), np.full(n, known), np.full(n, is_complex))


def decided(probability, quality=None, prevalence=0.5, **options):
    rule = CallOptions(prevalence=prevalence, **options)
    return call_records(records_of(probability), Thresholds(), CALIBRATION, rule, quality)


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        ({}, [OTHER, AMBIGUOUS, AMBIGUOUS, AMBIGUOUS, VIRAL, VIRAL, VIRAL]),
        (
            {"preset": "sensitive"},
            [AMBIGUOUS, AMBIGUOUS, VIRAL, VIRAL, VIRAL, VIRAL, VIRAL],
        ),
        (
            {"preset": "conservative"},
            [OTHER, OTHER, OTHER, AMBIGUOUS, AMBIGUOUS, AMBIGUOUS, VIRAL],
        ),
        ({"threshold": 0.8}, [OTHER, AMBIGUOUS, AMBIGUOUS, AMBIGUOUS, AMBIGUOUS, VIRAL, VIRAL]),
        # a threshold below the preset's non_viral leaves nothing ambiguous
        ({"threshold": 0.35}, [OTHER, VIRAL, VIRAL, VIRAL, VIRAL, VIRAL, VIRAL]),
        ({"threshold": 0.0}, [VIRAL] * 7),
        (
            {"threshold": 0.8, "preset": "conservative"},
            [OTHER, OTHER, OTHER, AMBIGUOUS, AMBIGUOUS, VIRAL, VIRAL],
        ),
    ],
)
def test_a_probability_is_viral_non_viral_or_between(options, calls):
    probability = [0.34, 0.41, 0.55, 0.65, 0.71, 0.85, 0.95]
    found = decided(probability, **options)
    assert found.call.tolist() == calls
    assert found.probability == pytest.approx(probability)
    reasons = [Reason.UNCERTAIN if call == AMBIGUOUS else Reason.NONE for call in calls]
    assert found.reason.tolist() == reasons
    assert found.prevalence.value == 0.5


def test_limits_belong_to_the_upper_call():
    exact = dataclasses.replace(CALIBRATION, presets={name: Preset(0.75, 0.25) for name in PRESETS})
    records = records_of([0.75, 0.25])
    records = dataclasses.replace(records, logit=np.array([math.log(3), -math.log(3)]))
    log_odds = exact.log_odds(records.logit, records.n_scored, records.scored_bases)
    presets = {name: Preset(*posterior(log_odds, 0.5).tolist()) for name in PRESETS}
    limited = dataclasses.replace(exact, presets=presets)
    found = call_records(records, Thresholds(), limited, CallOptions(prevalence=0.5))
    assert found.call.tolist() == [VIRAL, AMBIGUOUS]


@pytest.mark.parametrize(("known", "odds"), [(None, 1.0), (1.0, 1.0), (0.5, 0.5), (math.nan, 1.0)])
def test_a_record_is_calibrated_by_its_known_bases(known, odds):
    # at 1,000 bases the logit of the windows counts half, from 2,000 on in full
    lines = RecordCalibration((1_000.0, 2_000.0), (0.0, 0.0), (0.5, 1.0), (0.0, 0.0), 4.0)
    records = dataclasses.replace(records_of([0.5]), logit=np.array([1.0]))
    quality = None if known is None else quality_of(1, known=known)
    calibration = dataclasses.replace(CALIBRATION, records=lines)
    rule = CallOptions(prevalence=0.5)
    found = call_records(records, Thresholds(), calibration, rule, quality)
    assert found.calibrated == pytest.approx([1 / (1 + math.exp(-odds))])


def test_records_without_a_score_have_no_call_and_no_probability():
    records = records_of([None, 0.95, 0.95], status=[2, Status.SCORED, Status.MISSING])
    found = call_records(records, Thresholds(), CALIBRATION, CallOptions(prevalence=0.5))
    assert found.call.tolist() == [NOT_SCORED, VIRAL, NOT_SCORED]
    assert np.isnan(found.probability).tolist() == [True, False, True]
    assert np.isnan(found.fdr).tolist() == [True, False, True]
    assert found.fdr[1] == pytest.approx(0.05)  # a missing record does not count
    assert found.reason.tolist() == [Reason.NONE] * 3
    assert found.tier.tolist() == [0, 3, 0]


@pytest.mark.parametrize("limit", [0.0, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0])
def test_an_fdr_limits_the_expected_share_of_false_calls(limit):
    rng = np.random.default_rng(3)
    probability = rng.random(200).round(2).clip(0.01, 0.99)
    found = decided(probability.tolist(), fdr=limit)
    viral = found.call == VIRAL
    assert (viral == (q_values(found.probability) <= limit)).all()
    if viral.any():
        assert (1 - found.probability[viral]).mean() <= limit + 1e-9
        others = found.probability[~viral]
        assert not len(others) or others.max() < found.probability[viral].min()
        if len(others):  # the next records would exceed the limit
            more = found.probability >= others.max()
            assert (1 - found.probability[more]).mean() > limit
    else:
        assert 1 - found.probability.max() > limit
    # what the limit does not call viral is non-viral by the preset
    assert (found.call[~viral] == OTHER).tolist() == (found.probability[~viral] < 0.4).tolist()


def test_a_prevalence_shifts_probabilities():
    at_half = decided([0.8, 0.9, 0.2])
    found = decided([0.8, 0.9, 0.2], prevalence=0.1)
    odds = at_half.probability / (1 - at_half.probability) / 9
    assert found.probability == pytest.approx(odds / (1 + odds))
    assert found.calibrated == pytest.approx(at_half.probability)
    assert found.prevalence.value == 0.1
    assert found.call.tolist() == [OTHER, AMBIGUOUS, OTHER]
    assert found.fdr == pytest.approx(q_values(found.probability))


@pytest.mark.parametrize("rule", [{}, {"fdr": 0.1}, {"prevalence": "auto"}])
def test_calls_do_not_depend_on_the_records_that_are_computed_at_once(rule, monkeypatch):
    dice = np.random.default_rng(5)
    probability = [None if one < 0.1 else one for one in dice.random(300).tolist()]
    quality = quality_of(300)
    quality.complex[dice.random(300) < 0.2] = False
    whole = decided(probability, quality, **rule)
    monkeypatch.setattr(arrays, "_AT_ONCE", 7)
    parts = decided(probability, quality, **rule)
    for field in dataclasses.fields(whole):
        np.testing.assert_array_equal(getattr(parts, field.name), getattr(whole, field.name))
    assert parts.expectation.called == whole.expectation.called
    assert parts.expectation.false == pytest.approx(whole.expectation.false)


@pytest.mark.parametrize("prevalence", ["auto", None])
def test_the_prevalence_is_estimated_from_the_run(prevalence):
    probability = [0.98] * 20 + [0.02] * 180 + [None] * 50
    found = decided(probability, prevalence=prevalence)
    assert found.prevalence.value == pytest.approx(0.08, abs=0.02)
    same = decided(probability, prevalence=found.prevalence.value)
    np.testing.assert_array_equal(found.probability, same.probability)
    assert decided([None, None], prevalence="auto").prevalence is None
    expected = found.expectation
    assert expected.called == (found.call == VIRAL).sum() == 20
    assert expected.false == pytest.approx((1 - found.probability[:20]).sum())


def test_records_that_cannot_be_called_do_not_count_in_the_prevalence():
    probability = [0.98] * 20 + [0.02] * 180
    quality = quality_of(200)
    quality.complex[:20] = False
    assert decided(probability, quality, prevalence=None).prevalence.value < 0.02


def test_short_records_do_not_count_in_the_prevalence():
    long = records_of([0.98] * 20 + [0.02] * 180)
    mixed = dataclasses.replace(long, length=np.where(np.arange(200) < 20, 999, 1000))
    short = dataclasses.replace(long, length=np.full(200, 999))
    found = [call_records(one, Thresholds(), CALIBRATION).prevalence for one in (mixed, short)]
    assert [one.records for one in found] == [180, 0]
    gapped = call_records(long, Thresholds(), CALIBRATION, None, quality_of(200, known=0.49))
    assert gapped.prevalence.records == 0
    assert found[0].value < 0.02
    assert found[1].value == 0.05


@pytest.mark.parametrize(
    ("changes", "is_complex", "reason"),
    [
        ({}, True, Reason.NONE),
        ({"bases": [99]}, True, Reason.TOO_SHORT),
        ({"bases": [100]}, True, Reason.NONE),
        ({"n_windows": [9], "n_scored": [4]}, True, Reason.FEW_WINDOWS),
        ({"n_windows": [8], "n_scored": [4]}, True, Reason.NONE),
        ({}, False, Reason.LOW_COMPLEXITY),
        ({"bases": [99], "n_windows": [9], "n_scored": [4]}, True, Reason.TOO_SHORT),
        ({"bases": [99]}, False, Reason.LOW_COMPLEXITY),
    ],
)
@pytest.mark.parametrize("probability", [0.99, 0.5, 0.01])
@pytest.mark.parametrize("options", [{}, {"fdr": 1.0}, {"threshold": 0.6}])
def test_little_evidence_is_ambiguous(changes, is_complex, reason, probability, options):
    found = call_records(
        records_of([probability], **changes),
        Thresholds(),
        CALIBRATION,
        CallOptions(prevalence=0.5, **options),
        quality_of(1, is_complex=is_complex),
    )
    if reason is not Reason.NONE:
        assert (found.call[0], found.reason[0]) == (AMBIGUOUS, reason)
    elif probability == 0.5 and "fdr" not in options:
        assert (found.call[0], found.reason[0]) == (AMBIGUOUS, Reason.UNCERTAIN)
    else:
        viral = probability > 0.9 or options == {"fdr": 1.0}
        assert (found.call[0], found.reason[0]) == (VIRAL if viral else OTHER, Reason.NONE)
    assert found.probability[0] == pytest.approx(probability)


def test_a_record_without_a_score_has_no_reason_to_abstain():
    records = records_of([None], bases=[0], n_windows=[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = call_records(
            records, Thresholds(), CALIBRATION, None, quality_of(1, is_complex=False)
        )
    assert (found.call[0], found.reason[0]) == (NOT_SCORED, Reason.NONE)


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ({}, 0),
        ({"gc": 0.24}, Flag.UNUSUAL_GC),
        ({"gc": 0.25}, 0),
        ({"gc": 0.7}, 0),
        ({"gc": 0.71}, Flag.UNUSUAL_GC),
        ({"gc": math.nan, "known": math.nan}, 0),
        ({"known": 0.97}, Flag.AMBIGUOUS_BASES),
        ({"known": 0.98}, 0),
        ({"is_complex": False}, Flag.LOW_COMPLEXITY),
        (
            {"gc": 0.1, "known": 0.5, "is_complex": False},
            Flag.UNUSUAL_GC | Flag.AMBIGUOUS_BASES | Flag.LOW_COMPLEXITY,
        ),
    ],
)
def test_unusual_records_are_flagged(changes, flags):
    found = decided([0.95, 0.95], quality_of(2, **changes))
    assert found.flags.tolist() == [flags, flags]
    if not flags & Flag.LOW_COMPLEXITY:
        assert found.call.tolist() == [VIRAL, VIRAL]  # a flag alone does not change the call


def test_a_call_that_rests_on_the_prevalence_is_flagged():
    found = decided([0.3, 0.8, 0.05], prevalence=0.98)
    assert found.call.tolist() == [VIRAL, VIRAL, VIRAL]
    assert found.flags.tolist() == [Flag.BY_PREVALENCE, 0, Flag.BY_PREVALENCE]
    assert found.expectation.resting == 2
    assert found.expectation.false <= 0.02 * 3 + 1e-9
    assert not decided([0.8, 0.95]).flags.any()
    assert not decided([0.3, 0.8], prevalence=0.02).flags.any()


def test_a_set_of_single_genes_is_not_taken_for_viruses():
    records = records_of([0.85] * 40)
    shares = (1.0,) * 4 + (0.99, 0.95, 0.9, 0.8, 0.6, 0.4, 0.2)
    tails = Tails(tuple(range(-4, 7)), (2_000.0,), (shares,), ((*[0.5] * 4, *[0.0] * 7),))
    calibration = dataclasses.replace(CALIBRATION, tails=tails)
    facts = np.full((40, len(FACTS)), np.nan)
    for name, value in (("genes", 1), ("gene codons", 660), ("known bases", 2_000)):
        facts[:, FACTS.index(name)] = value
    found = [
        call_records(one, Thresholds(), calibration).prevalence
        for one in (records, dataclasses.replace(records, facts=facts))
    ]
    assert found[0].value > 0.3
    assert found[1].value <= 0.05
    assert found[1].doubtful


def test_without_a_calibration_the_thresholds_apply_to_the_score():
    records = records_of([0.59, 0.6, 0.39, 0.4, None])
    found = call_records(records, Thresholds(0.6, 0.4))
    assert found.call.tolist() == [AMBIGUOUS, VIRAL, OTHER, AMBIGUOUS, NOT_SCORED]
    assert found.reason.tolist() == [Reason.UNCERTAIN, 0, 0, Reason.UNCERTAIN, 0]
    assert np.isnan(found.probability).all()
    assert np.isnan(found.fdr).all()
    assert found.prevalence is None
    assert not found.tier.any()
    assert not found.flags.any()
    found = call_records(records, Thresholds(0.6, 0.4), options=CallOptions(threshold=0.3))
    assert found.call.tolist() == [VIRAL, VIRAL, VIRAL, VIRAL, NOT_SCORED]
    found = call_records(records, Thresholds(0.6, 0.4), options=CallOptions(threshold=0.9))
    assert found.call.tolist() == [AMBIGUOUS, AMBIGUOUS, OTHER, AMBIGUOUS, NOT_SCORED]


@pytest.mark.parametrize(
    "options",
    [
        {"preset": "sensitive"},
        {"fdr": 0.05},
        {"prevalence": 0.1},
        {"prevalence": "auto"},
        {"preset": "conservative", "threshold": 0.5},
    ],
)
def test_options_that_need_a_calibration_are_refused_without_one(options):
    with pytest.raises(UsageError, match=r"has no calibration.*Give --threshold"):
        call_records(records_of([0.5]), Thresholds(), options=CallOptions(**options))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"preset": "strict"}, "unknown preset 'strict': give sensitive, default, conservative"),
        ({"threshold": 0.5, "fdr": 0.1}, "give one of them"),
        ({"threshold": 1.01}, "invalid threshold 1.01"),
        ({"threshold": -0.1}, "invalid threshold"),
        ({"threshold": math.nan}, "invalid threshold nan"),
        ({"fdr": 2}, "invalid FDR 2"),
        ({"prevalence": 0.0}, "invalid prevalence 0.0"),
        ({"prevalence": 1.0}, "invalid prevalence"),
        ({"prevalence": "guess"}, "invalid prevalence 'guess'"),
        ({"prevalence": math.nan}, "invalid prevalence"),
    ],
)
def test_invalid_options_are_refused(options, told):
    with pytest.raises(UsageError, match=told):
        CallOptions(**options)


@pytest.mark.parametrize(
    ("former", "given", "rule"),
    [
        ("", "", "preset=default"),
        ("preset=conservative prevalence=.2", "", "preset=conservative prevalence=.2"),
        ("preset=conservative", "prevalence=.3", "preset=conservative prevalence=.3"),
        ("fdr=.1 prevalence=.2", "prevalence=auto", "preset=default fdr=.1 prevalence=auto"),
        ("preset=sensitive prevalence=.2", "fdr=.1", "preset=default fdr=.1 prevalence=.2"),
        ("fdr=.1 prevalence=.2", "threshold=.5", "preset=default threshold=.5 prevalence=.2"),
        ("threshold=.5 prevalence=.2", "preset=sensitive", "preset=sensitive prevalence=.2"),
        ("fdr=.1 prevalence=.2", "preset=default", "preset=default"),
        ("fdr=.1", "preset=default prevalence=.2", "preset=default prevalence=.2"),
    ],
)
def test_a_later_rule_replaces_what_it_gives(former, given, rule):
    def options(text):
        pairs = [word.split("=") for word in text.split()]
        return {name: value if value.isalpha() else float(value) for name, value in pairs}

    assert CallOptions(**options(given)).after(options(former)) == CallOptions(**options(rule))


@given(st.lists(st.floats(0.001, 0.999), min_size=1, max_size=30), st.sampled_from(PRESETS))
@example([0.45, 0.5001, 0.71, 0.95], "sensitive")
def test_the_tier_is_the_strictest_preset_that_calls_viral(probability, preset):
    viral = {name: decided(probability, preset=name).call == VIRAL for name in PRESETS}
    assert (viral["conservative"] <= viral["default"]).all()
    assert (viral["default"] <= viral["sensitive"]).all()
    tier = decided(probability, preset=preset).tier
    for number, name in enumerate(PRESETS, 1):
        assert ((tier >= number) == viral[name]).all()


@pytest.mark.parametrize("calibration", [CALIBRATION, None])
def test_scored_records_of_another_window_have_a_flag_and_the_same_calls(calibration):
    records = records_of([0.9, None, 0.2], status=[Status.SCORED, Status.INVALID_LETTERS, 0])
    usual = call_records(records, Thresholds(), calibration)
    found = call_records(records, Thresholds(), calibration, other_window=True)
    assert found.flags.tolist() == [Flag.OTHER_WINDOW, 0, Flag.OTHER_WINDOW]
    assert found.call.tolist() == usual.call.tolist()
    assert found.call[1] == Call.NOT_SCORED


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "preset default"),
        ({"preset": "sensitive", "prevalence": 0.1}, "preset sensitive, prevalence 0.1"),
        ({"fdr": 0.05, "preset": "default"}, "fdr 0.05"),
        ({"threshold": 0.4, "preset": "sensitive"}, "threshold 0.4 (non-viral: preset sensitive)"),
    ],
)
def test_the_text_of_a_rule_names_all_that_counts(options, text):
    assert CallOptions(**options).text == text
