import gzip
import hashlib
import json
import shutil
import sys
import tempfile
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs import run_captured
from samples import QUICK, any_spec

from virnucpro.console import encoded_name
from virnucpro.errors import (
    IndexFormatError,
    InputError,
    RunExistsError,
    UsageError,
)
from virnucpro.sequences import builder, items
from virnucpro.sequences.builder import input_digests
from virnucpro.sequences.columns import COLUMNS, Column, index_file, read_header
from virnucpro.sequences.index import SequenceIndex, build_index
from virnucpro.sequences.input_rules import InputRules
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec, RecordStatus, fingerprint
from virnucpro.sequences.translation import FRAMES, genetic_code, peptide, reverse_complement
from virnucpro.sequences.windows import tile

SPEC = IndexSpec("frames", Alphabet.NUCLEOTIDE, 30, "published", 1)
WHOLE = IndexSpec("whole", Alphabet.NUCLEOTIDE)
PROTEINS = IndexSpec("whole", Alphabet.PROTEIN)
GENE = b"ATGGCCAAAGGTCCCTTTGCA"


def write_fasta(path, records):
    path.write_bytes(b"".join(b">%s\n%s\n" % (n.encode(), s) for n, s in records))
    return str(path)


@pytest.fixture
def build(tmp_path):
    """Build an index of records; each index has its own numbered folder."""
    numbers = iter(range(100))

    def build_records(records, spec=SPEC):
        number = next(numbers)
        path = write_fasta(tmp_path / f"{number}.fa", records)
        return build_index(tmp_path / f"index-{number}", [path], spec)

    return build_records


def items_one_by_one(records, spec):
    """Return name, bases and peptide of all items, and all statuses, by the published rule."""
    code = genetic_code(spec.genetic_code)
    found, status = [], []
    for name, sequence in records:
        frames_before, codons = len(found), 0
        starts, ends = tile(len(sequence), spec.window, spec.tiling)
        for k, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
            window = sequence[start:end]
            for number, frame in enumerate(FRAMES):
                strand = window if number < 3 else reverse_complement(window)
                codons += len(peptide(strand[number % 3 :], code))
                residues = peptide(strand[number % 3 :], code)
                if residues and b"*" not in residues:
                    bases = strand[number % 3 :][: 3 * len(residues) + 1]
                    found.append((f"{name}_chunk_{k}{frame}", bases, residues))
        if len(found) > frames_before:
            status.append(RecordStatus.SCORABLE)
        elif len(sequence) < 3:
            status.append(RecordStatus.TOO_SHORT)
        else:
            status.append(RecordStatus.NO_OPEN_FRAME if codons else RecordStatus.AMBIGUOUS_BASES)
    return found, status


names = st.sampled_from(["a", "b", "read/1", "\u03b1\u03b2", "x" * 50])
sequences = st.one_of(
    st.text("ACGT", max_size=100),
    st.text("ACGTN", max_size=100),
    st.text("ACGGCC", max_size=100),
    st.text("NRYSWKM", max_size=40),
    st.text("TA", max_size=70),
).map(str.encode)


@st.composite
def records_with_repeats(draw):
    records = draw(st.lists(st.tuples(names, sequences), max_size=8))
    repeated = draw(st.lists(st.sampled_from(records), max_size=3)) if records else []
    turned = [(name, reverse_complement(sequence)) for name, sequence in repeated]
    return draw(st.permutations([*records, *repeated, *turned]))


specs = any_spec("frames", 3, 60)


