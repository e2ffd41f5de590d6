import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import threading
import tracemalloc
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import run_captured
from xopen import xopen

from virnucpro.errors import InputError
from virnucpro.sequences import entries
from virnucpro.sequences.entries import Entry, split_fasta, split_fastq
from virnucpro.sequences.mates import JOINT, read_pairs
from virnucpro.sequences.records import (
    Alphabet,
    Record,
    line_of_letter,
    one_by_one,
    read_groups,
    read_records,
)

TWO = b">one first\nACGT\nAC\n>two\nGGG\n"
TWO_RECORDS = [Record("one", b"ACGTAC"), Record("two", b"GGG")]


@pytest.fixture
def read(tmp_path):
    def read_content(content, alphabet=Alphabet.NUCLEOTIDE, **options):
        path = tmp_path / "input"
        path.write_bytes(content)
        return list(read_records(str(path), alphabet, **options))

    return read_content


QUALITIES = b"!I~5@+>-"


def fastq(*records):
    texts = (b"@%s\n%s\n+\n%s\n" % (n, s, QUALITIES[: len(s)]) for n, s in records)
    return b"".join(texts)


def read_of(name, sequence):
    return Record(name, sequence, qualities=QUALITIES[: len(sequence)])


LEGAL = {
    "plain": (TWO, TWO_RECORDS),
    "lower case": (b">a\nacGtryn\n", [Record("a", b"ACGTRYN")]),
    "all IUPAC letters": (b">a\nACGTRYKMSWBDHVN\n", [Record("a", b"ACGTRYKMSWBDHVN")]),
    "uracil": (b">a\nAUGu\n", [Record("a", b"ATGT")]),
    "Windows line ends": (TWO.replace(b"\n", b"\r\n"), TWO_RECORDS),
    "old Macintosh line ends": (TWO.replace(b"\n", b"\r"), TWO_RECORDS),
    "mixed line ends": (b">one first\r\nACGT\rAC\n>two\rGGG\r\n", TWO_RECORDS),
    "blank lines": (b"\n\n" + TWO.replace(b"\n", b"\n\n"), TWO_RECORDS),
    "white space in lines": (b">a\n ACGT ACGT\t\n  TT\n", [Record("a", b"ACGTACGTTT")]),
    "byte order mark": (b"\xef\xbb\xbf" + TWO, TWO_RECORDS),
    "no final line end": (TWO[:-1], TWO_RECORDS),
    "repeated names": (b">a\nA\n>a\nA\n", [Record("a", b"A"), Record("a", b"A")]),
    "empty records": (b">a\n>b\n\n>c", [Record("a", b""), Record("b", b""), Record("c", b"")]),
    "no name": (b">\nACGT\n> \t\nTT\n", [Record("unnamed_1", b"ACGT"), Record("unnamed_2", b"TT")]),
    "space before the name": (b"> a b\nACGT\n", [Record("a", b"ACGT")]),
    "tab in the header": (b">a\tb c\nACGT\n", [Record("a", b"ACGT")]),
    "unicode": (">Flügel\u00a0\u03b1 \u03b2\nAC\n".encode(), [Record("Flügel\u00a0\u03b1", b"AC")]),
    "Latin-1": (">Flügel x\nAC\n".encode("latin-1"), [Record("Flügel", b"AC")]),
    "unicode before a line end": (">à\nAC\n".encode(), [Record("à", b"AC")]),
    "long header": (b">" + b"x" * 10_000 + b"\nAC\n", [Record("x" * 10_000, b"AC")]),
    "header of 1 MB": (
        b">x " + b"y" * 1_000_000 + b"\nAC\n>z\nG\n",
        [Record("x", b"AC"), Record("z", b"G")],
    ),
    "greater-than in a header": (b">a>b >\nA\n>d\nG\n", [Record("a>b", b"A"), Record("d", b"G")]),
    "empty": (b"", []),
    "blank": (b"\n \r\n\t\n", []),
    "one byte": (b">", [Record("unnamed_1", b"")]),
    "FASTQ": (fastq((b"r x", b"AC"), (b"s", b"nu")), [read_of("r", b"AC"), read_of("s", b"NT")]),
    "FASTQ with Windows line ends": (
        fastq((b"r", b"ACGT"), (b"s", b"G")).replace(b"\n", b"\r\n"),
        [read_of("r", b"ACGT"), read_of("s", b"G")],
    ),
    "FASTQ between blank lines": (
        b"\n\n" + fastq((b"r", b"AC")) + b"\n\n\n",
        [read_of("r", b"AC")],
    ),
    "FASTQ without final line end": (fastq((b"r", b"AC"))[:-1], [read_of("r", b"AC")]),
    "FASTQ with an empty read": (
        fastq((b"r", b""), (b"s", b"A"), (b"t", b"")),
        [read_of("r", b""), read_of("s", b"A"), read_of("t", b"")],
    ),
    "FASTQ with an empty read at the end": (fastq((b"r", b"")) + b"\n\n", [read_of("r", b"")]),
    "FASTQ in unicode": (fastq(("\u03b1\x1a61".encode(), b"A")), [read_of("\u03b1\x1a61", b"A")]),
    "FASTQ that repeats its header": (b"@r 1\nAC\n+r 1\n!I\n", [read_of("r", b"AC")]),
    "FASTQ with white space": (b"@r\n A C\t\n+\n1234 \n", [Record("r", b"AC", 0, "", b"24")]),
    "FASTQ with qualities that look like records": (
        b"@r\nAC\n+\n@+\n@s\nA\n+\n@\n",
        [Record("r", b"AC", 0, "", b"@+"), Record("s", b"A", 0, "", b"@")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LEGAL)
def test_valid_input_gives_the_documented_records(case, read):
    content, records = LEGAL[case]
    assert read(content) == records


REFUSED = {
    "a protein": (b">a\nACGT\n>p x\nMKVLEQ\n", "record 2 (p): 'L'", "looks like a protein"),
    "a lower-case protein": (b">p\nmkvleq\n", "record 1 (p): 'l'", "looks like a protein"),
    "a name with control characters": (b">a\x1b[31m\nACGE\n", r"1 (a\x1b[31m): 'E'", "protein"),
    "a letter of two bytes": (">a\nACÄ\n".encode(), "'Ä' (line 2, letter 3)", "give a file"),
    "a letter of three bytes": (">a\nA☃\n".encode(), "'☃' (line 2, letter 2)", "give a file"),
    "a gap": (b">a\nAC--GT\n", "record 1 (a): '-'", "remove gaps"),
    "a stop": (b">a\nACGT*\n", "'*'", "remove gaps and stops"),
    "a digit": (b">a\n1 ACGT\n", "'1'", "give a file of nucleotide sequences"),
    "a header within a line": (b">a\nAC>b\n", "'>'", "give a file of nucleotide"),
    "a comment": (b">a\n;text\nAC\n", "';'", "give a file of nucleotide"),
    "binary data": (bytes(range(256)), "neither FASTA nor FASTQ", "give a file of sequences"),
    "binary data after a name": (b">a\n\x00\x01\x02", "'\\x00'", "give a file of nucleotide"),
    "a NUL in a name": (b">a\0b\nACGT\n", "record 1", "give a FASTA or FASTQ"),
    "UTF-16": (TWO.decode().encode("utf-16"), "neither FASTA nor FASTQ", "give a file of seq"),
    "comments before": (b";LCBO\n" + TWO, "starts with b';LCBO", "give a file of sequences"),
    "Markdown": (b"```\n" + TWO + b"```\n", "starts with b'```", "give a file of sequences"),
    "text": (b"dear diary\n", "starts with b'dear diary", "give a file of sequences"),
    "FASTQ cut short": (
        fastq((b"r", b"ACGT"))[:8],
        "a record has four lines, and the file ends there",
        "repair the file",
    ),
    "FASTQ with few qualities": (
        b"@r\nACGT\n+\nIII\n",
        "record 1 at line 1 (r): 4 letters, but 3 qualities",
        "repair the file",
    ),
    "FASTQ with another name": (b"@r\nA\n+s\nI\n", "name of another record", "repair the file"),
    "FASTQ with a blank line": (
        fastq((b"r", b"A")) + b"\n" + fastq((b"s", b"A")),
        "record 2 at line 5 (): its first line is blank; repair",
        "repair the file",
    ),
    "FASTQ with unequal bytes that are not ASCII": (
        b"@r\n\xe9AAA\n+\nIIIIII\n",
        "record 1 at line 1 (r): 4 letters, but 6 qualities",
        "repair the file",
    ),
    "FASTQ of several lines": (b"@r\nAC\nGT\n+\nII\nII\n", "has four lines", "repair the file"),
    "FASTQ with a gap": (fastq((b"r", b"A-")), "record 1 (r): '-'", "remove gaps"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_input_is_rejected_with_advice(case, read, tmp_path):
    content, what, advice = REFUSED[case]
    with pytest.raises(InputError) as refused:
        read(content)
    message = str(refused.value)
    assert message.startswith(f"{tmp_path / 'input'}: ")
    assert what in message
    assert advice in message


@pytest.mark.parametrize(
    "content",
    [
        b">%s\nACGE\n",
        b">%s\0\nACG\n",
        b"@%s\nACG\n+other\nIII\n",
        b"@%s\nACG\nIII\n",
        b"@a\nACG\n%s\nIII\n",
    ],
)
def test_long_names_are_cut_in_messages(content, read, tmp_path):
    with pytest.raises(InputError) as refused:
        read(content % (b"x" * 5_000_000))
    assert len(str(refused.value).removeprefix(str(tmp_path))) < 400


def test_records_before_an_invalid_one_are_returned(tmp_path):
    path = tmp_path / "mixed.fa"
    path.write_bytes(TWO + b">bad\nE\n")
    reader = read_records(str(path))
    assert [next(reader), next(reader)] == TWO_RECORDS
    with pytest.raises(InputError, match=r"record 3 \(bad\)"):
        next(reader)


def test_proteins_are_read_with_the_protein_alphabet(read):
    records = [Record("p", b"MKVLEQUOBZXJ")]
    assert read(b">p\nmkvleq\nUOBZXJ\n", Alphabet.PROTEIN) == records
    assert read(b">p\nMKVL\nAC*\n\n>q\n*\n", Alphabet.PROTEIN) == [
        Record("p", b"MKVLAC"),
        Record("q", b""),
    ]
    for inner in (b">p\nMK*VL\n", b">p\nMKVL**\n"):
        with pytest.raises(InputError, match="remove gaps and stops"):
            read(inner, Alphabet.PROTEIN)


LENIENT = {
    "gaps": (b">g\nAC-GT\n..acu\n", [Record("g", b"ACGTACT", 3)]),
    "only gaps": (b">g\n---\n", [Record("g", b"", 3)]),
    "a protein": (b">p\nMKVL-\n>a\nAC\n", [Record("p", b"MKVL", 1, "'L'"), Record("a", b"AC")]),
    "other bytes": (b">p\nac>\x00\xe9*;\n", [Record("p", b"AC???*?", 0, "'>'")]),
    "FASTQ": (fastq((b"r", b"A-E")), [Record("r", b"AE", 1, "'E'", b"!~")]),
    "FASTQ with gaps": (
        fastq((b"r", b"-A.C- "), (b"s", b"GG")),
        [Record("r", b"AC", 3, "", b"I5"), Record("s", b"GG", 0, "", b"!I")],
    ),
    "FASTQ with only gaps": (fastq((b"r", b"--")), [Record("r", b"", 2, "", b"")]),
}


@pytest.mark.parametrize("case", LENIENT)
def test_trouble_is_the_records_own_unless_strict(case, read):
    content, records = LENIENT[case]
    found = read(content, strict=False)
    assert [one[:3] for one in found] == [one[:3] for one in records]
    assert [one.qualities for one in found] == [one.qualities for one in records]
    for one, wanted in zip(found, records, strict=True):
        assert one.problem.startswith(wanted.problem)
        assert bool(one.problem) == bool(wanted.problem)
    with pytest.raises(InputError):
        read(content)


def test_gaps_around_the_final_stop_of_a_protein_are_removed(read):
    found = read(b">p\n-MK.V*--\n>q\nMK*-V\n", Alphabet.PROTEIN, strict=False)
    assert found[0] == Record("p", b"MKV", 4)
    assert found[1][:3] == ("q", b"MK*V", 1)
    assert found[1].problem.startswith("'*' (letter 3) is not a protein letter")
    reads = read(fastq((b"p", b"MK*"), (b"q", b"-MK.V*-")), Alphabet.PROTEIN, strict=False)
    assert [one.qualities for one in reads] == [b"!I", b"I~@"]


@given(
    st.lists(st.binary(max_size=12).map(lambda text: text.translate(None, b">\r\n")), max_size=5)
)
def test_lenient_reading_keeps_every_record_and_letter(tmp_path_factory, bodies):
    path = tmp_path_factory.getbasetemp() / "lenient.fa"
    path.write_bytes(b"".join(b">r\n%s\n" % body for body in bodies))
    found = list(read_records(str(path), strict=False))
    for record, body in zip(found, bodies, strict=True):
        letters = body.translate(None, b" \t\v\f")
        assert record.gaps == letters.count(b"-") + letters.count(b".")
        assert len(record.sequence) + record.gaps == len(letters)
        valid = set(record.sequence) <= set(Alphabet.NUCLEOTIDE.value.encode())
        assert bool(record.problem) != valid
        assert record.sequence.isascii()
        assert record.sequence.decode().isprintable()
    troubled = any(record.gaps or record.problem for record in found)
    if troubled:
        with pytest.raises(InputError, match=r"\(line \d+, letter \d+\) is"):
            list(read_records(str(path)))
    else:
        assert list(read_records(str(path))) == found


def zst(content):
    stream = io.BytesIO()
    with xopen(stream, "wb", threads=0, format="zst") as packed:
        packed.write(content)
    return stream.getvalue()


COMPRESSIONS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zst}


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("case", ["plain", "FASTQ", "empty"])
def test_compression_is_detected_by_content(compression, case, read):
    content, records = LEGAL[case]
    assert read(COMPRESSIONS[compression](content)) == records


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst"])
def test_a_wrong_suffix_is_ignored(suffix, tmp_path):
    path = tmp_path / f"plain.fa.{suffix}"
    path.write_bytes(TWO)
    assert list(read_records(str(path))) == TWO_RECORDS


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("size", [1, 5, 1 << 20])
def test_all_members_of_a_compressed_file_are_read(compression, size, read, monkeypatch):
    monkeypatch.setattr(entries, "_BLOCK_BYTES", size)
    packed = [COMPRESSIONS[compression](part) for part in (TWO[:7], TWO[7:], b"")]
    assert read(b"".join(packed)) == TWO_RECORDS
    if compression == "xz":  # streams may be padded
        assert read((b"\0" * 4).join([*packed, b""])) == TWO_RECORDS


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_damaged_header_of_a_later_member_is_rejected(compression, read):
    first, second = (COMPRESSIONS[compression](part) for part in (TWO[:7], TWO[7:]))
    for rest in (b"\1" + second[1:], b"garbage", second[:-5]):
        with pytest.raises(InputError, match=rf"the {compression} data are damaged or cut off"):
            read(first + rest)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("damage", ["cut off", "overwritten"])
def test_damaged_compressed_data_are_rejected(compression, damage, read):
    content = b">a\n" + os.urandom(30_000).hex().replace("e", "a").encode() + b"\n"
    packed = COMPRESSIONS[compression](content)
    half = len(packed) // 2
    packed = packed[:half] + (b"\xff" * 200 + packed[half + 200 :] if damage[0] == "o" else b"")
    with pytest.raises(InputError, match=r"is not a nucleotide letter|damaged or cut off"):
        read(packed)


def test_a_truncated_gzip_file_is_rejected(read):
    packed = gzip.compress(b">a\n" + b"ACGT" * 5000)
    with pytest.raises(
        InputError, match=r"gz data are damaged or cut off .*download the file again"
    ):
        read(packed[:-12])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("absent.fa", r"absent\.fa: the file cannot be opened \(No such file"),
        ("", r"this is a directory; name its files, for example .*\*\.fa"),
        ("/dev/zero", "neither FASTA nor FASTQ"),
    ],
    ids=["missing", "a folder", "an endless device"],
)
def test_a_path_that_is_no_file_of_sequences_is_rejected_at_once(tmp_path, name, message):
    with pytest.raises(InputError, match=message):
        next(read_records(str(tmp_path / name)))


def test_an_unreadable_file_is_reported_with_its_name(tmp_path):
    path = tmp_path / "secret.fa"
    path.write_bytes(TWO)
    path.chmod(0)
    # Root can read every file, so the child changes its user.
    script = """
import os, sys
from virnucpro.sequences.records import read_records
if os.geteuid() == 0:
    os.setuid(65534)
next(read_records(sys.argv[1]))
"""
    child = run_captured(sys.executable, "-c", script, path)
    assert f"InputError: {path}: the file cannot be opened (Permission denied)" in child.stderr


@pytest.mark.parametrize("packed", [TWO, gzip.compress(TWO)], ids=["plain", "gz"])
def test_standard_input_can_be_a_pipe(packed):
    script = "from virnucpro.sequences.records import *; print(list(read_records('-')))"
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    child.stdin.write(packed[:1])
    child.stdin.flush()
    output, _ = child.communicate(packed[1:])
    assert output.decode().strip() == str(TWO_RECORDS)


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12)
contents = st.lists(
    st.tuples(names, st.lists(st.text("ACGTN", max_size=9), max_size=4)), max_size=6
)
sizes = st.integers(1, 17)


