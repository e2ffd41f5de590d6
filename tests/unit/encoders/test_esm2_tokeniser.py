import numpy as np
from esm.data import Alphabet
from hypothesis import example, given
from hypothesis import strategies as st

from virnucpro.encoders.esm2.config import TOKENS, tokenise_residues

SPECIAL = ["<cls>", "<pad>", "<eos>", "<mask>"]
FAIR_ESM = Alphabet.from_architecture("ESM-1b")

LETTERS = "LAGVSERTIDPKQNFYMHWCXBUZO.-"


@given(st.lists(st.text(LETTERS, max_size=60), max_size=5))
def test_ids_equal_those_of_fair_esm(texts):
    convert = FAIR_ESM.get_batch_converter()
    for text, ids in zip(texts, tokenise_residues([t.encode() for t in texts]), strict=True):
        assert ids.tolist() == convert([("", text)])[2][0].tolist()
        assert ids.dtype == np.int64


def straight_line(sequence):
    """Return fair-esm's id of each residue, else that of <unk>."""
    known = FAIR_ESM.to_dict()
    letters = [chr(byte).upper() if byte < 128 else chr(byte) for byte in sequence]
    return [0, *(known.get(letter, 3) for letter in letters), 2]


@given(st.lists(st.binary(max_size=40), max_size=20))
@example([b"LAGX-j*"])
def test_ids_of_any_bytes_equal_a_simple_implementation(sequences):
    ids = tokenise_residues(sequences)
    assert [one.tolist() for one in ids] == [straight_line(one) for one in sequences]


def test_sequences_do_not_share_tokens(proteins):
    first, second = tokenise_residues(proteins([7, 9]))
    before = second.tolist()
    first[:] = 31
    assert second.tolist() == before


def test_the_alphabet_equals_that_of_fair_esm():
    assert list(TOKENS) == FAIR_ESM.all_toks


@given(st.binary(max_size=50))
def test_one_byte_is_one_token_and_never_a_special_one(sequence):
    for text in (sequence, sequence + b"<mask>" + sequence):
        inner = tokenise_residues([text])[0][1:-1]
        assert len(inner) == len(text)
        assert not np.isin(inner, [TOKENS.index(name) for name in SPECIAL]).any()