@given(records_with_repeats(), specs)
def test_an_index_equals_a_simple_implementation(records, spec):
    expected, status = items_one_by_one(records, spec)
    with tempfile.TemporaryDirectory(dir=QUICK) as folder:
        path = write_fasta(Path(folder) / "in.fa", records)
        index = build_index(Path(folder) / "index", [path], spec)
        index.verify()
        assert index.record_names(np.arange(index.n_records)) == [n for n, _ in records]
        assert index.record_lengths.tolist() == [len(s) for _, s in records]
        assert index.record_status.tolist() == status
        names = index.item_names(np.arange(index.n_items))
        backwards = np.arange(index.n_items)[::-1]
        assert index.item_names(backwards) == names[::-1]
        bases = index.sequences(index.item_row, "nucleotide")
        peptides = index.sequences(index.item_row, "protein")
        assert list(zip(names, bases, peptides, strict=True)) == expected
        distinct = list(dict.fromkeys((b, p) for _, b, p in expected))
        distinct.sort(key=lambda content: -len(content[1]))
        rows = np.arange(index.n_rows)
        found = zip(
            index.sequences(rows, "nucleotide"), index.sequences(rows, "protein"), strict=True
        )
        assert list(found) == distinct
        assert index.row_lengths.tolist() == [len(residues) for _, residues in distinct]


@given(records_with_repeats(), specs, st.integers(1, 40))
def test_pieces_cover_each_base_of_a_scorable_record_once(records, spec, most):
    with tempfile.TemporaryDirectory(dir=QUICK) as folder:
        path = write_fasta(Path(folder) / "in.fa", records)
        index = build_index(Path(folder) / "index", [path], replace(spec, piece=most))
        plain = build_index(Path(folder) / "plain", [path], spec)
        index.verify()
        starts, ends = index.piece_bounds(np.arange(index.n_pieces))
        texts = index.sequences(index.piece_row, "nucleotide")
        names = index.piece_names(np.arange(index.n_pieces))
        for number, (name, sequence) in enumerate(records):
            own = slice(*index.record_first_piece[number : number + 2].tolist())
            scorable = index.record_status[number] == RecordStatus.SCORABLE
            assert b"".join(texts[own]) == (sequence if scorable else b"")
            assert texts[own] == [
                sequence[a:b] for a, b in zip(starts[own], ends[own], strict=True)
            ]
            assert all(len(text) <= most for text in texts[own])
            assert len({*map(len, texts[own])} | {0}) <= 3  # lengths differ by one base at most
            assert names[own] == [f"{name}_piece_{k + 1}" for k in range(len(texts[own]))]
        assert (index.kinds(index.piece_row) == items.PIECE_ITEM).all()
        assert not (index.kinds(index.item_row) == items.PIECE_ITEM).any()
        every = np.arange(plain.n_items)
        assert index.item_names(every) == plain.item_names(every)
        for view in ("nucleotide", "protein"):
            assert index.sequences(index.item_row, view) == plain.sequences(plain.item_row, view)
        assert len({*texts}) == len({*index.piece_row.tolist()})


@given(records_with_repeats())
def test_each_window_belongs_to_its_record(records):
    with tempfile.TemporaryDirectory(dir=QUICK) as folder:
        path = write_fasta(Path(folder) / "in.fa", records)
        index = build_index(Path(folder) / "index", [path], SPEC)
        window = 0
        for i, (name, sequence) in enumerate(records):
            assert index.record_first_window[i] == window
            for k, (start, end) in enumerate(
                zip(*tile(len(sequence), 30, "published"), strict=True)
            ):
                assert (index.window_starts[window], index.window_ends[window]) == (start, end)
                assert index.window_names(np.array([window])) == [f"{name}_chunk_{k + 1}"]
                assert index.window_sequence(window) == sequence[start:end]
                window += 1
        assert index.record_first_window[-1] == window == index.n_windows
        assert index.window_first_item[-1] == index.n_items


def test_names_with_unsafe_characters_are_counted(build):
    encoded = {
        "a": "a", "b\x1b\x1b": "b%1B%1B", "\u200d": "\u200d", "": "unnamed_4", "\x9b": "%C2%9B",
        "\u03b1\u2028": "\u03b1%E2%80%A8", "=cmd|'/C_calc'!A0": "%3Dcmd|'/C_calc'!A0",
        "+1": "%2B1", "-1": "%2D1", "@SUM(A1)": "%40SUM(A1)", "#c": "%23c", "a=-+@#": "a=-+@#",
        "track": "%74rack", "browser.2": "%62rowser.2", "tracks": "%74racks", "tr": "tr",
        "atrack": "atrack", "%3Dc": "%253Dc", "a%3D": "a%3D",
    }  # fmt: skip
    found = build([(name, GENE) for name in encoded])
    assert found.record_names(np.arange(found.n_records)) == [*encoded.values()]
    warning = next(text for text in found.warnings if "percent-encoded" in text)
    assert "like a formula or a BED header: 12. These characters" in warning


