"""Equal and nearly equal sequences are found on both sides of a split; related ones are not."""

import numpy as np
import pytest

from virnucpro.lab.training.genomes import find_leaks, sketch
from virnucpro.sequences.translation import reverse_complement

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
    for records in (("x", "1", GENOME), ("y", "2", other)), (("y", "2", other), ("x", "1", GENOME)):
        pairs = {(leak.name, leak.other) for leak in find_leaks(records)}
        assert (("y", "x") in pairs) == leaks
        assert pairs <= {("y", "x"), ("x", "y")}
        assert list(find_leaks([(name, "1", bases) for name, _, bases in records])) == []


def test_short_records_are_compared_exactly():
    short = random_sequence(60)
    for other in (short, reverse_complement(short)):
        (leak,) = find_leaks([("x", "1", short), ("y", "2", other)])
        assert (leak.name, leak.other, leak.share) == ("y", "x", 1.0)
    assert list(find_leaks([("x", "1", short), ("y", "2", short[:-1] + b"N")])) == []


def test_nothing_leaks_between_empty_sides():
    assert list(find_leaks([])) == []
    assert list(find_leaks([("y", "2", GENOME), ("x", "1", b"")])) == []


def test_the_partner_is_the_record_of_another_part_that_shares_most():
    records = [
        ("same group", "1", GENOME),
        ("little", "2", GENOME[:4_000] + random_sequence(9_000, seed=4)),
        ("most", "3", random_sequence(9_000, seed=5) + reverse_complement(GENOME[3_000:])),
        ("part", "1", GENOME[2_000:9_000]),
    ]
    found = {leak.name: leak for leak in find_leaks(records)}
    assert found["part"].other == found["same group"].other == "most"
    assert found["part"].share == 1.0  # also the part that is in "little"
    assert "little" not in found


def test_a_record_covered_by_pieces_of_several_others_is_found():
    pieces = [(f"piece {at}", "1", GENOME[at : at + 4_500]) for at in range(0, 24_000, 6_000)]
    leaks = list(find_leaks([*pieces, ("long", "2", GENOME[:24_000])]))
    assert {leak.name for leak in leaks} == {"long", *(name for name, _, _ in pieces)}


def test_a_sketch_holds_one_of_25_kmers_and_is_equal_for_both_strands():
    own = sketch(GENOME)
    assert 1_000 < len(own) < 1_400
    assert np.array_equal(own, sketch(reverse_complement(GENOME)))
    assert (np.diff(own) > 0).all()
    assert len(sketch(b"N" * 1000)) == 0


def test_a_sketch_does_not_depend_on_the_size_of_pieces(monkeypatch):
    whole = sketch(GENOME)
    monkeypatch.setattr("virnucpro.lab.training.genomes._PIECE", 1_000)
    assert np.array_equal(sketch(GENOME), whole)
