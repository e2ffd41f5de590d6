"""Blocks of whole records: whatever the size, they have the records of the file."""

import gzip
import io
import os
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import QUICK

from virnucpro.errors import InputError, UsageError
from virnucpro.sequences.entries import OpenInput
from virnucpro.sequences.mates import read_pairs
from virnucpro.sequences.records import Alphabet, one_by_one, read_groups, read_records
from virnucpro.sequences.scan import scan

LETTERS = st.text("ACGTN", max_size=30)
NAMES = st.text("ab>@+ \t", max_size=5)
SIZES = st.sampled_from([1, 7, 20, 60, 1 << 20])


def records_of(path, **options):
    try:
        return [*read_records(str(path), strict=False, **options)]
    except InputError as error:
        return str(error)


def records_of_blocks(inputs, folder, n_bytes, pairs=None):
    """Return the records of all blocks, read one block after the other, or the error."""
    found = []
    try:
        blocks = scan([*map(str, inputs)], pairs, folder, n_bytes)
        for block in blocks.blocks:
            parts, n_before = blocks.parts(block), len(found)
            if pairs:
                found += read_pairs(parts, lambda path: read_records(path, strict=False))
            else:
                found += read_records(parts[0], strict=False)
            assert len(found) - n_before == block.n_records
    except InputError as error:
        return str(error)
    return found


def check(text, n_bytes):
    with tempfile.TemporaryDirectory(dir=QUICK) as folder:
        path = Path(folder) / "x"
        path.write_bytes(text)
        assert records_of_blocks([path], Path(folder), n_bytes) == records_of(path)


@given(
    records=st.lists(st.tuples(NAMES, st.lists(LETTERS, max_size=4)), max_size=12),
    end=st.sampled_from(["\n", "\r\n", "\r", "\n\n"]),
    start=st.sampled_from(["", "\ufeff", " \n", "\n\t\n"]),
    n_bytes=SIZES,
)
def test_blocks_of_fasta_have_the_records_of_the_file(records, end, start, n_bytes):
    text = start + "".join(f">{name}{end}" + end.join([*lines, ""]) for name, lines in records)
    check(text.encode(), n_bytes)
    check(text.removesuffix(end).encode(), n_bytes)


@given(
    records=st.lists(st.tuples(NAMES, LETTERS, st.booleans()), max_size=12),
    end=st.sampled_from(["\n", "\r\n"]),
    rest=st.sampled_from(["", "\n", " \n\n", "@x\nACG\n+\n", "junk\n", "\n@x\nA\n+\n!\n"]),
    n_bytes=SIZES,
)
def test_blocks_of_fastq_have_the_records_of_the_file(records, end, rest, n_bytes):
    text = "".join(
        f"@{name}{end}{letters}{end}+{name * twice}{end}{'@' * len(letters)}{end}"
        for name, letters, twice in records
    )
    check(f"{text}{rest}".encode(), n_bytes)
    check(text.removesuffix(end).encode(), n_bytes)


@given(text=st.text(">@+\n\r A-C", max_size=60), n_bytes=SIZES)
def test_blocks_of_any_text_have_the_records_or_the_error_of_the_file(text, n_bytes):
    check(text.encode(), n_bytes)
    check(f">a\n{text}".encode(), n_bytes)


@pytest.mark.parametrize("n_bytes", [1, 50, 1 << 20])
@pytest.mark.parametrize(("of_first", "of_second"), [(9, 9), (9, 8), (7, 9), (0, 1), (0, 0)])
def test_mates_in_two_files_are_cut_at_equal_numbers(of_first, of_second, n_bytes, tmp_path):
    paths = []
    for mate, number in ((1, of_first), (2, of_second)):
        paths.append(tmp_path / f"{mate}.fq.gz")
        reads = "".join(
            f"@r{n}/{mate}\n{'ACGT' * (n * mate)}\n+\n{'IIII' * (n * mate)}\n"
            for n in range(number)
        )
        paths[-1].write_bytes(gzip.compress(reads.encode()))
    try:
        wanted = [*read_pairs([*map(str, paths)], lambda path: read_records(path, strict=False))]
    except InputError as error:
        wanted = str(error)
    assert records_of_blocks(paths, tmp_path, n_bytes, "files") == wanted


