"""Features of windows: an obvious reference, each window alone, both strands, junk."""

import math
from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from virnucpro.encoders.composition.features import DIM, NAMES, PROPERTIES, features
from virnucpro.sequences.translation import GENETIC_CODES, reverse_complement

CODE = GENETIC_CODES[11]
COLUMN = {name: i for i, name in enumerate(NAMES)}
AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
CODON = {
    a + b + c: chr(CODE[16 * i + 4 * j + k])
    for i, a in enumerate("TCAG")
    for j, b in enumerate("TCAG")
    for k, c in enumerate("TCAG")
}

bases = st.text("ACGT", max_size=400).map(str.encode)
anything = st.text("ACGTACGTACGTNRYK-*", max_size=200).map(str.encode)


def words(window, length):
    """Count each word of known letters under the lesser name of itself and its complement."""
    found = Counter()
    for i in range(len(window) - length + 1):
        word = window[i : i + length]
        if not word.strip(b"ACGT"):
            found[min(word, reverse_complement(word)).decode()] += 1
    return found


def known(codon):
    return codon if codon in CODON else None


def frames(window):
    """Return the codons of the six frames; None for an unknown codon."""
    other = reverse_complement(window)
    # The other strand's frames have the borders of the first strand's: offset by the remainder.
    offsets = [(0, window, f) for f in range(3)] + [
        (1, other, (len(window) - f) % 3) for f in range(3)
    ]
    return {
        (strand, f): [known(bases[i : i + 3].decode()) for i in range(start, len(bases) - 2, 3)]
        for (strand, bases, start), f in zip(offsets, [0, 1, 2, 0, 1, 2], strict=True)
    }


def stretches(codons):
    """Return all runs of codons that are known and no stops."""
    runs = [[]]
    for codon in codons:
        if codon is None or CODON[codon] == "*":
            runs.append([])
        else:
            runs[-1].append(codon)
    return runs


def worth(run):
    """Length first, then the preference for RNY codons."""
    ties = [64 * ((c[0] in "AG") + (c[2] in "TC")) + list(CODON).index(c) for c in run]
    return len(run), sum(ties)


def has_tie(window):
    runs = [worth(run) for codons in frames(window).values() for run in stretches(codons)]
    return max(runs) > (0, 0) and runs.count(max(runs)) > 1


def shares(counts):
    total = sum(counts.values())
    return {name: n / total for name, n in counts.items()}


def contrast(number, expected):
    return (number - expected) / (number + expected + 2)


def repetition(counts):
    total = max(sum(counts.values()), 1)
    return sum(n * n for n in counts.values()) / total**2


def expected_by_bases(run, bases):
    """Return codons against bases, and bases at each place of a codon."""
    found = {}
    counts = Counter(run)
    for codon, residue in CODON.items():
        by_bases = math.prod(bases.get(base, 0.0) for base in codon) * len(run)
        found[f"codon {codon} against its bases"] = contrast(counts[codon], by_bases)
        synonyms = [c for c in CODON if CODON[c] == residue]
        equal = sum(counts[c] for c in synonyms) / len(synonyms)
        found[f"codon {codon} among its synonyms"] = contrast(counts[codon], equal)
    for place in (1, 2, 3):
        here = Counter(codon[place - 1] for codon in run)
        for base in "ACGT":
            share = here[base] / max(len(run), 1)
            found[f"base {base} at place {place} of codons"] = share
            found[f"base {base} at place {place} less window"] = share - bases.get(base, 0.0)
    pairs = Counter(a[2] + b[0] for a, b in pairwise(run))
    total = max(sum(pairs.values()), 1)
    for a, b in product("ACGT", repeat=2):
        left = sum(n for pair, n in pairs.items() if pair[0] == a)
        right = sum(n for pair, n in pairs.items() if pair[1] == b)
        found[f"border {a}{b}"] = pairs[a + b] / total
        found[f"border {a}{b} against its bases"] = contrast(pairs[a + b], left * right / total)
    return found


def of_properties(protein):
    found = {}
    for name, table in PROPERTIES.items():
        values = np.array([table[AMINO_ACIDS.index(letter)] for letter in protein], float)
        mean = values.mean() if len(values) else 0.0
        variance = (values**2).mean() - mean**2 if len(values) else 0.0
        found |= {f"{name} mean": mean / 100, f"{name} variance": variance / 100}
        for lag in range(1, min(8, len(values))):
            products = values[:-lag] * values[lag:]
            found[f"{name} lag {lag}"] = (products.mean() - mean**2) / 100
    return found


def around(codons, run, at):
    """Return the stop on each side of a run."""
    found = {}
    for side, place in (("after", at + len(run)), ("before", at - 1)):
        codon = codons[place] if run and 0 <= place < len(codons) else None
        name = codon or "another letter or the end"
        found[f"{name} {side} the stretch"] = 1.0
    return found


def find(codons, run):
    """Return the place of the first such run between two breaks."""
    for at in range(len(codons) - len(run) + 1):
        inside = codons[at : at + len(run)] == run
        left = at == 0 or codons[at - 1] is None or CODON[codons[at - 1]] == "*"
        if inside and left:
            return at
    return None


