import shutil
import tempfile
import tracemalloc
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from cases import mostly_slow
from hypothesis import example, given
from hypothesis import strategies as st
from samples import QUICK, write_fasta

from virnucpro.errors import StoreError
from virnucpro.sequences import columns, rows
from virnucpro.sequences.columns import column_path, write_column
from virnucpro.sequences.index import build_index
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.rows import distinct_rows, write_rows
from virnucpro.sequences.spec import IndexSpec

# Identical items have equal lengths, so the length is part of the digest.
items = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 4)), max_size=60)


@given(items)
@example([(1, 2, 1), (2, 1, 1), (1, 1, 1), (1, 2, 1)])  # both halves of a digest are compared
def test_rows_are_sorted_by_length_then_by_first_appearance(items):
    digests = np.array([(a, 8 * b + n) for a, b, n in items], np.uint64).reshape(-1, 2)
    lengths = np.array([n for _, _, n in items], np.int32)
    item_row, first_item = distinct_rows(digests, lengths)
    order = sorted(dict.fromkeys(items), key=lambda item: -item[2])
    assert [items[i] for i in first_item] == order
    assert first_item.tolist() == [items.index(item) for item in order]
    assert item_row.tolist() == [order.index(item) for item in items]
    assert item_row.dtype == first_item.dtype == np.int64


def on_disk(block_items):
    """Sort all items on disk, in blocks of the given size."""
    return patch.multiple(rows, IN_MEMORY_ITEMS=0, BLOCK_ITEMS=block_items)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


GENES = [b"ATGGCCAAAGGTCCCTTTGCA" * n for n in (1, 3, 9)] + [b"C" * 90, b"ACGTTGCA" * 20, b"NN"]
SPECS = [
    IndexSpec("frames", Alphabet.NUCLEOTIDE, 30, "published", 1),
    IndexSpec("stretches", Alphabet.NUCLEOTIDE, 100, "even", 1),
    IndexSpec("windows", Alphabet.NUCLEOTIDE, 70, "even", 1),
    IndexSpec("frames", Alphabet.NUCLEOTIDE, 30, "published", 1, piece=20),
    IndexSpec("windows", Alphabet.NUCLEOTIDE, 70, "even", 1, piece=75),
    IndexSpec("whole", Alphabet.NUCLEOTIDE),
]
records = st.lists(
    st.one_of(st.sampled_from(GENES), st.text("ACGT", max_size=100).map(str.encode)), max_size=12
)


@given(records, st.sampled_from(SPECS), st.integers(1, 9))
def test_an_index_sorted_on_disk_equals_one_sorted_in_memory(records, spec, block_items):
    with tempfile.TemporaryDirectory(dir=QUICK) as name:
        fasta = write_fasta(Path(name) / "in.fa", records)
        build_index(Path(name) / "memory", [fasta], spec)
        with on_disk(block_items):
            build_index(Path(name) / "disk", [fasta], spec)
        assert content(Path(name) / "disk") == content(Path(name) / "memory")


def write_items(folder, digest_of, length_of):
    """Write the columns of items, one per 1,000 letters.

    `digest_of` numbers the content of each item, `length_of` has the length of each content.
    """
    n = len(digest_of)
    places = np.arange(n + 1)
    hashes = np.random.default_rng(1).integers(0, 2**64, (len(length_of), 2), np.uint64)
    values = {
        "item_digest": hashes[digest_of].reshape(-1),
        "item_length": length_of[digest_of],
        "item_frame": places[:-1] % 6,
        "item_first_base": 1000 * places[:-1],
        "item_span": 3 * length_of[digest_of],
    }
    folder.mkdir()
    for name, column in values.items():
        write_column(folder, name, column)


N_ITEMS, BLOCK = 120_000, 3_000
REPETITIONS = {
    "none": np.arange(N_ITEMS),
    "all": np.zeros(N_ITEMS, int),
    "half": np.random.default_rng(2).integers(0, N_ITEMS // 2, N_ITEMS),
    "of the first block": np.arange(N_ITEMS) % BLOCK,
}


@pytest.mark.parametrize("repetitions", mostly_slow(REPETITIONS, "half"))
def test_sorting_on_disk_gives_equal_columns_in_little_memory(tmp_path, repetitions, monkeypatch):
    monkeypatch.setattr(columns, "_BUFFER_BYTES", 1 << 16)  # of each of the six columns
    lengths = np.random.default_rng(3).integers(1, 500, N_ITEMS, np.int32)
    write_items(tmp_path / "memory", REPETITIONS[repetitions], lengths)
    shutil.copytree(tmp_path / "memory", tmp_path / "disk")
    in_memory, needed = traced(lambda: write_rows(tmp_path / "memory"))
    write_items(tmp_path / "small", np.zeros(9, int), lengths[:1])
    with on_disk(BLOCK):
        write_rows(tmp_path / "small")  # the first call imports modules, which need memory too
        sorted_outside, less = traced(lambda: write_rows(tmp_path / "disk"))
    assert sorted_outside == in_memory
    assert content(tmp_path / "disk") == content(tmp_path / "memory")
    # About 250 bytes an item of a block, the buffers, and 2 MB that some runs need at once.
    assert less < 250 * BLOCK + (3 << 20) < 45 * N_ITEMS < needed


def traced(action):
    """Return the result of an action and the peak of memory that it allocated."""
    tracemalloc.start()
    try:
        return action(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class FullDisk(rows._Divided):
    """Temporary files on a disk that is full for one of them."""

    full: str

    def append(self, number, records):
        if self._folder.name == self.full:
            with Path("/dev/full").open("wb") as stream:
                stream.write(records.tobytes())
        super().append(number, records)


@pytest.mark.parametrize(
    "full",
    mostly_slow(["digests", "entries", "firsts", "repeats", "places", "rows"], "digests", "rows"),
)
def test_a_disk_that_fills_while_rows_are_sorted_is_a_clear_error(tmp_path, full):
    fasta = tmp_path / "in.fa"
    fasta.write_bytes(b">a\n%s\n" % b"ACGTTGCA" * 9 * 30)
    disk = type("Disk", (FullDisk,), {"full": full})
    with (
        on_disk(20),
        patch.object(rows, "_Divided", disk),
        pytest.raises(StoreError, match=r"No space left on device.*; correct this error"),
    ):
        build_index(tmp_path / "index", [str(fasta)], SPECS[0])
    assert list(tmp_path.iterdir()) == [fasta]


def test_no_temporary_file_is_left_beside_the_columns(tmp_path):
    write_items(tmp_path / "index", np.arange(20) % 7, np.arange(1, 8, dtype=np.int32))
    before = set((tmp_path / "index").iterdir())
    with on_disk(3):
        write_rows(tmp_path / "index")
    written = {column_path(tmp_path / "index", name) for name in rows.ROW_COLUMNS}
    assert set((tmp_path / "index").iterdir()) == before | written
