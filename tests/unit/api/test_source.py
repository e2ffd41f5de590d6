"""Files and pairs of name and sequence as input."""

import gzip
import io
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import virnucpro
from virnucpro.api.source import input_files, inputs_from
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
    with inputs_from(source) as inputs:
        assert inputs == paths


def test_pairs_become_a_file_with_the_same_names_and_letters():
    names = ["NA", ">x", "é|b", "a\xa0b", "名前", '"q"', "x" * 5000]
    letters = ["ACGT", b"acgu", "AC\nGT \t\r\n", Seq(), "", "NNN", "acgt" * 50_000]
    source = zip(names, letters, strict=True)
    with inputs_from(source) as inputs:
        with input_files(inputs) as ((path,), _):
            found = [(record.name, record.sequence) for record in read_records(path)]
        assert not Path(path).exists()
    assert [name for name, _ in found] == names
    expected = [b"ACGT", b"ACGT", b"ACGT", b"TTT", b"", b"NNN", b"ACGT" * 50_000]
    assert [sequence for _, sequence in found] == expected


def read(source):
    with inputs_from(source) as (stream,):
        return [(record.name, record.sequence.decode()) for record in read_records(stream)]


def objects(**fields):
    return [
        SimpleNamespace(**dict(zip(fields, one, strict=True)))
        for one in zip(*fields.values(), strict=True)
    ]


NAMED, LONG = [("a", "ACGT"), ("b", "GG")], ["ACGT" * 5, "GGAT" * 5]
NAMES, LETTERS = zip(*NAMED, strict=True)
FASTA = b">a\nACGT\n>b\nGG\n"


@pytest.mark.parametrize(
    "source",
    [
        dict(NAMED),
        (one for one in NAMED),
        io.StringIO(FASTA.decode()),
        io.BytesIO(FASTA),
        io.BytesIO(gzip.compress(FASTA)),
        objects(id=NAMES, name=("x y", "z"), seq=LETTERS),
        objects(name=NAMES, sequence=LETTERS),
        {one.id: one for one in objects(id=NAMES, seq=LETTERS)},
    ],
)
def test_sequences_and_names_of_objects_and_streams(source):
    assert read(source) == NAMED


class Letters:
    """As Biopython's Seq, which has no name."""

    def __init__(self, text):
        self.text = text

    def __bytes__(self):
        return self.text.encode()


def test_sequences_without_names_are_numbered():
    for one in (LONG[0], LONG[0].encode()):
        assert read(one) == [("sequence_1", LONG[0])]
    assert read(objects(id=NAMES, seq=LETTERS)[1]) == NAMED[1:]
    for several in (LONG, [text.encode() for text in LONG], [*map(Letters, LONG)]):
        assert read(several) == [(f"sequence_{n}", text) for n, text in enumerate(LONG, 1)]


def test_tables_of_pandas(needs):
    needs("pandas")
    import pandas as pd

    table = pd.DataFrame({"name": NAMES, "sequence": LETTERS, "length": [4, 2]})
    assert read(table) == NAMED
    assert read(table.set_index("name")) == NAMED
    assert read(table.set_index("name")["sequence"]) == NAMED
    assert read(table["sequence"]) == [("0", "ACGT"), ("1", "GG")]
    with pytest.raises(UsageError, match="source has the columns name, length: rename"):
        read(table[["name", "length"]])
    for missing in (None, float("nan")):
        lacking = pd.DataFrame(
            {"name": pd.Series([NAMES[0], missing], dtype=object), "seq": LETTERS}
        )
        with pytest.raises(UsageError, match="entry 2: the name must be text, not"):
            read(lacking)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (3, "source must be a path, several paths, an open file, a sequence, or pairs"),
        (None, "source must be a path"),
        ([None], r"entry 1: give a pair \(name, sequence\)"),
        (["a.fa", 3], "invalid input 3"),
        (
            [("a", "ACGT"), "b.fa"],
            r"entry 2: give a pair \(name, sequence\), or .* name and sequence, not 'b.fa'",
        ),
        ([("a", "ACGT", "x")], "entry 1: give a pair"),
        ([(1, "ACGT")], "entry 1: the name must be text, not 1"),
        ([("", "ACGT")], "entry 1: the name is empty"),
        ([("a", "AC"), ("a b", "ACGT")], "entry 2: the name 'a b' has white space"),
        ([("a\x1b", "ACGT")], "has white space or control characters"),
        ([("a\u2028b", "ACGT")], "has white space or control characters"),
        ([("\ud800", "ACGT")], "is not valid Unicode"),
        ([("a", 3)], "entry 1: the sequence must be text or bytes, not 3"),
        ([("a", None)], "the sequence must be text or bytes"),
        ("", "source is empty text"),
        (">a\nACGT", r"source is the text of a file: give .* io[.]StringIO"),
        (("a", "ACGT" * 9), r"source is one pair \(name, sequence\): give a list"),
    ],
)
def test_other_sources_are_refused(source, message, own_temporary_folder):
    with pytest.raises(UsageError, match=message), inputs_from(source):
        pass
    assert list(own_temporary_folder.iterdir()) == []


