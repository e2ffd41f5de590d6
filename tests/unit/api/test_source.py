"""Files and pairs of name and sequence as input."""

from pathlib import Path

import pytest

from virnucpro.api.source import input_files
from virnucpro.errors import InputError, UsageError
from virnucpro.sequences.records import read_records


class Seq:
    """Like a sequence of Biopython."""

    def __bytes__(self):
        return b"ttt"


@pytest.mark.parametrize(
    ("source", "paths"),
    [
        ("a.fa", ("a.fa",)),
        (Path("a.fa"), ("a.fa",)),
        ("-", ("-",)),
        (["a.fa", Path("b.fa")], ("a.fa", "b.fa")),
        (("a.fa", "b.fa"), ("a.fa", "b.fa")),
        ((name for name in ["a.fa"]), ("a.fa",)),
    ],
)
def test_paths_are_used_as_they_are(source, paths):
    with input_files(source) as inputs:
        assert inputs.paths == paths


def test_pairs_become_a_file_with_the_same_names_and_letters():
    names = ["NA", ">x", "é|b", "a\xa0b", "名前", '"q"', "x" * 5000]
    letters = ["ACGT", b"acgu", "AC\nGT \t\r\n", Seq(), "", "NNN", "acgt" * 50_000]
    source = zip(names, letters, strict=True)
    with input_files(source) as ((path,), _):
        found = [(record.name, record.sequence) for record in read_records(path)]
    assert not Path(path).exists()
    assert [name for name, _ in found] == names
    expected = [b"ACGT", b"ACGT", b"ACGT", b"TTT", b"", b"NNN", b"ACGT" * 50_000]
    assert [sequence for _, sequence in found] == expected


def test_a_mapping_is_pairs():
    with input_files({"a": "ACGT", "b": "GG"}) as ((path,), _):
        assert [record.name for record in read_records(path)] == ["a", "b"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (3, "source must be a path, several paths, or pairs"),
        (None, "source must be a path"),
        ([], "source is empty"),
        ({}, "source is empty"),
        (["a.fa", 3], "invalid input 3"),
        ([("a", "ACGT"), "b.fa"], r"entry 2: give a pair \(name, sequence\), not 'b.fa'"),
        ([("a", "ACGT", "x")], "entry 1: give a pair"),
        ([(1, "ACGT")], "entry 1: the name must be text, not 1"),
        ([("", "ACGT")], "entry 1: the name is empty"),
        ([("a", "AC"), ("a b", "ACGT")], "entry 2: the name 'a b' has white space"),
        ([("a\x1b", "ACGT")], "has white space or control characters"),
        ([("a\u2028b", "ACGT")], "has white space or control characters"),
        ([("\ud800", "ACGT")], "is not valid Unicode"),
        ([("a", 3)], "entry 1: the sequence must be text or bytes, not 3"),
        ([("a", None)], "the sequence must be text or bytes"),
    ],
)
def test_other_sources_are_refused(source, message, own_temporary_folder):
    with pytest.raises(UsageError, match=message), input_files(source):
        pass
    assert list(own_temporary_folder.iterdir()) == []


@pytest.mark.parametrize("letters", ["AC>GT", "ACGT\n>b\nACGT", "ACXé"])
def test_letters_are_checked_by_the_reader_of_files(letters):
    with (
        pytest.raises(InputError, match=r"^source: record 2 \(a\): '.' .*is not a nucleotide"),
        input_files([("first", "ACGT"), ("a", letters)]) as ((path,), _),
    ):
        list(read_records(path))
