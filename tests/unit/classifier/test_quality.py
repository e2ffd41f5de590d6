import numpy as np
import pytest
from samples import index_of

from virnucpro.classifier import quality
from virnucpro.classifier.quality import record_quality
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec

RNG = np.random.default_rng(11)


def random_bases(length, gc=0.5):
    shares = [(1 - gc) / 2, gc / 2, gc / 2, (1 - gc) / 2]
    return RNG.choice(list(b"ACGT"), size=length, p=shares).astype(np.uint8).tobytes()


@pytest.fixture
def quality_of(tmp_path):
    """Return a function that returns the quality of records, each a sequence."""

    def measure(*sequences):
        spec = IndexSpec("windows", Alphabet.NUCLEOTIDE, 500, "even", 11)
        return record_quality(index_of(tmp_path, sequences, spec))

    return measure


def test_gc_and_known_bases_are_shares_of_each_record(quality_of):
    found = quality_of(b"GGCA", b"", b"NNNNRYNN", b"ACGTNNNN", b"acgt" * 30, b"T" * 10)
    assert found.gc == pytest.approx([0.75, np.nan, np.nan, 0.5, 0.5, 0.0], nan_ok=True)
    assert found.known == pytest.approx([1, np.nan, 0, 0.5, 1, 1], nan_ok=True)


COMPLEX = [
    (b"A" * 300, False),
    (b"ACGTACG" * 60, False),  # seven different 3-mers: 2.8 bits
    (b"TAAGG" * 80, False),
    (b"N" * 400 + b"AC" * 200 + b"N" * 400, False),
    (random_bases(300), True),
    (random_bases(300, gc=0.2), True),
    (random_bases(300, gc=0.8), True),
    (random_bases(500) * 2, True),  # two copies, as of a circular genome
    (random_bases(200) * 2 + random_bases(100), True),
    (random_bases(100) * 5, False),
    (random_bases(359) * 28, False),  # a satellite
    (random_bases(359) + b"N" * 5 + random_bases(3_000), True),
    (b"NNN".join(random_bases(14) for _ in range(60)), True),  # 180 12-mers
    (b"N".join(random_bases(11) for _ in range(60)), True),  # no 12-mer is known
    (b"A" * 61, True),  # too short to be judged: 59 3-mers
    (b"A" * 62, False),
    (b"AC" * 29 + b"N" * 50 + b"", True),  # 56 known 3-mers
    (b"", True),
    (b"N" * 500, True),
    (b"AAN" * 100, True),  # no 3-mer is known
]


def test_simple_repeats_are_of_low_complexity(quality_of):
    found = quality_of(random_bases(200), *(sequence for sequence, _ in COMPLEX)).complex.tolist()
    assert found == [True, *(is_complex for _, is_complex in COMPLEX)]


def test_blocks_of_a_long_record_are_examined(quality_of, monkeypatch):
    monkeypatch.setattr(quality, "_BLOCKS", 4)
    monkeypatch.setattr(quality, "_BLOCK_BASES", 200)
    mostly_random = b"A" * 400 + random_bases(3_600)
    found = quality_of(
        random_bases(400) + b"A" * 3_600, mostly_random, b"N" * 2_000 + random_bases(2_000)
    )
    assert found.complex.tolist() == [False, True, True]
    assert found.known.tolist() == [1, 1, 0.5]


@pytest.mark.parametrize("batch", [1, 1_000, 1 << 20])
def test_records_examined_together_are_judged_as_alone(quality_of, monkeypatch, batch):
    monkeypatch.setattr(quality, "_BATCH_BASES", batch)
    repeat = random_bases(40)
    sequences = [
        random_bases(int(length)) if kind else repeat * int(length // 40)
        for kind, length in zip(RNG.integers(0, 2, 40), RNG.integers(0, 400, 40), strict=True)
    ]
    alone = [quality.is_complex(sequence) for sequence in sequences]
    assert quality_of(*sequences).complex.tolist() == alone
    assert 5 < sum(alone) < 40