def test_what_follows_a_blank_line_of_fastq_is_not_read_into_memory():
    blocks = iter([fastq((b"r", b"A")), b"\n", *[b"A" * (1 << 20)] * 64])
    with pytest.raises(InputError, match=r"record 2 at line 5 .*blank"):
        list(split_fastq(blocks, "a.fq"))
    assert len(list(blocks)) > 32


def in_blocks(content, size):
    return (content[i : i + size] for i in range(0, len(content), size))


@given(contents, sizes, st.sampled_from(["\n", "\r\n", "\r"]))
def test_fasta_records_do_not_depend_on_the_block_size(records, size, end):
    content = "".join(">" + end.join([name, *lines]) + end for name, lines in records).encode()
    split = [
        (header.decode(), "".join(body.decode().split()))
        for header, body, *_ in split_fasta(in_blocks(content, size), "a")
    ]
    assert split == [(name, "".join(lines)) for name, lines in records]


@given(contents, sizes, st.integers(1, 12), st.sampled_from(["\n", "\r\n", " \n"]))
def test_letters_of_a_long_record_are_counted_in_any_blocks(records, size, longest, end):
    content = "".join(">" + end.join([name, *lines]) + end for name, lines in records).encode()
    found = list(split_fasta(in_blocks(content, size), "a", longest))
    lengths = [sum(map(len, lines)) for _, lines in records]
    for entry, length in zip(found, lengths, strict=True):
        assert len(b"".join(entry.body.split())) + entry.dropped == length
        assert length > longest or not entry.dropped


