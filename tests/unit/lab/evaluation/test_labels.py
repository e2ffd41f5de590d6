import gzip

import pytest

from virnucpro.errors import InputError, UsageError
from virnucpro.lab.evaluation.labels import fasta_sources, read_labels, splits_in
from virnucpro.lab.training.genomes import read_genomes

FILES = ("a.fa", "b.fa", "c.fa")


@pytest.fixture
def table(tmp_path):
    for name in FILES:
        (tmp_path / name).write_text(">one\nACGT\n")

    def write(*rows, head="file label group split kingdom record"):
        lines = ["\t".join(row.split()) for row in (head, *rows)]
        path = tmp_path / "labels.tsv"
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


def test_paths_are_relative_to_the_table_and_optional_cells_may_be_empty(table, tmp_path):
    path = table("a.fa virus Adenoviridae valid", "b.fa host Homo valid vertebrate one")
    virus, host = read_labels(path)
    assert virus.path == tmp_path / "a.fa"
    assert (virus.viral, virus.group, virus.kingdom) == (True, "Adenoviridae", "viral")
    assert virus.record is None
    assert (host.viral, host.kingdom, host.record) == (False, "vertebrate", "one")


LABELS = b"file\tlabel\tgroup\na.fa\tviral\tA\nb.fa\tnon-viral\tB\n"


@pytest.mark.parametrize(
    "content",
    [
        LABELS[:-1],
        b"\xef\xbb\xbf" + LABELS,
        LABELS.replace(b"\n", b"\r\n"),
        LABELS.replace(b"\n", b"\r"),
        LABELS.replace(b"\n", b"\n\n"),
        LABELS.replace(b"\n", b"\t\n"),
        LABELS[:-1] + b"\tmore\n",
        LABELS.replace(b"\n", b"\tx\n").replace(b"group\tx", b"group\tnote"),
        LABELS.replace(b"\tviral", b"\tViral"),
    ],
    ids=[
        *("no final line end", "byte order mark", "Windows", "old Macintosh", "blank lines"),
        *("tabs at the ends", "a further cell", "a further column", "capital letter"),
    ],
)
def test_tables_of_other_programs_are_read(content, table, tmp_path):
    path = table()
    path.write_bytes(content)
    assert [(source.path.name, source.viral, source.group) for source in read_labels(path)] == [
        ("a.fa", True, "A"),
        ("b.fa", False, "B"),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the column 'file' is missing"),
        (LABELS.replace(b"\t", b","), "the column 'file' is missing. Give a tab-separated table"),
        (LABELS.replace(b"\t", b"  "), "the column 'file' is missing"),
        (b"# labels\n" + LABELS, "the column 'file' is missing"),
        (b"PK\3\4" + bytes(99), "the column 'file' is missing"),
        (LABELS.decode().encode("utf-16"), "the table cannot be read"),
        (LABELS.replace(b"A", b"\xdc"), "the table cannot be read"),
        (gzip.compress(LABELS), "the table cannot be read"),
    ],
    ids=["empty", "commas", "spaces", "comment", "xlsx", "UTF-16", "Latin-1", "gz"],
)
def test_tables_of_another_form_are_refused_by_name(content, message, table):
    path = table()
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"labels\.tsv: {message}"):
        read_labels(path)


def test_a_split_is_selected_whatever_spaces_surround_it(table):
    path = table("a.fa viral A train", "b.fa host B train", "c.fa host C valid")
    path.write_text(path.read_text().replace("A\ttrain", "A\t train "))
    assert len(read_labels(path, "train")) == 2
    assert splits_in(path) == {"train", "valid"}


def test_one_split_is_selected(table):
    path = table("a.fa viral A valid", "b.fa non-viral B valid", "c.fa viral C train")
    assert {source.group for source in read_labels(path, "valid")} == {"A", "B"}
    assert {source.group for source in read_labels(path, "all")} == {"A", "B", "C"}
    with pytest.raises(UsageError, match=r"several splits \(train, valid\).*--split"):
        read_labels(path)
    with pytest.raises(UsageError, match="no row of split 'test'; its splits: train, valid"):
        read_labels(path, "test")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a.fa viral A", "b.fa bacterium B"], "line 3: unknown label 'bacterium'; use viral"),
        (["a.fa viral A", "nosuch.fa host B"], r"line 3: there is no file .*nosuch\.fa"),
        (["a.fa viral A", "b.fa host A"], "A: the group has both labels"),
        (["a.fa viral A", "b.fa host B", "a.fa viral A"], r"line 4: .*a\.fa is already labelled"),
        (["a.fa viral A", "b.fa host B", "a.fa viral A x x one"], r"record one of .* already"),
        (["a.fa viral A x x one", "b.fa host B", "a.fa viral A"], r"line 4: .* already labelled"),
        (["a.fa viral A", "b.fa host"], "line 3: the cell of column 'group' is empty"),
    ],
)
def test_a_bad_row_is_named(table, rows, message):
    with pytest.raises(InputError, match=message):
        read_labels(table(*rows), "all")


def test_both_labels_are_needed(table):
    with pytest.raises(UsageError, match="there are no non-viral sequences"):
        read_labels(table("a.fa viral A", "b.fa viral B"))


def test_a_missing_or_doubled_column_or_a_missing_table_is_refused(table, tmp_path):
    with pytest.raises(InputError, match="two columns are called 'label'"):
        read_labels(table("a.fa viral A phage", head="file label group label"))
    with pytest.raises(InputError, match="the column 'group' is missing"):
        read_labels(table("a.fa viral", head="file label"))
    with pytest.raises(InputError, match=r"nosuch\.tsv: the table cannot be read"):
        read_labels(tmp_path / "nosuch.tsv")


def test_a_labelled_record_that_is_not_in_its_file_is_named(table):
    sources = read_labels(table("a.fa viral A train viral one", "b.fa non-viral B train x gone"))
    with pytest.raises(InputError, match=r"line 3: .*b\.fa has no labelled sequence \(record gone"):
        read_genomes(sources, {})


def test_fasta_files_are_kingdoms_and_their_records_groups(table, tmp_path):
    table("a.fa viral A")
    packed = tmp_path / "hosts.fa.gz"
    packed.write_bytes(b"")
    virus, host = fasta_sources([tmp_path / "a.fa"], [packed])
    assert (virus.viral, virus.kingdom, virus.group) == (True, "a", None)
    assert (host.viral, host.kingdom) == (False, "hosts")
    with pytest.raises(UsageError, match="no non-viral sequences"):
        fasta_sources([packed], [])
    with pytest.raises(InputError, match="already labelled in --viral"):
        fasta_sources([packed], [packed])
