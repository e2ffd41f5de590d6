"""Equal and nearly equal sequences are found on both sides of a split; related ones are not."""

import numpy as np
import pytest

from virnucpro.sequences.translation import reverse_complement
from virnucpro.training.leaks import find_leaks, sketch

LETTERS = np.frombuffer(b"ACGT", np.uint8)


def random_sequence(n_bases, seed=1):
    return np.random.default_rng(seed).choice(LETTERS, n_bases).tobytes()


def mutated(sequence, share, seed=2):
    dice = np.random.default_rng(seed)
    letters = np.frombuffer(sequence, np.uint8).copy()
    places = dice.random(len(letters)) < share
    letters[places] = dice.choice(LETTERS, int(places.sum()))
    return letters.tobytes()


GENOME = random_sequence(30_000)


@pytest.mark.parametrize(
    ("other", "leaks"),
    [
        (GENOME, True),
        (reverse_complement(GENOME), True),
        (GENOME[7_000:12_000], True),  # a part
        (GENOME[7_000:7_400], True),
        (reverse_complement(GENOME[7_000:7_400]), True),
        (mutated(GENOME, 0.02), True),  # 98.5 % identity
        (mutated(GENOME, 0.2), False),  # 85 % identity
        (random_sequence(30_000, seed=3), False),
        (GENOME[:300] + random_sequence(30_000, seed=3), False),
    ],
)
def test_leaks_are_found(other, leaks):
    found = list(find_leaks([("x", GENOME)], [("y", other)]))
    assert [leak.name for leak in found] == (["y"] if leaks else [])


def test_short_records_are_compared_exactly():
    short = random_sequence(60)
    for other in (short, reverse_complement(short)):
        assert [leak.name for leak in find_leaks([("x", short)], [("y", other)])] == ["y"]
    assert list(find_leaks([("x", short)], [("y", short[:-1] + b"N")])) == []


def test_nothing_leaks_between_empty_sides():
    assert list(find_leaks([], [("y", GENOME)])) == []
    assert list(find_leaks([("x", GENOME)], [])) == []


def test_a_sketch_holds_one_of_25_kmers_and_is_equal_for_both_strands():
    own = sketch(GENOME)
    assert 1_000 < len(own) < 1_400
    assert np.array_equal(own, sketch(reverse_complement(GENOME)))
    assert (np.diff(own) > 0).all()
    assert len(sketch(b"N" * 1000)) == 0


def test_a_sketch_does_not_depend_on_the_size_of_pieces(monkeypatch):
    whole = sketch(GENOME)
    monkeypatch.setattr("virnucpro.training.leaks._PIECE", 1_000)
    assert np.array_equal(sketch(GENOME), whole)