reads = st.lists(st.tuples(names, st.text("ACGTN", max_size=9)), min_size=1, max_size=6)


@given(reads, sizes)
def test_fastq_records_do_not_depend_on_the_block_size(records, size):
    content = "".join(f"@{n}\n{s}\n+\n{'I' * len(s)}\n" for n, s in records).encode()
    split = []
    for found in split_fastq(in_blocks(content, size), "a"):
        split += [found] if isinstance(found, Entry) else map(Entry, *found)
    assert split == [Entry(n.encode(), s.encode(), b"I" * len(s)) for n, s in records]


odd_names = names | st.sampled_from(
    [
        "",
        " ",
        "=x",
        "%41",
        "track1",
        "unnamed_3",
        "a\tb",
        "a\0",
        "a\x1b",
        "x/1",
        "x/2",
        "x.1",
        "x.2",
    ]
)
odd_reads = st.tuples(
    odd_names,
    st.text("ACGTN", max_size=9) | st.text("ACGTNacgu-. E*\t\r", max_size=9),
    st.sampled_from(["+"] * 8 + ["+x", "", "+{}"]),
    st.sampled_from([0] * 15 + [1]),
    st.sampled_from(["\n"] * 8 + ["\r\n", "\n\n"]),
)


def fastq_of(odd):
    lines = ([f"@{n}", s, plus.format(n), "I" * (len(s) + more)] for n, s, plus, more, _ in odd)
    return "".join(end.join([*four, ""]) for four, (*_, end) in zip(lines, odd, strict=True))


