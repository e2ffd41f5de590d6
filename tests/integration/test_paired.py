"""Paired reads: two mates are one record with one answer."""

import random
import re

import pytest

import virnucpro
from virnucpro.cli.main import main
from virnucpro.errors import FingerprintError, InputError, UsageError
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.mates import read_pairs
from virnucpro.sequences.translation import reverse_complement

pytestmark = pytest.mark.usefixtures("one_process")

N = 4
FRAGMENTS = [bytes(random.Random(k).choices(b"ACGT", k=400)) for k in range(N)]
FIRST = [(b"r%d/1 x" % k, one[:150]) for k, one in enumerate(FRAGMENTS)]
SECOND = [(b"r%d/2 2:N:0:A" % k, reverse_complement(one[-120:])) for k, one in enumerate(FRAGMENTS)]
QUALITIES = bytes(range(40, 40 + 30)) * 5


def _fastq(reads):
    return b"".join(b"@%s\n%s\n+\n%s\n" % (*one, QUALITIES[: len(one[1])]) for one in reads)


BOTH = [read for pair in zip(FIRST, SECOND, strict=True) for read in pair]


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = {
        "R1.fq": FIRST,
        "R2.fq": SECOND,
        "both.fq": BOTH,
        "few.fq": SECOND[:2],
        "other.fq": [*SECOND[:1], *SECOND[2:], SECOND[1]],
        "odd.fq": BOTH[:-1],
    }
    for name, reads in content.items():
        (tmp_path / name).write_bytes(_fastq(reads))
    return tmp_path


WANTED = ("viral", "ambiguous", "non-viral")


def _extracted(run):
    texts = [path.read_bytes() for name in WANTED for path in run.glob(f"{name}.fastq")]
    lines = b"".join(texts).splitlines()
    return {
        (lines[k][1:].split()[0], re.search(rb"mate=\d", lines[k])[0]): (lines[k + 1], lines[k + 3])
        for k in range(0, len(lines), 4)
    }


def test_mates_are_one_record_and_both_are_written(files, tables):
    first = virnucpro.classify(["R1.fq", "R2.fq"], outdir="a", paired=True, extract=WANTED)
    virnucpro.classify("both.fq", outdir="b", interleaved=True, extract=WANTED)
    rows, others = tables(files / "a/predictions.tsv"), tables(files / "b/predictions.tsv")
    assert [row["seq_name"] for row in rows] == [f"r{k}" for k in range(N)]
    expected = {"length": "270", "n_windows": "2", "n_scored": "2", "status": "scored"}
    for number, (row, other) in enumerate(zip(rows, others, strict=True), 1):
        assert {name: row[name] for name in expected} == expected
        assert (row["file"], row["record"], row["flags"]) == ("R1.fq", str(number), "NA")
        assert other == row | {"file": "both.fq"}
    assert first.warnings == ()
    for run in ("a", "b"):
        found = _extracted(files / run)
        assert found == {
            (b"r%d" % k, b"mate=%d" % mate): (read, QUALITIES[: len(read)])
            for mate, reads in ((1, FIRST), (2, SECOND))
            for k, (_, read) in enumerate(reads)
        }
    index = SequenceIndex.open(files / "a" / "run" / "index")
    assert [(one.path, one.n_records, one.n_bases) for one in index.inputs] == [
        ("R1.fq", N, 150 * N),
        ("R2.fq", 0, 120 * N),
    ]
    joined = FRAGMENTS[0][:150] + b"N" * 25 + FRAGMENTS[0][-120:]
    assert index.record_sequence(0, 0, 295) == joined
    spans = list(zip(index.window_starts[:2], index.window_ends[:2], strict=True))
    assert spans == [(0, 150), (175, 295)]


def test_viruses_are_written_as_mates(files):
    with pytest.warns(UserWarning, match="expected to be false"):
        virnucpro.classify(["R1.fq", "R2.fq"], outdir="a", paired=True, threshold=0.0)
    text = (files / "a" / "viruses.fastq").read_text()
    headers = text.splitlines()[::4]
    assert len(headers) == 2 * N
    assert " start=1 end=120 " in headers[1]
    assert headers[1].endswith(" mate=2 name=r0 length=120 file=R1.fq record=1")
    assert headers[1].startswith("@r0 kind=virus ")
    assert text.splitlines()[5].encode() == SECOND[0][1]


