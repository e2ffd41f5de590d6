import numpy as np
import pytest

from virnucpro.sequences.terminal_repeats import LEAST_REPEAT, terminal_repeat
from virnucpro.sequences.translation import reverse_complement


def letters(n, seed=1):
    return np.random.default_rng(seed).choice([*b"ACGT"], n).astype(np.uint8).tobytes()


BODY = letters(3_000)


@pytest.mark.parametrize("n", [LEAST_REPEAT, 127, 1_500])
def test_a_genome_with_its_start_again_at_its_end_is_direct(n):
    assert terminal_repeat(BODY + BODY[:n]) == "DTR"


@pytest.mark.parametrize("n", [LEAST_REPEAT, 300])
def test_a_genome_with_its_start_reversed_at_its_end_is_inverted(n):
    assert terminal_repeat(BODY + reverse_complement(BODY[:n])) == "ITR"


@pytest.mark.parametrize(
    "bases",
    [
        BODY,
        BODY + BODY[: LEAST_REPEAT - 1],
        BODY + BODY[:100] + b"C" if BODY[100:101] != b"C" else BODY + BODY[:100] + b"G",
        b"A" * 40 + BODY + b"A" * 40,
        b"AT" * 30 + BODY + b"AT" * 30,
        b"N" * 40 + BODY + b"N" * 40,
        b"",
        b"ACGT",
    ],
    ids=["none", "19 bases", "not to the end", "poly-A", "AT", "N", "empty", "short"],
)
def test_other_ends_are_no_repeats(bases):
    assert terminal_repeat(bases) == ""