def outcome(records):
    found = []
    try:
        found.extend(records)
    except InputError as error:
        found.append(str(error))
    return found


@given(
    st.lists(odd_reads, max_size=8),
    st.lists(odd_reads, max_size=8),
    st.integers(0, 3),
    st.sampled_from([9, 40, 200]),
    st.sampled_from([3, 1000]),
    st.booleans(),
)
def test_blocks_of_reads_give_what_single_lines_give(
    tmp_path_factory, first, second, cut, block, longest, strict
):
    base = tmp_path_factory.getbasetemp()
    paths = [str(base / name) for name in ("first.fq", "second.fq")]
    for path, odd in zip(paths, (first, second), strict=True):
        text = fastq_of([("a", "AC", "+", 0, "\n"), *odd])
        Path(path).write_bytes(text[: len(text) - cut].encode())

    def read(path):
        return read_groups(path, Alphabet.NUCLEOTIDE, strict=strict, longest=longest)

    def outcomes():
        single = [outcome(one_by_one(read(path))) for path in paths]
        pairs = [outcome(one_by_one(read_pairs(given, read))) for given in (paths, paths[:1])]
        return [*single, *pairs]

    with patch.object(entries, "_BLOCK_BYTES", block):
        found = outcomes()
        with patch.object(entries, "_plain_reads", return_value=(None, 0)):
            assert found == outcomes()