@pytest.mark.parametrize("names", [["read1", "read22", "é", "tr"], ["=a", "b%3D", "track", "c"]])
def test_names_of_any_records_in_any_order(build, names):
    index = build([(name, GENE) for name in names])
    encoded = np.array([encoded_name(name) for name in names], object)
    for records in ([], [0, 1, 2, 3], [1, 2], [3, 0, 0, 2], [2]):
        rows = np.array(records, np.int64)
        assert index.record_names(rows) == encoded[rows].tolist()


def test_different_names_stay_different(build):
    codes = ["", "%1B", "%251B", "%C2%9B", "%7F", "%", "%20", "x", "\x1b", "\x9b", "\x7f"]
    codes += ["=", "%3D", "%253D", "+", "%2B", "-", "%2D", "@", "%40", "#", "%23", "%74", "rack"]
    codes += ["track", "browser", "%62", "rowser", "%2574"]
    names = [n + first + second for n, first, second in product(("", "n"), codes, codes)]
    distinct = sorted({*names})
    found = build([(name, GENE) for name in distinct]).record_names(np.arange(len(distinct)))
    assert len({*found}) == len(distinct)
    assert {"n%20x", "n%x", "n%3D="} < {*found}


def test_columns_have_the_documented_types_and_order(build):
    index = build([("a", GENE * 4), ("b", GENE[:9])])
    kinds = {
        "record_lengths": "i8", "record_status": "u1", "record_first_window": "i8",
        "window_starts": "i8", "window_ends": "i8", "window_first_item": "i8",
        "item_frame": "u1", "item_row": "i8", "piece_row": "i8", "record_first_piece": "i8",
        "row_lengths": "i4",
    }  # fmt: skip
    for name, kind in kinds.items():
        assert getattr(index, name).dtype == np.dtype(kind)
    assert np.all(np.diff(index.row_lengths) <= 0)
    assert index.spec == SPEC


def test_frames_with_different_peptides_do_not_share_a_row(build):
    index = build([("a", b"ATGNNN"), ("b", b"ATG"), ("c", b"NNNATG"), ("d", b"NNNGCC")])
    first = [name.endswith("F1") for name in index.item_names(np.arange(index.n_items))]
    rows = index.item_row[first]
    found = zip(index.sequences(rows, "nucleotide"), index.sequences(rows, "protein"), strict=True)
    assert list(found) == [(b"ATGN", b"M"), (b"ATG", b"M"), (b"NNNA", b"M"), (b"NNNG", b"A")]
    assert len(set(rows.tolist())) == 4


def test_dropped_codons_after_the_bases_do_not_change_the_row(build):
    index = build([("a", b"ATGNNN"), ("b", b"ATGN")])
    forward = index.item_frame == 0
    assert len(set(index.item_row[forward])) == 1


def test_an_index_without_records_is_empty(build, tmp_path):
    index = build([])
    assert (index.n_records, index.n_windows, index.n_items, index.n_rows) == (0, 0, 0, 0)
    assert index.sequences(np.empty(0, np.int64), "nucleotide") == []
    assert index.sequences(np.empty(0, np.int64), "protein") == []
    assert build_index(tmp_path / "none", [], SPEC).n_records == 0


def test_each_whole_sequence_is_one_item(build):
    index = build([("a", b"ACGT"), ("empty", b""), ("b", b"GGTTNN"), ("a", b"ACGT")], WHOLE)
    assert index.item_names(np.arange(index.n_items)) == ["a", "b", "a"]
    assert index.sequences(index.item_row, "nucleotide") == [b"ACGT", b"GGTTNN", b"ACGT"]
    assert index.item_row.tolist() == [1, 0, 1]
    assert index.row_lengths.tolist() == [6, 4]
    assert index.record_status.tolist() == [0, RecordStatus.TOO_SHORT, 0, 0]
    with pytest.raises(UsageError, match="no protein view"):
        index.sequences(index.item_row, "protein")


