from dataclasses import replace

import numpy as np
from doubles import isolating
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.compute.poison_isolation import encoder_batches, isolated_in, suspects_in
from virnucpro.encoders.batching import batches
from virnucpro.runtime.policy import Findings, TaskSpan

UNIT, ENCODER = 7, 1
LENGTHS = st.lists(st.integers(1, 60), max_size=60).map(
    lambda lengths: np.array(sorted(lengths, reverse=True), np.int64)
)


@st.composite
def suspicions(draw, most=70):
    edges = sorted(draw(st.sets(st.integers(0, most), max_size=8)))
    places = [
        TaskSpan(UNIT, ENCODER, first, stop)
        for first, stop in zip(edges[::2], edges[1::2], strict=False)
    ]
    kinds = [draw(st.sampled_from(["seen", "suspect"])) for _ in places]
    isolated = draw(st.sets(st.integers(0, most), max_size=8))
    return replace(
        isolating(ENCODER, *isolated, unit=UNIT),
        seen=tuple(place for place, kind in zip(places, kinds, strict=True) if kind == "seen"),
        suspects=tuple(
            place for place, kind in zip(places, kinds, strict=True) if kind == "suspect"
        ),
    )


def positions_in(places):
    return {position for place in places for position in place}


def budget_of(tokens):
    return lambda _longest: tokens


def laid_out(lengths, tokens, suspicion, encoder=ENCODER):
    return [
        piece.tolist() for piece in encoder_batches(lengths, budget_of(tokens), suspicion, encoder)
    ]


@given(LENGTHS, st.integers(1, 300), suspicions())
def test_every_position_that_is_not_isolated_is_tried_once(lengths, tokens, suspicion):
    tried = [position for piece in laid_out(lengths, tokens, suspicion) for position in piece]
    isolated = isolated_in(suspicion, ENCODER)
    assert sorted(tried) == [p for p in range(len(lengths)) if p not in isolated]


@given(LENGTHS, st.integers(1, 300))
def test_without_a_suspicion_the_batches_are_unchanged(lengths, tokens):
    expected = [list(batch) for batch in batches(lengths, budget_of(tokens))]
    assert laid_out(lengths, tokens, Findings()) == expected
    place = TaskSpan(UNIT, 0, 0, 5)
    elsewhere = replace(isolating(0, 3, unit=UNIT), seen=(place,), suspects=(place,))
    assert laid_out(lengths, tokens, elsewhere) == expected


@given(LENGTHS, st.integers(1, 300), suspicions())
def test_suspects_are_last_and_never_share_a_batch_with_others(lengths, tokens, suspicion):
    suspects = positions_in(suspects_in(suspicion, ENCODER))
    tried = laid_out(lengths, tokens, suspicion)
    kinds = [{position in suspects for position in piece} for piece in tried]
    assert all(len(kind) == 1 for kind in kinds)
    assert kinds == sorted(kinds, key=lambda kind: True in kind)


@given(LENGTHS, st.integers(1, 300), suspicions())
def test_a_batch_with_one_death_keeps_its_rows_and_comes_late(lengths, tokens, suspicion):
    only_seen = Findings(seen=suspicion.seen)
    spans = [span for span in suspicion.seen if span.stage == ENCODER]
    seen = positions_in([range(span.first, span.stop) for span in spans])
    tried = laid_out(lengths, tokens, only_seen)
    assert sorted(tried) == sorted(laid_out(lengths, tokens, Findings()))
    late = [bool(seen & set(piece)) for piece in tried]
    assert late == sorted(late)


@given(LENGTHS, st.integers(1, 300), suspicions())
def test_pieces_are_within_the_budget_and_in_order(lengths, tokens, suspicion):
    for piece in laid_out(lengths, tokens, suspicion):
        assert piece == sorted(piece)
        assert len(piece) == 1 or lengths[piece].sum() <= tokens


@given(LENGTHS, st.integers(1, 300), suspicions())
def test_batches_without_suspects_keep_their_composition(lengths, tokens, suspicion):
    suspects = positions_in(suspects_in(suspicion, ENCODER))
    isolated = isolated_in(suspicion, ENCODER)
    tried = laid_out(lengths, tokens, suspicion)
    for batch in batches(lengths, budget_of(tokens)):
        kept = [position for position in batch if position not in isolated]
        if kept and not suspects & set(batch):
            assert kept in tried


def test_suspects_are_tried_in_halves_and_a_single_one_alone():
    lengths = np.full(16, 10)
    place = TaskSpan(UNIT, ENCODER, 8, 16)
    suspicion = replace(isolating(ENCODER, 12, unit=UNIT), suspects=(place,))
    assert laid_out(lengths, 80, suspicion) == [
        list(range(8)),
        [8, 9, 10, 11],
        [13, 14, 15],
    ]
    alone = Findings(suspects=(TaskSpan(UNIT, ENCODER, 5, 6),))
    assert laid_out(lengths, 80, alone)[-1] == [5]


def test_a_lowered_budget_applies_to_the_next_piece():
    limits = iter([40, 20, 20, 10, 10])
    laid = encoder_batches(np.full(9, 10), lambda _longest: next(limits), Findings(), ENCODER)
    assert [len(piece) for piece in laid] == [3, 2, 2, 1, 1]