def test_plain_reads_are_read_in_blocks(tmp_path):
    for name in ("a.fq", "b.fq"):
        (tmp_path / name).write_bytes(fastq((b"r x", b"acgu"), (b"s", b"")) * 100)
    paths = [str(tmp_path / "a.fq"), str(tmp_path / "b.fq")]

    def read(path):
        return read_groups(path, Alphabet.NUCLEOTIDE, strict=True, longest=10)

    (group,) = read(paths[0])
    assert group == ([b"r", b"s"] * 100, [b"ACGT", b""] * 100, [QUALITIES[:4], b""] * 100, [])
    (pairs,) = read_pairs(paths, read)
    assert pairs.names == group.names
    assert pairs.sequences[0] == b"ACGT" + JOINT + b"ACGT"
    assert pairs.mates == [4, 0] * 100


LETTERS = 20 << 20
# start, one MiB of letters, end
BOMBS = [
    (b">a b\n", b"A" * (1 << 20), b""),
    (b">a\n", b"A\n" * (1 << 20), b""),
    (b"@a\n", b"A" * (1 << 20), b"\n+\n" + b"I" * LETTERS),
]


@pytest.mark.parametrize(("start", "piece", "end"), BOMBS)
def test_a_long_record_has_a_length_and_does_not_fill_the_memory(tmp_path, start, piece, end):
    path, longest = tmp_path / "bomb.gz", 1_000_000
    short = b">b\nAC\n" if start[:1] == b">" else b"@b\nAC\n+\nII\n"
    with gzip.open(path, "wb", 1) as stream:
        stream.write(short + start)
        for _ in range(LETTERS >> 20):
            stream.write(piece)
        stream.write(end + b"\n" + short)
    tracemalloc.start()
    found = list(read_records(str(path), strict=False, longest=longest))
    with pytest.raises(InputError, match=r"record 2 \(a\) has more than 1,000,000 letters; split"):
        list(read_records(str(path), longest=longest))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * longest < LETTERS
    assert [(one.name, one.sequence, one.too_long) for one in found] == [
        ("b", b"AC", 0),
        ("a", b"", LETTERS),
        ("b", b"AC", 0),
    ]


