import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.encoders.residues import ALPHABET, tokenise_residues

LETTERS = "LAGVSERTIDPKQNFYMHWCXBUZO.-"


@given(st.lists(st.text(LETTERS, max_size=60), max_size=5))
def test_ids_are_those_of_fair_esms_own_converter(texts):
    convert = ALPHABET.get_batch_converter()
    for text, ids in zip(texts, tokenise_residues([t.encode() for t in texts]), strict=True):
        assert ids.tolist() == convert([("", text)])[2][0].tolist()
        assert ids.dtype == np.int64


def test_the_ids_are_the_published_ones():
    assert tokenise_residues([b"LAGX-"])[0].tolist() == [0, 4, 5, 6, 24, 30, 2]


def test_lower_case_counts_as_upper_case():
    upper, lower = tokenise_residues([LETTERS.encode(), LETTERS.lower().encode()])
    assert upper.tolist() == lower.tolist()


@pytest.mark.parametrize("letter", [b"J", b"*", b"j", b"1", b" ", b"<", b"\x00", b"\xff"])
def test_what_has_no_token_becomes_unk(letter):
    assert tokenise_residues([b"A" + letter + b"A"])[0].tolist() == [0, 5, 3, 5, 2]


@given(st.binary(max_size=50))
def test_one_byte_is_one_token_and_no_bytes_spell_a_special_one(sequence):
    for text in (sequence, sequence + b"<mask>" + sequence):
        inner = tokenise_residues([text])[0][1:-1]
        assert len(inner) == len(text)
        assert not np.isin(inner, [ALPHABET.mask_idx, ALPHABET.padding_idx, 0, 2]).any()
