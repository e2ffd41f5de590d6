import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.errors import UsageError
from virnucpro.lab.validation.synthetic import synthetic_items
from virnucpro.sequences.translation import genetic_code, peptide


@given(st.integers(1, 30), st.integers(1, 60), st.integers(0, 60), st.integers(0, 5))
def test_items_have_the_requested_lengths(n, least, more, seed):
    items = synthetic_items(n, f"{least}-{least + more}", seed)
    assert len(items["nucleotide"]) == len(items["protein"]) == n
    for bases, residues in zip(items["nucleotide"], items["protein"], strict=True):
        assert least <= len(residues) <= least + more
        assert len(bases) == 3 * len(residues) + 1
        assert peptide(bases, genetic_code(1)) == residues
        assert b"*" not in residues


def test_the_same_seed_gives_the_same_items():
    assert synthetic_items(20, "six-frame") == synthetic_items(20, "six-frame")
    assert synthetic_items(20, "six-frame") != synthetic_items(20, "six-frame", seed=2)


def test_six_frame_lengths_are_those_of_windows():
    counts = np.array([len(item) for item in synthetic_items(2_000, "six-frame")["protein"]])
    assert counts.max() == 166
    assert 19 <= counts.min() < 40
    assert 0.6 < (counts >= 160).mean() < 0.95


@pytest.mark.parametrize("lengths", ["", "0", "5-2", "20-", "-3", "0-9", "long", "1-2-3", "six"])
def test_invalid_lengths_are_refused(lengths):
    with pytest.raises(UsageError, match="six-frame"):
        synthetic_items(1, lengths)