def test_an_index_of_proteins_has_one_view(build):
    index = build([("p", b"MKVL"), ("q", b"MEEPQ")], PROTEINS)
    assert index.sequences(np.array([0, 1]), "protein") == [b"MEEPQ", b"MKVL"]
    with pytest.raises(UsageError, match="no nucleotide view"):
        index.sequences(np.array([0]), "nucleotide")


RANDOM = np.random.default_rng(5)
MANY = [
    (f"r{i}", RANDOM.choice(list(b"ACGTN"), size, p=[0.24, 0.24, 0.24, 0.24, 0.04])
        .astype(np.uint8).tobytes())
    for i, size in enumerate(RANDOM.integers(0, 300, 40))
]  # fmt: skip


def contents(index_folder):
    content, files = index_file(index_folder).read_bytes(), read_header(index_folder).files
    return {name: content[one.start : one.start + one.bytes] for name, one in files.items()}


def test_an_index_does_not_depend_on_batch_and_block_sizes(tmp_path, monkeypatch):
    path = write_fasta(tmp_path / "in.fa", MANY)
    build_index(tmp_path / "large", [path], SPEC)
    monkeypatch.setattr(builder, "_BATCH_BYTES", 500)
    monkeypatch.setattr(items, "_BLOCK_BASES", 64)
    build_index(tmp_path / "small", [path], SPEC)
    assert contents(tmp_path / "large") == contents(tmp_path / "small")
    assert (
        SequenceIndex.open(tmp_path / "large").inputs
        == SequenceIndex.open(tmp_path / "small").inputs
    )


def test_records_of_several_files_are_concatenated(tmp_path):
    paths = [write_fasta(tmp_path / f"{i}.fa", MANY[i : i + 20]) for i in (0, 20)]
    together = write_fasta(tmp_path / "all.fa", MANY)
    index = build_index(tmp_path / "two", paths, SPEC)
    build_index(tmp_path / "one", [together], SPEC)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert [file.n_records for file in index.inputs] == [20, 20]
    assert [file.path for file in index.inputs] == paths


def test_the_fingerprint_depends_only_on_the_content(tmp_path):
    plain = write_fasta(tmp_path / "a.fa", MANY)
    packed = tmp_path / "elsewhere.bin"
    text = b"".join(b">%s text\r\n%s\r\n\r\n" % (n.encode(), s.lower()) for n, s in MANY)
    packed.write_bytes(gzip.compress(text))
    (one,), (other,) = input_digests([plain], SPEC), input_digests([str(packed)], SPEC)
    assert one.sha256 == other.sha256
    assert fingerprint([one], SPEC) == fingerprint([other], SPEC)
    index = build_index(tmp_path / "index", [plain], SPEC)
    assert (index.inputs, index.fingerprint) == ((one,), fingerprint([one], SPEC))
    assert (one.n_records, one.n_bases) == (40, sum(len(s) for _, s in MANY))


CHANGED = {
    "a base": [("a", b"ACGA"), ("b", b"")],
    "a name": [("x", b"ACGT"), ("b", b"")],
    "the order": [("b", b""), ("a", b"ACGT")],
    "fewer records": [("a", b"ACGT")],
    "a sequence moved into the name": [("aACGT", b""), ("b", b"")],
}


@pytest.mark.parametrize("change", CHANGED)
def test_changed_content_changes_the_fingerprint(change, tmp_path):
    before = write_fasta(tmp_path / "a.fa", [("a", b"ACGT"), ("b", b"")])
    after = write_fasta(tmp_path / "b.fa", CHANGED[change])
    (one,), (other,) = input_digests([before], SPEC), input_digests([after], SPEC)
    assert one.sha256 != other.sha256
    assert fingerprint([one], SPEC) != fingerprint([other], SPEC)


