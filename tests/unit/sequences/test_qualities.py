"""Qualities of FASTQ records in an index."""

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import QUICK

from virnucpro.errors import IndexFormatError
from virnucpro.sequences import builder
from virnucpro.sequences.columns import read_header
from virnucpro.sequences.index import SequenceIndex, build_index
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec

SPEC = IndexSpec("frames", Alphabet.NUCLEOTIDE, 30, "published", 1)
WHOLE = IndexSpec("whole", Alphabet.NUCLEOTIDE)
READS = b"@r 1\nacgU\n+\n!~@+\n@s\nG-T\n+s\nABC\n@t\n\n+\n\n"
FILES = {
    "reads.fq": READS,
    "reads.fq.gz": gzip.compress(READS),
    "windows.fq": READS.replace(b"\n", b"\r\n"),
    "empty.fq": b"",
    "same.fa": b">r\nACGT\n>s\nGT\n>t\n",
}
KEPT = [b"!~@+", b"AC", b""]


def build(tmp_path, *names, spec=SPEC):
    """Index some of `FILES`."""
    paths = []
    for name in names:
        (tmp_path / name).write_bytes(FILES[name])
        paths.append(str(tmp_path / name))
    return build_index(tmp_path / f"index of {' '.join(names)}", paths, spec)


def qualities(index):
    lengths = index.record_lengths.tolist()
    return [index.record_qualities(number, 0, length) for number, length in enumerate(lengths)]


@pytest.mark.parametrize("batch", [1, 1 << 20])
def test_qualities_of_several_inputs_are_aligned_with_the_letters(tmp_path, monkeypatch, batch):
    monkeypatch.setattr(builder, "_BATCH_BYTES", batch)
    index = build(tmp_path, "reads.fq", "empty.fq", "reads.fq.gz", "windows.fq")
    assert index.has_qualities
    assert qualities(index) == KEPT * 3
    assert index.record_qualities(3, 1, 3) == b"~@"
    index.verify()


@pytest.mark.parametrize("batch", [1, 1 << 20])
@pytest.mark.parametrize(
    "names", [["same.fa"], ["reads.fq", "same.fa"], ["same.fa", "reads.fq"], ["empty.fq"]]
)
def test_an_index_lacks_the_column_unless_all_records_have_qualities(
    monkeypatch, names, batch, tmp_path
):
    monkeypatch.setattr(builder, "_BATCH_BYTES", batch)
    index = build(tmp_path, *names)
    index.verify()
    assert not index.has_qualities
    assert not list(tmp_path.glob("index of */*.npy"))


def test_an_index_of_whole_sequences_has_no_qualities(tmp_path):
    assert not build(tmp_path, "reads.fq", spec=WHOLE).has_qualities


def test_qualities_do_not_change_the_fingerprint(tmp_path):
    assert build(tmp_path, "reads.fq").fingerprint == build(tmp_path, "same.fa").fingerprint


def test_a_damaged_column_is_found(tmp_path):
    build(tmp_path, "reads.fq")
    (path,) = tmp_path.glob("index of */*")
    place = read_header(path.parent).files["qualities"]
    with path.open("r+b") as stream:
        stream.seek(place.start + place.bytes - 1)
        stream.write(b"?")
    with pytest.raises(IndexFormatError, match="qualities changed since it was written"):
        SequenceIndex.open(path.parent).verify()


@pytest.mark.parametrize("character", [b" ", b"\t", b"\x7f", b"\x1f"])
@pytest.mark.parametrize("batch", [1, 1 << 20])
def test_characters_that_fastq_forbids_drop_the_column(tmp_path, monkeypatch, character, batch):
    monkeypatch.setattr(builder, "_BATCH_BYTES", batch)
    path = tmp_path / "odd.fq"
    path.write_bytes(READS + b"@odd\nACG\n+\nI" + character + b"I\n" + READS)
    index = build_index(tmp_path / "index", [str(path)], SPEC)
    assert not index.has_qualities
    *_, odd, _ = index.warnings  # the last warning is about the repeated names
    assert odd == (
        f"qualities with characters outside ! to ~, which FASTQ does not allow (first: {path}: "
        "record odd). The sequences are written as FASTA"
    )
    whole = build_index(tmp_path / "whole", [str(path)], WHOLE)
    assert not any("qualities" in text for text in whole.warnings)


letters = st.sampled_from("ACGTNacgtu-. \tE")
marks = st.sampled_from([chr(number) for number in range(33, 127)])


@given(st.lists(st.lists(st.tuples(letters, marks), max_size=12), min_size=3, max_size=8))
def test_each_quality_stays_with_its_letter(pairs):
    reads = [("".join(a for a, _ in one), "".join(b for _, b in one)) for one in pairs]
    plain = [("ACGT" * 3, "I" * 12)] * len(reads)  # most records are valid
    with tempfile.TemporaryDirectory(dir=QUICK) as folder:
        path = Path(folder) / "in.fq"
        path.write_text("".join(f"@r\n{s}\n+\n{q}\n" for s, q in reads + plain), newline="")
        index = build_index(Path(folder) / "index", [str(path)], SPEC)
        found = qualities(index)[: len(reads)]
        index.verify()
    kept = [[(a, b) for a, b in one if a not in "-. \t"] for one in pairs]
    assert found == ["".join(b for _, b in one).encode() for one in kept]