@pytest.mark.parametrize(
    ("inputs", "option", "message"),
    [
        (["R1.fq", "few.fq"], "paired", r"few\.fq: ends before record 3, but R1\.fq has it \(r2/1"),
        (["few.fq", "R1.fq"], "paired", r"few\.fq: ends before|record 1: the names r0/2 and r0/1"),
        (["R1.fq", "other.fq"], "paired", r"R1\.fq and other\.fq: record 2: the names r1/1 and r2"),
        (["odd.fq"], "interleaved", r"odd\.fq: record 7 \(r3/1\) has no mate: the file ends"),
        (["R1.fq"], "interleaved", r"R1\.fq: records 1 and 2: the names r0/1 and r1/1 are not"),
        (["missing.bam"], "paired", r"missing\.bam: the file does not exist"),
        (["R1.fq"], "paired", "takes two files for each sample.*--interleaved|interleaved"),
    ],
)
def test_reads_that_are_no_pairs_are_refused(files, inputs, option, message):
    kind = UsageError if inputs == ["R1.fq"] and option == "paired" else InputError
    with pytest.raises(kind, match=message):
        virnucpro.classify(inputs, outdir="run", **{option: True})
    assert not (files / "run").exists()


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        ("r/1", "r/2", "r"),
        ("r", "r/2", "r"),
        ("r.1", "r.1", "r.1"),
        ("SRR1.7.1", "SRR1.7.2", "SRR1.7"),
        ("r_1", "r_2", "r"),
        ("r/1", "r/1", None),
        ("r_2", "r_1", None),
        ("r", "r_2", None),
    ],
)
def test_the_name_of_a_pair_is_common_to_its_mates(first, second, name, tmp_path):
    paths = [tmp_path / "1.fa", tmp_path / "2.fa"]
    for path, own in zip(paths, (first, second), strict=True):
        path.write_text(f">{own}\nACGT\n")
    if name is None:
        with pytest.raises(InputError, match=f"the names {first} and {second} are not those"):
            list(read_pairs(paths))
    else:
        assert [one.name for one in read_pairs(paths)] == [name]


def test_a_resume_needs_the_same_pairs(files, called):
    run = ["predict", "R1.fq", "R2.fq", "-o", "run", "-q"]
    virnucpro.classify(["R1.fq", "R2.fq"], outdir="run", paired=True)
    assert main([*run, "--paired", "--resume"]) == 0
    assert "paired was True and is now False" in called(*run, "--resume", code=1).stderr
    (files / "R2.fq").write_bytes(_fastq([(name, read[1:]) for name, read in SECOND]))
    with pytest.raises(FingerprintError, match=r"the content of R2\.fq differs"):
        virnucpro.classify(["R1.fq", "R2.fq"], outdir="run", paired=True, resume=True)


def test_short_pairs_count_their_own_letters(tmp_path):
    reads = [(b"a", b"ACGTTGCATC" * 4), (b"b", b"ACGTTGCATC" * 5)]
    for name in ("R1.fq", "R2.fq"):
        (tmp_path / name).write_bytes(_fastq(reads))
    inputs = [tmp_path / "R1.fq", tmp_path / "R2.fq"]
    with pytest.warns(UserWarning, match="inputs with the content of an earlier input: 1"):
        rows = virnucpro.classify(inputs, paired=True).predictions
    assert list(rows["length"]) == [80, 100]
    assert list(rows["status"]) == ["too_short", "scored"]


def test_alignments_are_answered_as_their_reads(files, tables):
    pytest.importorskip("pysam")
    virnucpro.classify(["R1.fq", "R2.fq"], outdir="a", paired=True, extract=WANTED)
    lines = [
        f"{name.decode().split('/')[0]}\t{4 | 1 | flag}\t*\t0\t0\t*\t*\t0\t0"
        f"\t{read.decode()}\t{QUALITIES[: len(read)].decode()}\n"
        for pair in zip(FIRST, SECOND, strict=True)
        for (name, read), flag in zip(pair, (64, 128), strict=True)
    ]
    (files / "reads.sam").write_text("".join(lines))
    virnucpro.classify("reads.sam", outdir="b", paired=True, extract=WANTED)
    rows, others = tables(files / "a/predictions.tsv"), tables(files / "b/predictions.tsv")
    assert others == [row | {"file": "reads.sam"} for row in rows]
    assert _extracted(files / "b") == _extracted(files / "a")


def test_a_mate_that_is_too_long_is_an_error(files):
    message = r"record 1: a mate of \d+ letters is too long for paired reads; give a larger"
    with pytest.raises(InputError, match=message):
        virnucpro.classify(["R1.fq", "R2.fq"], paired=True, max_record=20)


def test_a_pair_with_an_empty_mate_is_judged_by_the_other_mate(tmp_path, tables):
    mates = [b"", FRAGMENTS[0], FRAGMENTS[1], b"-" * 9, FRAGMENTS[2], b"", b"", b""]
    reads = [(b"r%d/%d" % (k // 2, 1 + k % 2), mate) for k, mate in enumerate(mates)]
    path, single = tmp_path / "both.fa", tmp_path / "single.fa"
    path.write_bytes(b"".join(b">%s\n%s\n" % read for read in reads))
    single.write_bytes(b"".join(b">s%d\n%s\n" % (k, one) for k, one in enumerate(FRAGMENTS[:3])))
    how = {"outdir": tmp_path / "pairs", "extract": (*WANTED, "not_scored")}
    with pytest.warns(UserWarning, match="gaps"):
        virnucpro.classify(path, interleaved=True, **how)
    virnucpro.classify(single, outdir=tmp_path / "single")
    *rows, empty = tables(tmp_path / "pairs/predictions.tsv")
    for row, alone in zip(rows, tables(tmp_path / "single/predictions.tsv"), strict=True):
        for column in ("length", "score"):
            assert row[column] == alone[column]
        # The second mate is turned; genes are not found equally on both strands.
        odds = [float(one["calibrated_probability"]) for one in (row, alone)]
        assert odds[0] == pytest.approx(odds[1], abs=0.05)
    assert empty["status"] == "too_short"
    extracts = b"".join(one.read_bytes() for one in (tmp_path / "pairs").glob("*.fasta"))
    assert extracts.count(b"mate=1") == extracts.count(b"mate=2") == 4