@pytest.mark.parametrize("content", [b">a\nACG\nTA\n", b"@a\nACGTA\n+\nIIIII\n"])
def test_the_limit_of_a_record_counts_its_letters(read, content):
    assert [one.sequence for one in read(content, longest=5)] == [b"ACGTA"]
    (found,) = read(content, longest=4, strict=False)
    assert (found.sequence, found.too_long) == (b"", 5)
    with pytest.raises(InputError, match=r"record 1 \(a\) has more than 4 letters"):
        read(content, longest=4)


def test_a_final_stop_is_no_letter_of_the_limit(read):
    assert read(b">a\nMKV*\n", Alphabet.PROTEIN, longest=3) == [Record("a", b"MKV")]


def test_a_header_of_more_than_16_mib_is_rejected():
    with pytest.raises(InputError, match="header is longer than 16 MiB"):
        list(split_fasta(iter([b">" + b"x" * (1 << 20)] * 20), "a"))


# --- lines of letters


some_lines = st.lists(st.text("ACGT \t", max_size=6), max_size=4)


@given(
    st.lists(st.tuples(some_lines, some_lines), min_size=1, max_size=4),
    st.data(),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.sampled_from(["", "\ufeff", "\n\n", "\n  "]),
    st.sampled_from([bytes, gzip.compress]),
)
def test_the_line_of_an_invalid_letter_is_that_of_an_editor(
    tmp_path_factory, records, data, end, start, pack
):
    number = data.draw(st.integers(1, len(records)))
    written = [start]
    for record, (before, after) in enumerate(records, 1):
        bad = ["ACE"] if record == number else []
        written += [f">r{record}{end}", *(line + end for line in (*before, *bad, *after))]
    text = "".join(written)
    path = tmp_path_factory.getbasetemp() / "some_lines.fa"
    path.write_bytes(pack(text.encode()))
    wanted = [line.strip() for line in text.replace(end, "\n").split("\n")].index("ACE") + 1
    with pytest.raises(InputError, match=rf"record {number} \(r{number}\): 'E' \(line {wanted}, l"):
        list(read_records(str(path)))