@pytest.mark.parametrize("number", [8, 7, 1, 0])
@pytest.mark.parametrize("n_bytes", [1, 50, 1 << 20])
def test_interleaved_mates_stay_together(number, n_bytes, tmp_path):
    path = tmp_path / "both.fa"
    path.write_text("".join(f">r{n // 2}/{n % 2 + 1}\n{'ACGT' * n}\n" for n in range(number)))
    try:
        wanted = [*read_pairs([str(path)], lambda path: read_records(path, strict=False))]
    except InputError as error:
        wanted = str(error)
    assert records_of_blocks([path], tmp_path, n_bytes, "interleaved") == wanted


def test_errors_have_the_line_and_record_in_the_file(tmp_path):
    path = tmp_path / "x.fa"
    path.write_text("".join(f">r{n}\nACGT\nAC{'E' if n == 5 else 'G'}T\n" for n in range(9)))
    blocks = scan([str(path)], None, tmp_path, 30)
    options = {"alphabet": Alphabet.NUCLEOTIDE, "strict": True, "longest": 1000}
    read = [
        lambda part=part: [*one_by_one(read_groups(part, **options))]
        for block in blocks.blocks
        for part in blocks.parts(block)
    ]
    with pytest.raises(InputError) as wanted:
        [*one_by_one(read_groups(str(path), **options))]
    with pytest.raises(InputError) as found:
        [part() for part in read]
    assert str(found.value) == str(wanted.value)
    assert "record 6 (r5): 'E' (line 18, letter 7)" in str(found.value)


def test_the_digest_is_that_of_the_plain_text(tmp_path):
    text = b">a\nACGT\n>b\nAC\n"
    (tmp_path / "a.fa").write_bytes(text)
    (tmp_path / "b.fa").write_bytes(gzip.compress(text))
    (tmp_path / "c.fa").write_bytes(text + b"\n")
    inputs = [str(tmp_path / name) for name in ("a.fa", "b.fa", "c.fa")]
    files = scan([*inputs, OpenInput("open", io.BytesIO(text))], None, tmp_path).files
    assert len({file.sha256 for file in files[:2] + files[3:]}) == 1
    assert files[2].sha256 != files[0].sha256
    assert [file.n_bytes for file in files] == [14, 14, 15, 14]
    assert files[0].text == inputs[0]
    assert files[1].text != inputs[1]


def test_two_pipes_of_one_writer_are_read_at_the_same_time(tmp_path):
    pipes = [tmp_path / "1", tmp_path / "2"]
    for pipe in pipes:
        os.mkfifo(pipe)

    def write():
        with pipes[0].open("w") as first, pipes[1].open("w") as second:
            for number in range(6000):
                for stream in (first, second):
                    stream.write(f"@r{number}\n{'ACGT' * 40}\n+\n{'IIII' * 40}\n")

    writer = threading.Thread(target=write)
    writer.start()
    found = records_of_blocks(pipes, tmp_path, 1 << 18, "files")
    writer.join()
    assert len(found) == 6000


def test_changed_and_lost_inputs_are_errors(tmp_path):
    path = tmp_path / "x.fa"
    path.write_text(">a\nACGT\n>b\nACGT\n")
    blocks = scan([str(path)], None, tmp_path, 1)
    path.write_text(">a\nACGT\n>b\nAC")
    with pytest.raises(InputError, match="shorter than before"):
        blocks.parts(blocks.blocks[1])
    path.unlink()
    with pytest.raises(InputError, match="cannot be read again"):
        blocks.parts(blocks.blocks[0])
    with pytest.raises(UsageError, match="standard input can be read only once"):
        scan(["-", "-"], None, tmp_path)
