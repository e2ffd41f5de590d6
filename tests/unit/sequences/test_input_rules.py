import random
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.errors import InputError
from virnucpro.sequences.builder import input_digests
from virnucpro.sequences.index import build_index
from virnucpro.sequences.input_rules import InputRules, nucleotide_share
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec, RecordStatus

SPEC = IndexSpec("frames", Alphabet.NUCLEOTIDE, 30, "published", 1)
WHOLE = {alphabet: IndexSpec("whole", alphabet) for alphabet in Alphabet}
FORCED = InputRules(any_alphabet=True)
# Shares of amino acids in UniProtKB/Swiss-Prot, rounded.
AMINO_ACIDS = "ALGVESIKRDTPNQFYMHCW"
SHARES = (825, 965, 707, 685, 671, 665, 590, 579, 553, 546)
SHARES += (536, 474, 406, 393, 386, 292, 241, 227, 138, 110)


@pytest.fixture
def write(tmp_path):
    def write_file(text, name="in.fa"):
        (tmp_path / name).write_bytes(text)
        return str(tmp_path / name)

    return write_file


@given(st.lists(st.sampled_from([b"ACGT", b"ACGU", b"MKVL", b"A-C", b"--", b"", b"12"])))
def test_a_file_is_refused_if_most_records_are_invalid(tmp_path_factory, sequences):
    path = tmp_path_factory.getbasetemp() / "most.fa"
    path.write_bytes(b"".join(b">r\n%s\n" % one for one in sequences))
    n_invalid = sum(one in {b"MKVL", b"12"} for one in sequences)
    n_valid = sum(one in {b"ACGT", b"ACGU", b"A-C"} for one in sequences)
    refused = n_invalid > n_valid
    if refused:
        with pytest.raises(InputError, match=rf"\({n_invalid} of {n_invalid + n_valid} records"):
            input_digests([str(path)], SPEC)
    else:
        (found,) = input_digests([str(path)], SPEC)
        assert found.n_records == len(sequences)
    assert input_digests([str(path)], SPEC, FORCED)[0].n_records == len(sequences)
    if n_invalid or b"A-C" in sequences or b"--" in sequences:
        with pytest.raises(InputError, match=r"is not a nucleotide letter"):
            input_digests([str(path)], SPEC, InputRules(strict=True))


def test_each_file_is_judged_on_its_own(write):
    good, bad = write(b">a\nAC\n>b\nAC\n>c\nAC\n"), write(b">p\nMEL\n", "p.fa")
    with pytest.raises(InputError, match=r"p\.fa: record 1 \(p\): 'E' \(letter 2\)"):
        input_digests([good, bad], SPEC)


def dna(n_letters):
    return "".join(random.Random(n_letters).choices("ACGTN", [9, 9, 9, 9, 1], k=n_letters)).encode()


def protein(n_letters):
    return "".join(random.Random(n_letters).choices(AMINO_ACIDS, SHARES, k=n_letters)).encode()


@pytest.mark.parametrize(
    ("alphabet", "sequences", "message"),
    [
        (Alphabet.PROTEIN, [dna(99)], None),
        (Alphabet.PROTEIN, [dna(100)], "look like nucleotides"),
        (Alphabet.PROTEIN, [dna(20)] * 5, "look like nucleotides"),
        (Alphabet.PROTEIN, [b"", dna(20_000)], "look like nucleotides"),
        (Alphabet.PROTEIN, [protein(100)], None),
        (Alphabet.PROTEIN, [b"GATTACATAC"] * 9, None),  # peptides
        (Alphabet.PROTEIN, [b"GAGAGS" * 50], None),  # silk: 83 %
        (Alphabet.NUCLEOTIDE, [protein(100)], "look like proteins"),
        (Alphabet.NUCLEOTIDE, [protein(99)], "of 1 records have such letters"),
        (Alphabet.NUCLEOTIDE, [dna(100)], None),
        (Alphabet.NUCLEOTIDE, [b"MKVSHRWD" * 20], "look like proteins"),  # IUPAC letters only
        (Alphabet.NUCLEOTIDE, [b"N" * 500], None),
        (Alphabet.NUCLEOTIDE, [b"ACGTRYACGU" * 20], None),
    ],
)
def test_the_other_alphabet_is_recognised_for_whole_sequences(alphabet, sequences, message, write):
    path = write(b"".join(b">r\n%s\n" % one for one in sequences))
    assert input_digests([path], WHOLE[alphabet], FORCED)
    if message is None:
        assert input_digests([path], WHOLE[alphabet])
    else:
        with pytest.raises(InputError, match=message):
            input_digests([path], WHOLE[alphabet])


@given(st.lists(st.text("ACGTUNELKR", max_size=80).map(str.encode), max_size=9))
def test_the_share_of_nucleotides_needs_a_hundred_letters(sequences):
    letters = b"".join(sequences)
    share = sum(letter in b"ACGTUN" for letter in letters) / max(1, len(letters))
    found = nucleotide_share(sequences)
    assert found == (None if len(letters) < 100 else pytest.approx(share))