def failing(error, n_before=1):
    yield from ((f"c{number}", "ACGT") for number in range(n_before))
    raise error


class OwnError(Exception):
    """An exception of another package, such as UndefinedSequenceError of Biopython."""


class Lazy:
    """A record whose letters are read late, such as one of a database."""

    id, seq = "lazy", property(lambda _: (_ for _ in ()).throw(OwnError("no bases")))

    def __bytes__(self):
        raise OwnError("no bases")


class Broken:
    def __iter__(self):
        raise OwnError("no bases")

    read = items = None


class BrokenFile:
    def read(self, _size):
        raise OwnError("no bases")


def paths_that_fail():
    yield "a.fa"
    raise OwnError("no bases")


@pytest.mark.parametrize(
    ("source", "place"),
    [
        (failing(OwnError("no bases")), "source, entry 2"),
        (failing(OwnError("no bases"), 0), "source, entry 1"),
        ([("a", "ACGT"), ("b", Lazy())], "source, entry 2 (b)"),
        ({"k": Lazy()}, "source, entry 1 (k)"),
        ([("a", "ACGT"), Lazy()], "source, entry 2 (lazy)"),
        (Lazy(), "source"),
        (Broken(), "source"),
        (BrokenFile(), "source"),
        (paths_that_fail(), "source"),
    ],
)
def test_an_exception_of_a_source_names_the_record_and_is_the_cause(
    source, place, own_temporary_folder
):
    with pytest.raises(InputError) as caught, inputs_from(source):
        pass
    assert str(caught.value) == (
        f"{place}: cannot be read (OwnError: no bases); repair or remove it"
    )
    assert isinstance(caught.value.__cause__, OwnError)
    assert list(own_temporary_folder.iterdir()) == []


@pytest.mark.parametrize(
    ("message", "shown"),
    [("", "ValueError"), ("a\nb", r"ValueError: a\nb"), ("\x1b[2Jx", r"ValueError: \x1b[2Jx")],
)
def test_the_message_of_a_source_is_one_safe_line(message, shown):
    with (
        pytest.raises(InputError) as caught,
        inputs_from(failing(ValueError(message))),
    ):
        pass
    assert str(caught.value) == f"source, entry 2: cannot be read ({shown}); repair or remove it"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError])
def test_a_source_may_stop_the_program(stop):
    with pytest.raises(stop), inputs_from(failing(stop())):
        pass


def test_a_genbank_file_with_a_record_without_bases(needs, tmp_path):
    """Every function with a source names the record."""
    needs("Bio")
    from Bio import SeqIO
    from Bio.Seq import Seq, UndefinedSequenceError
    from Bio.SeqRecord import SeqRecord

    dna = {"molecule_type": "DNA"}
    records = [
        SeqRecord(Seq("ATGGCC" * 60), "NC_1", annotations=dna),
        SeqRecord(Seq(None, 360), "NC_2", annotations=dna),
    ]
    text = io.StringIO()
    SeqIO.write(records, text, "genbank")
    encoder, model = "mini/nucleotide", virnucpro.load("mini")
    for function in (
        partial(virnucpro.classify, devices="cpu"),
        partial(virnucpro.classify, devices="cpu", outdir=tmp_path / "run"),
        partial(virnucpro.embed, encoder=encoder, devices="cpu"),
        lambda source: list(virnucpro.embed_iter(source, encoder)),
        model.classify,
        model.score,
        model.embed,
        lambda source: list(model.embed_iter(source)),
    ):
        with pytest.raises(InputError, match=r"^source, entry 2 \(NC_2\): ") as caught:
            function(SeqIO.parse(io.StringIO(text.getvalue()), "genbank"))
        assert isinstance(caught.value.__cause__, UndefinedSequenceError)


@pytest.mark.parametrize("letters", ["AC>GT", "ACGT\n>b\nACGT", "ACXé"])
def test_letters_are_checked_by_the_reader_of_files(letters):
    with pytest.raises(InputError, match=r"^source: record 2 \(a\): '.' .*is not a nucleotide"):
        read([("first", "ACGT"), ("a", letters)])