def test_a_changed_specification_changes_the_fingerprint(tmp_path):
    inputs = input_digests([write_fasta(tmp_path / "a.fa", MANY)], SPEC)
    others = [
        IndexSpec("frames", Alphabet.NUCLEOTIDE, 31, "published", 1),
        IndexSpec("frames", Alphabet.NUCLEOTIDE, 30, "even", 1),
        IndexSpec("frames", Alphabet.NUCLEOTIDE, 30, "published", 11),
        WHOLE,
        PROTEINS,
    ]
    assert len({fingerprint(inputs, spec) for spec in [SPEC, *others]}) == 6


WINDOWS = [2, 2**31, "500", 500.0, 500.5, True, np.int64(500), float("nan")]


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    ("parts", "word"),
    [
        *(((window, "even", 1), "from 3 to") for window in WINDOWS),
        ((), "from 3 to"),
        ((30, "dense", 1), "published, even"),
        ((30, "even", 7), "genetic code 7"),
        ((30, "even"), "genetic code"),
    ],
)
def test_invalid_windows_tilings_and_genetic_codes_are_rejected_at_once(parts, word):
    with pytest.raises(UsageError, match=word):
        IndexSpec("frames", Alphabet.NUCLEOTIDE, *parts)


def test_invalid_input_leaves_no_index(tmp_path):
    path = write_fasta(tmp_path / "a.fa", [*MANY, ("bad", b"ACGTE")])
    with pytest.raises(InputError, match=r"a\.fa: record 41 \(bad\)"):
        build_index(tmp_path / "index", [path], SPEC, rules=InputRules(strict=True))
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.fa"]


def test_an_existing_folder_is_not_replaced(tmp_path):
    path = write_fasta(tmp_path / "a.fa", MANY)
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "thesis.txt").write_text("years of work")
    with pytest.raises(RunExistsError, match="folder exists; remove it"):
        build_index(tmp_path / "index", [path], SPEC)
    assert (tmp_path / "index" / "thesis.txt").exists()


@pytest.mark.parametrize("path", ["-", "/dev/stdin"])
def test_standard_input_cannot_be_given_twice(path, tmp_path):
    with pytest.raises(UsageError, match="give the input - only once"):
        build_index(tmp_path / "index", ["-", path], SPEC)


NAMES_OF_INPUTS = """
import sys
from pathlib import Path
from virnucpro.sequences.index import build_index
from virnucpro.sequences.spec import IndexSpec
from virnucpro.sequences.records import Alphabet
spec = IndexSpec("frames", Alphabet.NUCLEOTIDE, 15, "even", 11)
for number, paths in enumerate(sys.argv[1:]):
    print(*build_index(Path(f"index-{number}"), paths.split(), spec).input_names)
"""


def test_standard_input_is_named_stdin_by_each_of_its_paths(tmp_path):
    for name in ("a.fa", "stdin"):
        write_fasta(tmp_path / name, [(name, b"ATGGCC")])
    inputs = ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "- stdin")
    with (tmp_path / "a.fa").open() as stream:
        words = [sys.executable, "-c", NAMES_OF_INPUTS, *inputs]
        done = run_captured(*words, stdin=stream, cwd=tmp_path, code=0)
    assert done.stdout.splitlines() == ["stdin", "stdin", "stdin", "stdin stdin#2"]


def test_a_full_disk_leaves_no_index(tmp_path):
    path = write_fasta(tmp_path / "a.fa", MANY * 6)
    # A limit on the file size makes a write fail, like a full disk.
    script = """
import resource, signal, sys
from pathlib import Path
from virnucpro.sequences.index import build_index
from virnucpro.sequences.spec import IndexSpec
from virnucpro.sequences.records import Alphabet
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
spec = IndexSpec("frames", Alphabet.NUCLEOTIDE, 30, "published", 1)
build_index(Path(sys.argv[1]), [sys.argv[2]], spec)
"""
    child = run_captured(sys.executable, "-c", script, tmp_path / "index", path)  # fmt: skip
    last = child.stderr.strip().splitlines()[-1]
    assert f"StoreError: {tmp_path / 'index'}: the sequence index cannot be written" in last
    assert "correct this error and rerun" in last
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.fa"]


@pytest.fixture(scope="module")
def whole_folder(tmp_path_factory):
    base = tmp_path_factory.mktemp("whole")
    build_index(base / "index", [write_fasta(base / "a.fa", MANY)], replace(SPEC, piece=50))
    return base / "index"