def test_each_kind_of_trouble_gives_one_warning(write, tmp_path):
    odd = write(b">a\nAC\n>a\nA-C..G\n>\nACG\n>p\nMEVL\n>q\nACGT1\n" + b">a\nAC\n" * 2)
    inputs = [odd, write(b"", "none.fa"), odd, write(b">b\nAC\n", "b.fa")]
    index = build_index(tmp_path / "index", inputs, SPEC)
    warnings = [text.replace(f"{tmp_path}/", "") for text in index.warnings]
    assert len(warnings) == 6
    assert warnings[0].startswith("inputs without sequences: 1 (none.fa). Check the step")
    assert warnings[1].startswith("sequences with letters that are not nucleotide letters: 4. They")
    assert warnings[1].endswith(
        "in.fa: record 4 (p): 'E' (letter 2) is not a nucleotide letter; in.fa: record 5 (q): '1' "
        "(letter 5) is not a nucleotide letter; in.fa: record 4 (p): 'E' (letter 2) is not a "
        "nucleotide letter; ..."
    )
    assert warnings[2].startswith("gaps (- and .) were removed: 6 from 2 sequences")
    assert warnings[3].startswith("sequences without a name: 2. They are called unnamed_N")
    assert warnings[4].startswith("sequences with the name of an earlier sequence: 10 (first: a)")
    assert "columns" not in warnings[4]  # `embed` has no columns file and record
    assert warnings[5].startswith("inputs with the content of an earlier input: 1 (in.fa)")
    assert index.record_lengths[:5].tolist() == [2, 3, 3, 4, 5]
    assert index.record_status[3] == index.record_status[4] == RecordStatus.INVALID_LETTERS


def test_an_ordinary_input_gives_no_warning(write, tmp_path):
    assert build_index(tmp_path / "index", [write(b">a\nAC\n>b\nAC\n")], SPEC).warnings == ()


def test_inputs_of_equal_content_are_named_with_the_first(write, tmp_path):
    paths = [write(b">a\nAC\n", name) for name in ("one.fa", "two.fa", "three.fa")]
    *_, warning = build_index(tmp_path / "index", paths, SPEC).warnings
    assert f"2 ({paths[1]}, as {paths[0]}; {paths[2]}, as {paths[0]})" in warning


def fastq(qualities):
    return b"".join(b"@r\n%s\n+\n%s\n" % (b"A" * len(one), one) for one in qualities)


@pytest.mark.parametrize(
    ("qualities", "told"),
    [
        ([b"I" * 999 + b"+"], []),  # Q40, and one base of Q10
        ([b"./" * 600], ["4.5 %: at this rate mini finds about 76% (10 kb) to 58% (3 kb) of"]),
        ([b"5I" * 600, b"+I" * 600], ["2.8 %: at this rate mini finds about 84%"]),
        ([b"+," * 600], ["9 %: at this rate mini finds at most 73% (10 kb) to 54% (3 kb)"]),
        ([b"+," * 499] * 9, []),  # short reads
        ([b"!" * 1200], []),  # a placeholder
    ],
)
def test_long_reads_with_many_errors_give_a_warning(qualities, told, write, tmp_path):
    path = write(fastq(qualities), "in.fq")
    spec = replace(SPEC, piece=32_000)
    index = build_index(tmp_path / "index", [path, write(b">a\nACGT\n")], spec)
    found = [text for text in index.warnings if "error rate" in text]
    assert len(found) == len(told)
    for text, part in zip(found, told, strict=True):
        assert text.startswith(f"{path}: mean error rate of long reads by qualities {part}")


def test_letters_between_mates_do_not_count_as_errors(write, tmp_path):
    path = write(fastq([b"I" * 600] * 2), "in.fq")
    spec = replace(SPEC, pairs="interleaved")
    assert build_index(tmp_path / "index", [path], spec).warnings == ()


BGZF_END = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")


def bgzf(text):
    packed = zlib.compress(text, wbits=-15)
    size = len(packed) + 25  # of the block, minus one
    head = BGZF_END[:16] + size.to_bytes(2, "little")
    return head + packed + zlib.crc32(text).to_bytes(4, "little") + len(text).to_bytes(4, "little")


@pytest.mark.parametrize(("end", "warned"), [(b"", True), (BGZF_END, False)])
def test_a_bgzf_file_that_is_cut_between_blocks_gives_a_warning(end, warned, write, tmp_path):
    path = write(bgzf(b">a\nACGT\n") + bgzf(b">b\nACGT\n") + end, "in.fa.gz")
    index = build_index(tmp_path / "index", [path], SPEC)
    assert index.n_records == 2
    assert warned == any(f"{path}: the block that ends a BGZF" in text for text in index.warnings)
