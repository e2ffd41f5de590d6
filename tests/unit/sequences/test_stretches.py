"""The longest stop-free stretch of each window as its item."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from samples import QUICK, any_spec, index_of

from virnucpro.sequences.items import WINDOW_ITEM, divide_records
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec, RecordStatus
from virnucpro.sequences.stretches import LEAST_CODONS
from virnucpro.sequences.translation import genetic_code, peptide, reverse_complement

SPEC = IndexSpec("stretches", Alphabet.NUCLEOTIDE, 300, "even", 11)
CODE = genetic_code(11)

GENE = b"ATGGCCAAAGGTCCCTTTGCA" * 5  # 35 codons, F1 is open
CLOSED = b"TTAA" * 25  # a stop in each of the six frames


def longest_of(window):
    """Return frame, bases and peptide of the longest stretch, or None; a simple implementation."""
    best = None
    for frame in range(6):
        strand = reverse_complement(window) if frame > 2 else window
        run = []
        runs = []
        for at in range(frame % 3, len(strand) - 2, 3):
            codon = strand[at : at + 3]
            if peptide(codon, CODE) in (b"*", b""):
                runs.append(run)
                run = []
            else:
                run.append((at, codon))
        runs = [one for one in [*runs, run] if one]
        if frame > 2:
            runs.reverse()  # the leftmost on the given strand comes first
        for one in runs:
            if best is None or len(one) > len(best[1]):
                best = frame, one
    if best is None or len(best[1]) < LEAST_CODONS:
        return None
    bases = b"".join(codon for _, codon in best[1])
    return best[0], bases, peptide(bases, CODE)


pieces = st.sampled_from(
    [GENE, GENE[1:64], b"GCC" * 30, CLOSED[:24], b"N", b"ACGTTGCA" * 3, b"TAG", b"R", b"GATTACA"]
)
records = st.lists(st.lists(pieces, max_size=14).map(b"".join), max_size=4)
specs = any_spec("stretches", 80, 400, genetic_codes=[11])


@given(records, specs)
@example([GENE + b"N" + GENE, b"", b"AC", CLOSED, reverse_complement(GENE)], SPEC)
@example([b"GCC" * 100], SPEC)
def test_stretches_equal_a_simple_implementation(sequences, spec):
    with tempfile.TemporaryDirectory(dir=QUICK) as folder:
        index = index_of(Path(folder), sequences, spec)
        expected = [longest_of(index.window_sequence(window)) for window in range(index.n_windows)]
        found = [one for one in expected if one is not None]
        has = [one is not None for one in expected]
        assert np.diff(index.window_first_item).tolist() == [int(one) for one in has]
        assert index.item_frame.tolist() == [frame for frame, _, _ in found]
        assert index.sequences(index.item_row, "nucleotide") == [bases for _, bases, _ in found]
        assert index.sequences(index.item_row, "protein") == [residues for _, _, residues in found]
        assert index.n_rows == len({bases for _, bases, _ in found})
        assert index.row_lengths[index.item_row].tolist() == [len(one) for _, _, one in found]


@given(records, specs)
def test_windows_without_a_stretch_are_items_of_the_fallback(sequences, spec):
    alone = divide_records(sequences, spec)
    both = divide_records(sequences, replace(spec, fallback=True))
    whole = divide_records(sequences, replace(spec, kind="windows"))
    expected = np.where(alone.per_window > 0, alone.per_window, whole.per_window)
    assert both.per_window.tolist() == expected.tolist()
    stretches = both.frame != WINDOW_ITEM
    for name in ("frame", "length", "start", "span"):
        assert getattr(both, name)[stretches].tolist() == getattr(alone, name).tolist()


@pytest.mark.parametrize(
    ("sequence", "status"),
    [
        (b"AC", RecordStatus.TOO_SHORT),
        (b"N" * 200, RecordStatus.AMBIGUOUS_BASES),
        (CLOSED, RecordStatus.NO_OPEN_FRAME),
        (GENE[: 3 * LEAST_CODONS - 1], RecordStatus.NO_OPEN_FRAME),
        (GENE[: 3 * LEAST_CODONS], RecordStatus.SCORABLE),
    ],
)
def test_a_record_without_a_stretch_has_a_status(sequence, status):
    assert divide_records([sequence], SPEC).status.tolist() == [status]