def test_fastq_has_four_lines_a_record(tmp_path):
    path = tmp_path / "in.fq"
    path.write_bytes(b"\n" + b"@a\nAC\n+\nII\n" * 2 + b"@b\nAE\n+\n@I\n")
    assert line_of_letter(str(path), 3, 2) == 11


def test_a_pipe_has_no_lines(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path / "absent", "-"):
        assert line_of_letter(str(path), 1, 1) is None


@pytest.mark.timeout(60)
@pytest.mark.parametrize("n_pairs", [1, 3_000])
@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_two_pipes_may_have_one_writer(n_pairs, order, tmp_path):
    """Both must be open before it writes, and it writes to each in turn, a page at a time."""
    paths = [tmp_path / "R1", tmp_path / "R2"]
    for path in paths:
        os.mkfifo(path)
    mates = [b"@r%d\n%s\n+\n%s\n" % (pair, b"ACGTT" * 30, b"I" * 150) for pair in range(n_pairs)]

    def write():
        with ExitStack() as stack:
            streams = [stack.enter_context(paths[number].open("wb")) for number in order]
            for mate in mates:
                for stream in streams:
                    stream.write(mate)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    read = partial(read_groups, alphabet=Alphabet.NUCLEOTIDE, strict=False, longest=1_000)
    found = one_by_one(read_pairs([str(path) for path in paths], read))
    assert [record.name for record in found] == [f"r{pair}" for pair in range(n_pairs)]
    thread.join()


def test_fastq_may_end_with_white_space(tmp_path):
    path = tmp_path / "in.fq"
    path.write_bytes(fastq((b"r", b"ACGT")) + b" \n\t\n")
    assert [record.name for record in read_records(str(path))] == ["r"]
