import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.errors import UsageError
from virnucpro.sequences.translation import (
    GENETIC_CODES,
    genetic_code,
    open_frames,
    peptide,
    residues_by_codon,
    reverse_complement,
)

bases = st.text("ACGT", max_size=90)
messy_bases = st.one_of(
    bases, st.text("ACGTN", max_size=90), st.text("ACGTRYKMSWBDHVN", max_size=90)
)
codes = st.sampled_from(list(GENETIC_CODES.values()))
COMPLEMENT = {"A": "T", "C": "G", "G": "C", "T": "A"}


def translate_codon(codon, code):
    if set(codon) - set("TCAG"):
        return ""
    first, second, third = ("TCAG".index(letter) for letter in codon)
    return chr(code[16 * first + 4 * second + third])


def frames_one_by_one(window, code):
    """Return frame and peptide of all open frames, translated codon by codon."""
    found = []
    backwards = "".join(COMPLEMENT.get(base, base) for base in reversed(window))
    for number, (strand, offset) in enumerate(
        (s, f) for s in (window, backwards) for f in range(3)
    ):
        codons = [strand[i : i + 3] for i in range(offset, len(strand) - 2, 3)]
        residues = "".join(translate_codon(codon, code) for codon in codons)
        if residues and "*" not in residues:
            found.append((number, residues))
    return found


@given(messy_bases, codes, st.lists(st.tuples(st.integers(0, 90), st.integers(0, 90)), max_size=8))
def test_open_frames_equal_a_translation_codon_by_codon(sequence, code, pairs):
    spans = [sorted((min(a, len(sequence)), min(b, len(sequence)))) for a, b in pairs]
    starts, ends = np.array(spans, dtype=np.int64).reshape(-1, 2).T
    found = open_frames(sequence.encode(), starts, ends, code)
    expected = [
        (i, frame, len(residues))
        for i, (start, end) in enumerate(spans)
        for frame, residues in frames_one_by_one(sequence[start:end], code)
    ]
    answer = zip(found.window.tolist(), found.frame.tolist(), found.residues.tolist(), strict=True)
    assert list(answer) == expected
    assert (found.window.dtype, found.frame.dtype) == (np.int64, np.uint8)
    assert found.residues.dtype == np.int32


@given(messy_bases)
def test_a_window_with_one_known_codon_is_translatable(sequence):
    found = open_frames(
        sequence.encode(), np.array([0]), np.array([len(sequence)]), genetic_code(1)
    )
    codons = (sequence[i : i + 3] for i in range(len(sequence) - 2))
    assert found.translatable.tolist() == [any(set(codon) <= set("ACGT") for codon in codons)]


@given(messy_bases, codes)
def test_peptides_drop_unknown_codons_and_keep_stops(sequence, code):
    codons = [sequence[i : i + 3] for i in range(0, len(sequence) - 2, 3)]
    translated = [translate_codon(codon, code) for codon in codons]
    assert peptide(sequence.encode(), code) == "".join(translated).encode()
    whole = sequence[: 3 * len(codons)].encode()
    assert residues_by_codon(whole, code) == "".join(t or "-" for t in translated).encode()


@given(messy_bases)
def test_the_reverse_complement_is_its_own_inverse(sequence):
    assert reverse_complement(reverse_complement(sequence.encode())) == sequence.encode()


def test_other_letters_are_not_complemented():
    assert reverse_complement(b"ACGTRYN") == b"NYRACGT"


@pytest.mark.parametrize(
    ("number", "codon", "residue"),
    [
        (1, b"TGA", b"*"),
        (11, b"TGA", b"*"),
        (4, b"TGA", b"W"),
        (2, b"AGA", b"*"),
        (5, b"AGA", b"S"),
        (1, b"ATG", b"M"),
        (6, b"TAA", b"Q"),
        (3, b"CTG", b"T"),
    ],
)
def test_genetic_codes_translate_as_in_the_ncbi_tables(number, codon, residue):
    assert peptide(codon, genetic_code(number)) == residue


@pytest.mark.parametrize("number", sorted(GENETIC_CODES))
def test_genetic_codes_equal_those_of_biopython(number):
    tables = pytest.importorskip("Bio.Data.CodonTable").unambiguous_dna_by_id
    codons = [a + b + c for a in "TCAG" for b in "TCAG" for c in "TCAG"]
    theirs = "".join(tables[number].forward_table.get(codon, "*") for codon in codons)
    assert genetic_code(number).decode() == theirs


def test_empty_input_has_no_frames():
    none = np.empty(0, dtype=np.int64)
    assert len(open_frames(b"ACGT", none, none, genetic_code(1)).window) == 0
    empty = open_frames(b"", np.array([0]), np.array([0]), genetic_code(1))
    assert (len(empty.window), empty.translatable.tolist()) == (0, [False])


@pytest.mark.parametrize("number", [0, 7, 27, 99])
def test_unknown_genetic_codes_are_rejected(number):
    with pytest.raises(UsageError, match=f"{number}: choose one of 1, 2, 3"):
        genetic_code(number)
