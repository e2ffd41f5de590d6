"""Windows, frames and peptides, compared with the published output and a plain reimplementation."""

import math

import numpy as np
import pytest

from virnucpro.sequences.index import build_index
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec
from virnucpro.sequences.windows import tile, tile_all


def published_windows(length, window):
    """The published rule for windows, with plain Python numbers and lists."""
    n = math.ceil(length / window)
    excess = n * window - length
    low = excess // n
    need = excess - low * (n - 1)
    shifts = [low + 1] * need + [low] * max(0, n - 1 - need) + [0]
    windows, moved = [], 0
    for k in range(n):
        start = k * window - moved
        windows.append((start, min(start + window, length)))
        moved += shifts[k]
    return windows


@pytest.mark.parametrize("window", [300, 500])
def test_windows_of_all_lengths_to_five_thousand_match_the_published_ones(window):
    lengths = np.arange(1, 5001)
    together = tile_all(lengths, window, "published")
    spans = np.stack((together.starts, together.ends), axis=1)
    for length, first, last in zip(lengths, together.first[:-1], together.first[1:], strict=True):
        expected = published_windows(int(length), window)
        assert spans[first:last].tolist() == [list(span) for span in expected], length
    for length in (1, window, window + 1, 4999):
        alone = np.stack(tile(length, window, "published"), axis=1)
        assert alone.tolist() == [list(span) for span in published_windows(length, window)]


def wrapped(sequence, width=60):
    return b"".join(sequence[i : i + width] + b"\n" for i in range(0, len(sequence), width))


@pytest.mark.shared
def test_windows_frames_and_peptides_match_the_published_ones(shared, tmp_path):
    reference = shared / "reference" / "published-tool"
    spec = IndexSpec("frames", Alphabet.NUCLEOTIDE, 500, "published", 1)
    index = build_index(tmp_path / "index", [str(reference / "test_with_orfs.fa")], spec)
    windows = b"".join(
        b">%s\n%s" % (name.encode(), wrapped(index.window_sequence(i)))
        for i, name in enumerate(index.window_names(np.arange(index.n_windows)))
    )
    assert windows == (reference / "test_with_orfs_chunked500.fa").read_bytes()
    names = [name.encode() for name in index.item_names(np.arange(index.n_items))]
    files = {
        "nucleotide": "test_with_orfs_identified_nucleotide.fa",
        "protein": "test_with_orfs_identified_protein.faa",
    }
    for view, file in files.items():
        texts = index.sequences(index.item_row, view)
        lines = b"".join(b">%s\n%s\n" % pair for pair in zip(names, texts, strict=True))
        assert lines == (reference / file).read_bytes()
