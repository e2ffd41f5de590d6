"""Reads of SAM, BAM and CRAM files."""

import bz2
import gzip
import io
import lzma
import re
import sys
from pathlib import Path

import pysam
import pytest

from virnucpro.errors import InputError, UsageError
from virnucpro.sequences.entries import OpenInput
from virnucpro.sequences.mates import JOINT, read_pairs
from virnucpro.sequences.records import read_records
from virnucpro.sequences.translation import reverse_complement

HEADER = "@HD\tVN:1.6\tSO:unsorted\n@SQ\tSN:chr\tLN:1000\n"
READS = {"a": b"ACGTTGCAGA", "b": b"GGGTTCATAC", "c": b"TTGCATTACA", "d": b"CATTAGAGAC"}
QUALITIES = b"!+5?IIIIH~"


def line(name, flag, bases=None):
    bases = READS[name] if bases is None else bases
    letters, marks = (
        (reverse_complement(bases), QUALITIES[::-1]) if flag & 16 else (bases, QUALITIES)
    )
    place = "*\t0\t0\t*" if flag & 4 else f"chr\t5\t60\t{len(bases)}M"
    return f"{name}\t{flag}\t{place}\t*\t0\t0\t{letters.decode()}\t{marks.decode()}\n"


def written(tmp_path, kind, lines, header=HEADER):
    text = tmp_path / "reads.sam"
    text.write_text(header + "".join(lines))
    if kind == "sam":
        return str(text)
    path = tmp_path / "reads"  # the content decides
    with (
        pysam.AlignmentFile(str(text), "r", check_sq=False) as source,
        pysam.AlignmentFile(
            str(path), {"bam": "wb", "cram": "wc"}[kind], template=source
        ) as target,
    ):
        for read in source:
            target.write(read)
    return str(path)


@pytest.mark.parametrize("kind", ["sam", "bam", "cram"])
def test_each_read_is_given_once_as_it_was_sequenced(kind, tmp_path):
    unaligned = [line("a", 4), line("b", 4 | 1 | 64), line("b", 4 | 1 | 128, READS["c"])]
    aligned = [line("c", 16), line("c", 256), line("c", 2048 | 16), line("d", 0)]
    lines = unaligned + ([] if kind == "cram" else aligned)  # which needs the reference
    found = list(read_records(written(tmp_path, kind, lines)))
    names = {"a": "a", "b/1": "b", "b/2": "c", **({} if kind == "cram" else {"c": "c", "d": "d"})}
    assert [one.name for one in found] == list(names)
    for one in found:
        assert one.sequence == READS[names[one.name]]
        assert one.qualities == QUALITIES


@pytest.mark.parametrize("kind", ["sam", "bam"])
def test_reads_on_both_strands_without_qualities_or_letters(kind, tmp_path):
    bare = [line(name, flag) for name, flag in [("a", 0), ("b", 16), ("c", 4)]]
    lines = [text.rpartition("\t")[0] + "\t*\n" for text in bare]
    lines += [f"none\t{flag}\tchr\t5\t60\t*\t*\t0\t0\t*\t*\n" for flag in (0, 16)]
    found = list(read_records(written(tmp_path, kind, lines)))
    assert [one.sequence for one in found] == [READS["a"], READS["b"], READS["c"], b"", b""]
    assert {one.qualities for one in found} == {None}


def test_a_sam_file_without_a_header_is_recognised_by_its_name(tmp_path):
    path = written(tmp_path, "sam", [line("a", 4)], header="")
    assert [one.sequence for one in read_records(path)] == [READS["a"]]


def test_mates_of_a_collated_file_are_joined(tmp_path):
    lines = [line("b", 1 | 128 | 4, READS["c"]), line("b", 1 | 64 | 16), line("d", 4)]
    pair, single = read_pairs([written(tmp_path, "bam", lines)])
    assert (pair.name, pair.mate, single.name, single.mate) == ("b", 10, "d", 10)
    assert pair.sequence == READS["b"] + JOINT + reverse_complement(READS["c"])
    assert single.sequence == READS["d"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            [line("a", 1 | 64 | 4), line("b", 1 | 64 | 4), line("a", 1 | 128 | 4)],
            r"records 1 and 2: the names a/1 and b/1 are not .* \(samtools collate",
        ),
        (
            [line("d", 4), line("a", 1 | 64 | 4)],
            r"record 2 \(a/1\) has no mate.* \(samtools collate",
        ),
    ],
)
def test_mates_apart_are_refused(lines, message, tmp_path):
    with pytest.raises(InputError, match=message):
        list(read_pairs([written(tmp_path, "bam", lines)]))


@pytest.mark.parametrize("module", [bz2, lzma])
def test_sam_that_pysam_cannot_decompress_is_refused(module, tmp_path):
    path = tmp_path / "reads.sam.packed"
    path.write_bytes(module.compress((HEADER + line("a", 4)).encode()))
    with pytest.raises(InputError, match=r"compressed with gzip only, not .*; decompress"):
        list(read_records(str(path)))


def test_bam_in_plain_gzip_is_refused(tmp_path):
    path = Path(written(tmp_path, "bam", [line("a", 4)]))
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())))  # no blocks of BGZF
    with pytest.raises(InputError, match=r"the alignments cannot be read .*give FASTQ"):
        list(read_records(str(path)))


def test_cram_that_is_cut_between_containers_is_refused(tmp_path):
    path = Path(written(tmp_path, "cram", [line("a", 4)]))
    path.write_bytes(path.read_bytes()[:-38])  # the last container has no reads
    with pytest.raises(InputError, match="no container that ends CRAM; the file is probably cut"):
        list(read_records(str(path)))


def test_files_that_cannot_be_read_are_refused(tmp_path, monkeypatch):
    path = written(tmp_path, "bam", [line("a", 4)] * 5000)
    content = Path(path).read_bytes()
    with pytest.raises(InputError, match="source: alignments can be read from a file on disk only"):
        list(read_records(OpenInput("source", io.BytesIO(content))))
    (tmp_path / "cut.bam").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"cut\.bam: the .* (cannot be read|damaged or cut off)"):
        list(read_records(str(tmp_path / "cut.bam")))
    monkeypatch.setitem(sys.modules, "pysam", None)
    monkeypatch.setattr("virnucpro.extras.find_spec", lambda _: None)
    advice = re.escape("pip install 'virnucpro[bam]'")
    with pytest.raises(UsageError, match=f"a SAM, BAM or CRAM file needs pysam: {advice}"):
        list(read_records(path))
