import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.encoders.batching import batches
from virnucpro.pipeline.poison import Place, Suspicion, pieces

UNIT, ENCODER = 7, 1
LENGTHS = st.lists(st.integers(1, 60), max_size=60).map(
    lambda lengths: np.array(sorted(lengths, reverse=True), np.int64)
)


@st.composite
def suspicions(draw, most=70):
    first = draw(st.integers(0, most))
    stop = draw(st.integers(first + 1, most + 1))
    convicted = draw(st.sets(st.integers(0, most), max_size=8))
    suspect = draw(st.sampled_from([None, Place(UNIT, ENCODER, first, stop)]))
    return Suspicion(suspect, {(ENCODER, position): "it kills" for position in convicted})


def budget_of(tokens):
    return lambda _longest: tokens


def laid_out(lengths, tokens, suspicion, encoder=ENCODER):
    return [piece.tolist() for piece in pieces(lengths, budget_of(tokens), suspicion, encoder)]


@given(LENGTHS, st.integers(1, 300), suspicions())
def test_every_position_that_is_not_convicted_is_tried_exactly_once(lengths, tokens, suspicion):
    tried = [position for piece in laid_out(lengths, tokens, suspicion) for position in piece]
    convicted = suspicion.convicted_in(ENCODER)
    assert sorted(tried) == [p for p in range(len(lengths)) if p not in convicted]


@given(LENGTHS, st.integers(1, 300))
def test_without_a_suspicion_the_pieces_are_the_batches(lengths, tokens):
    expected = [list(batch) for batch in batches(lengths, budget_of(tokens))]
    assert laid_out(lengths, tokens, Suspicion()) == expected
    elsewhere = Suspicion(Place(UNIT, 0, 0, 5), {(0, 3): "it kills"})
    assert laid_out(lengths, tokens, elsewhere) == expected


@given(LENGTHS, st.integers(1, 300), suspicions())
def test_suspects_come_last_and_never_beside_others(lengths, tokens, suspicion):
    suspects = set(suspicion.suspects(ENCODER))
    kinds = [
        {position in suspects for position in piece}
        for piece in laid_out(lengths, tokens, suspicion)
    ]
    assert all(len(kind) == 1 for kind in kinds)
    assert kinds == sorted(kinds, key=lambda kind: True in kind)


@given(LENGTHS, st.integers(1, 300), suspicions())
def test_no_piece_is_over_the_budget_or_empty_or_out_of_order(lengths, tokens, suspicion):
    for piece in laid_out(lengths, tokens, suspicion):
        assert piece == sorted(piece)
        assert len(piece) == 1 or lengths[piece[0]] * len(piece) <= tokens


@given(LENGTHS, st.integers(1, 300), suspicions())
def test_batches_without_suspects_keep_their_composition(lengths, tokens, suspicion):
    suspects, convicted = set(suspicion.suspects(ENCODER)), suspicion.convicted_in(ENCODER)
    tried = laid_out(lengths, tokens, suspicion)
    for batch in batches(lengths, budget_of(tokens)):
        kept = [position for position in batch if position not in convicted]
        if kept and not suspects & set(batch):
            assert kept in tried


def test_suspects_are_tried_in_two_halves_and_one_alone_in_one_piece():
    lengths = np.full(16, 10)
    suspicion = Suspicion(Place(UNIT, ENCODER, 8, 16), {(ENCODER, 12): "it kills"})
    assert laid_out(lengths, 80, suspicion) == [
        list(range(8)),
        [8, 9, 10, 11],
        [13, 14, 15],
    ]
    alone = Suspicion(Place(UNIT, ENCODER, 5, 6))
    assert laid_out(lengths, 80, alone)[-1] == [5]


@pytest.mark.parametrize("n_rows", [1, 2, 3, 64, 100])
def test_a_row_that_kills_is_alone_after_log2_n_deaths(n_rows):
    lengths, poison, tokens = np.full(n_rows, 10), n_rows // 3, 10 * n_rows
    suspicion, deaths = Suspicion(), 0
    while True:
        fatal = next(p for p in laid_out(lengths, tokens, suspicion) if poison in p)
        if len(fatal) == 1:
            break
        suspicion = Suspicion(Place(UNIT, ENCODER, fatal[0], fatal[-1] + 1))
        deaths += 1
    assert deaths <= np.ceil(np.log2(n_rows))


def test_a_budget_that_is_lowered_meanwhile_holds_from_the_next_piece_on():
    limits = iter([40, 20, 20, 10, 10])
    laid = pieces(np.full(9, 10), lambda _longest: next(limits), Suspicion(), ENCODER)
    assert [len(piece) for piece in laid] == [4, 2, 2, 1]