@pytest.fixture
def folder(whole_folder, tmp_path):
    return shutil.copytree(whole_folder, tmp_path / "index")


@pytest.mark.parametrize("share", [0.0, 0.2, 0.9, 1.0])
def test_a_truncated_or_missing_index_is_found_on_opening(share, folder):
    (path,) = folder.iterdir()
    content = path.read_bytes()
    path.write_bytes(content[: min(int(share * len(content)), len(content) - 1)])
    with pytest.raises(
        IndexFormatError, match=r"columns\.bin: truncated .*restore the file from a copy"
    ):
        SequenceIndex.open(folder)
    path.unlink()
    with pytest.raises(IndexFormatError, match="no sequence index found"):
        SequenceIndex.open(folder)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_changed_byte_is_found_by_verification(name, folder):
    place = read_header(folder).files[name]
    path = index_file(folder)
    content = bytearray(path.read_bytes())
    content[place.start + place.bytes - 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(IndexFormatError, match=f"columns.bin: {name} changed since it was written"):
        SequenceIndex.open(folder).verify()


def test_a_changed_column_header_is_found(folder):
    place = read_header(folder).files["row_lengths"]
    path = index_file(folder)
    before, after = np.split(np.fromfile(path, np.uint8), [place.start])
    content, after = (part.tobytes() for part in np.split(after, [place.bytes]))
    n_rows = b"(%d,)" % SequenceIndex.open(folder).n_rows
    for damaged in (
        b"junk" + content[4:],
        content.replace(b"<i4", b"<f4"),
        content.replace(n_rows, b"(1,)" + b" " * (len(n_rows) - 4)),
    ):
        assert damaged != content
        assert len(damaged) == len(content)
        path.write_bytes(before.tobytes() + damaged + after)
        with pytest.raises(IndexFormatError, match=r"columns\.bin: row_lengths is not a column"):
            SequenceIndex.open(folder)


def edited(change):
    """Return a change of the text of the header: that of its content by a function."""

    def edit(text):
        content = json.loads(text)
        change(content)
        return json.dumps(content).encode()

    return edit


CHANGED_NUMBER = edited(lambda c: c["inputs"][0].update(n_bases=1))
MALFORMED = [b"", b"{", b"[]", b"\xff\xfe", b"null"]


@pytest.mark.parametrize(
    ("change", "sealed", "said"),
    [
        (CHANGED_NUMBER, False, "truncated or altered"),
        (edited(lambda c: c.update(schema=99)), True, "version 99.*version that wrote the index"),
        (edited(lambda c: c.update(format="fai")), True, "not a sequence index"),
        *((lambda _, content=content: content, False, r"columns\.bin") for content in MALFORMED),
    ],
    ids=["number", "later version", "another program", *map(repr, MALFORMED)],
)
def test_an_invalid_header_is_rejected(change, sealed, said, folder):
    path = index_file(folder)
    content = path.read_bytes()
    digest, length = content[-40:-8], content[-8:]
    end = len(content) - 40 - int.from_bytes(length, "little")
    header = change(content[end:-40])
    if sealed:
        digest = hashlib.sha256(header).digest()
    path.write_bytes(content[:end] + header + digest + len(header).to_bytes(8, "little"))
    with pytest.raises(IndexFormatError, match=said) as refused:
        SequenceIndex.open(folder)
    assert "restore the file from a copy" in str(refused.value)


def test_a_folder_without_an_index_is_rejected(tmp_path):
    with pytest.raises(IndexFormatError, match="no sequence index found"):
        SequenceIndex.open(tmp_path)


def test_reading_all_rows_does_not_keep_the_bases_in_memory(tmp_path):
    letters = np.frombuffer(b"ACGC", np.uint8)[RANDOM.integers(0, 4, 5_000_000)].tobytes()
    path = write_fasta(tmp_path / "large.fa", [("large", letters)])
    build_index(
        tmp_path / "index", [path], IndexSpec("frames", Alphabet.NUCLEOTIDE, 300, "even", 1)
    )
    script = """
import sys
from pathlib import Path
import numpy as np
from virnucpro.sequences.index import SequenceIndex
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
index = SequenceIndex.open(Path(sys.argv[1]))
index.sequences(np.arange(10), "protein")
before = resident()
for first in range(0, index.n_rows, 2000):
    rows = np.arange(first, min(first + 2000, index.n_rows))
    for view in ("nucleotide", "protein"):
        index.sequences(rows, view)
print(index.n_rows, resident() - before)
"""
    child = run_captured(sys.executable, "-c", script, tmp_path / "index")
    n_rows, grown = map(int, child.stdout.split())
    assert n_rows > 10_000
    assert grown < 4_000_000


def test_bases_are_read_without_readahead(build, monkeypatch, tmp_path):
    """The kernel marks the map with ``rr`` while single pages are read, and only then."""
    flags = []
    read = Column.read
    own = f"{tmp_path}/index-0/columns.bin"  # another test may have left such a map

    def watched(column, first, last):
        flags.append(flags_of_map(own))
        return read(column, first, last)

    monkeypatch.setattr(Column, "read", watched)
    built = build([("a", GENE * 3), ("b", GENE * 2)])
    before = flags_of_map(own)
    assert before
    built.sequences(np.arange(4), "protein")
    assert flags
    assert all("rr" in found for found in flags)
    assert "rr" not in before | flags_of_map(own)


def flags_of_map(name):
    """Return the flags of all maps of a file in this process, as in proc(5)."""
    (_, *maps) = Path("/proc/self/smaps").read_text().split(name)
    lines = (one.partition("VmFlags:")[2].partition("\n")[0] for one in maps)
    return {flag for line in lines for flag in line.split()}


def test_a_record_without_a_name_has_the_number_of_its_place(build):
    found = build([("", GENE), ("b", b"ACGT")])
    text = b"unnamed_1\n" + GENE + b"\nb\nACGT\n"
    assert found.inputs[0].sha256 == hashlib.sha256(text).hexdigest()
    assert found.record_names(np.arange(2)) == ["unnamed_1", "b"]


def test_a_too_long_record_has_a_length_and_no_letters(build, tmp_path):
    records = [("a", GENE), ("long", GENE * 3), ("b", GENE + b"ACG")]
    path = write_fasta(tmp_path / "in.fa", records)
    found = build_index(tmp_path / "index", [path], SPEC, rules=InputRules(max_record=24))
    alone = build([records[0], records[2]])
    assert found.record_lengths.tolist() == [21, 63, 24]
    assert found.record_status[1] == RecordStatus.TOO_LONG
    assert np.diff(found.record_first_window).tolist()[1] == 0
    assert found.record_sequence(1, 0, 63) == b""
    assert found.record_sequence(2, 0, 24) == GENE + b"ACG"
    assert (found.stored_letters, found.inputs[0].n_bases) == (45, 108)
    rows = np.arange(alone.n_rows)
    assert found.sequences(rows, "protein") == alone.sequences(rows, "protein")
    [warning] = found.warnings
    assert warning.startswith("sequences of more than 24 letters: 1 (first: ")
    assert "in.fa: record 2 (long): 63 letters). They have the status too_long" in warning
    assert found.fingerprint != build(records).fingerprint


def test_invalid_records_keep_their_letters_and_have_no_windows(build):
    found = build([("a", GENE), ("p", b"mkvl>-E"), ("b", GENE), ("", b"")])
    valid = build([("a", GENE), ("b", GENE)])
    assert found.record_lengths.tolist() == [21, 6, 21, 0]
    assert found.record_sequence(1, 0, 6) == b"MKVL?E"
    assert found.record_sequence(2, 0, 21) == GENE
    assert np.diff(found.record_first_window).tolist() == [1, 0, 1, 0]
    assert found.record_status[1] == RecordStatus.INVALID_LETTERS
    assert found.item_row.tolist() == valid.item_row.tolist()
    rows = np.arange(found.n_rows)
    assert found.sequences(rows, "protein") == valid.sequences(rows, "protein")
    assert found.fingerprint != build([("a", GENE), ("p", b"MKVL?L"), ("b", GENE)]).fingerprint