def reference(window):
    """Return the features by name, with zeros left out."""
    found = {}
    for length in (4, 3):
        for name, share in shares(words(window, length)).items():
            found[f"word {name}"] = share
    counted = words(window, 4)
    found["repetition of words"] = repetition(counted)
    found["most frequent word"] = max(counted.values(), default=0) / max(sum(counted.values()), 1)
    found["root of counted words"] = sum(counted.values()) ** 0.5 / 10
    by_frame = frames(window)
    best = max(by_frame, key=lambda key: max(map(worth, stretches(by_frame[key]))))
    run = max(stretches(by_frame[best]), key=worth)
    protein = "".join(CODON[codon] for codon in run)
    found |= {f"codon {n}": x for n, x in shares(Counter(run)).items()}
    found |= {f"residue {n}": x for n, x in shares(Counter(protein)).items()}
    pairs = Counter(protein[i : i + 2] for i in range(len(protein) - 1))
    found |= {f"pair {n}": x for n, x in shares(pairs).items()}
    strand, phase = best
    bases = Counter((reverse_complement(window) if strand else window).decode())
    bases = Counter({base: n for base, n in bases.items() if base in "ACGT"})
    found["skew G C"] = (bases["G"] - bases["C"]) / (bases["G"] + bases["C"] + 1)
    found["skew A T"] = (bases["A"] - bases["T"]) / (bases["A"] + bases["T"] + 1)
    share_of_bases = {base: n / sum(bases.values()) for base, n in bases.items()}
    found |= expected_by_bases(run, share_of_bases) | of_properties(protein)
    found |= around(by_frame[best], run, find(by_frame[best], run))
    found["repetition of codons"] = repetition(Counter(run))
    found["root of codons"] = len(run) ** 0.5 / 10
    found["first ATG"] = run.index("ATG") / len(run) if "ATG" in run else 1.0
    sign = -1 if strand else 1
    for i in range(6):
        other = (strand if i < 3 else 1 - strand, (phase + sign * i) % 3)
        codons = [codon for codon in by_frame[other] if codon]
        longest = max(map(len, stretches(by_frame[other])))
        n_stops = sum(CODON[codon] == "*" for codon in codons)
        frame = max(len(codons), 1)
        found[f"open share of frame {i}"] = longest / frame
        found[f"stop density of frame {i}"] = n_stops / frame
        found[f"codons of the longest stretch of frame {i}"] = longest / 100
        found[f"stops of frame {i}"] = n_stops / 10
    return found


@given(st.lists(anything | bases, max_size=4))
def test_equals_the_reference(windows):
    found = features(windows, CODE)
    assert found.shape == (len(windows), DIM)
    assert found.dtype == np.float32
    for row, window in zip(found, windows, strict=True):
        assume(not has_tie(window))
        expected = np.zeros(DIM, np.float32)
        for name, value in reference(window).items():
            expected[COLUMN[name]] = value
        np.testing.assert_allclose(row, expected, rtol=1e-5, atol=1e-6)


@given(st.lists(anything | bases, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_a_window_is_alone(windows, random):
    together = features(windows, CODE)
    order = list(range(len(windows)))
    random.shuffle(order)
    np.testing.assert_array_equal(features([windows[i] for i in order], CODE), together[order])
    for row, window in zip(together, windows, strict=True):
        np.testing.assert_array_equal(features([window], CODE)[0], row)


@pytest.mark.parametrize("repeat", [b"A", b"AC", b"ACG", b"GCA", b"TTA", b"CTAG"])
def test_repeats_are_alone_too(repeat):
    windows = [(repeat * 50)[:length] for length in range(60, 72)]
    together = features(windows, CODE)
    for row, window in zip(together, windows, strict=True):
        np.testing.assert_array_equal(features([window], CODE)[0], row)
        np.testing.assert_array_equal(features([b"GC", window, b"T"], CODE)[1], row)


def test_chunks_change_nothing(monkeypatch):
    windows = _random_windows(60)
    together = features(windows, CODE)
    monkeypatch.setattr("virnucpro.encoders.composition.features._CHUNK_BASES", 1000)
    np.testing.assert_array_equal(features(windows, CODE), together)


@pytest.mark.parametrize("length", [300, 500, 1001])
def test_both_strands_are_equal(length):
    windows = _random_windows(200, length)
    others = [reverse_complement(window) for window in windows]
    np.testing.assert_array_equal(features(others, CODE), features(windows, CODE))


@pytest.mark.parametrize("number", [1, 4, 6, 15])
def test_stops_belong_to_the_code(number):
    found = features([b"TAATAATAATAG" * 20, b"TGATGATGATGA" * 20], GENETIC_CODES[number])
    has_stop = [bytes([GENETIC_CODES[number][i]]) == b"*" for i in (10, 14)]
    stops = found[:, COLUMN["stop density of frame 0"] :][:, :6].max(axis=1) > 0
    assert stops.tolist() == has_stop


@pytest.mark.parametrize(
    "window", [b"", b"A", b"AC", b"ACG", b"N" * 500, b"-" * 7, b"TAA" * 50, b"A" * 9]
)
def test_junk_has_finite_features(window):
    assert np.isfinite(features([window, b"ACGT" * 100, window], CODE)).all()


def _random_windows(count, length=500):
    letters = np.frombuffer(b"ACGT", np.uint8)
    rng = np.random.default_rng(1)
    return [letters[rng.integers(0, 4, length)].tobytes() for _ in range(count)]
