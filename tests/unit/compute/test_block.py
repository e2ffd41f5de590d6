"""Blocks of records give the files of a run by rows, byte for byte."""

import gzip
import json
import random
from types import SimpleNamespace

import h5py
import numpy as np
import pysam
import pytest
from record_bundle import save_record_bundle
from samples import CODING, random_records, read_table

from virnucpro.compute.block import BlockTask, compute_block
from virnucpro.compute.block_vectors import write_vectors
from virnucpro.compute.finish import RunBlocks, call_blocks, input_warnings, write_blocks
from virnucpro.compute.predict import predict
from virnucpro.compute.rank_encoder import Models
from virnucpro.compute.rank_launch import rank_task
from virnucpro.errors import DamagedSegmentError, InputError, SegmentError
from virnucpro.run.embed_job import embed_job
from virnucpro.run.execution import Execution
from virnucpro.run.predict_job import predict_job
from virnucpro.run.run import Run
from virnucpro.run_dir import RunDirectory
from virnucpro.runtime.devices import Device
from virnucpro.runtime.policy import Findings
from virnucpro.sequences.scan import scan
from virnucpro.store.block_segment import encode_block, open_block, write_block
from virnucpro.store.schema import RowState

WATCH = SimpleNamespace(report_next=id, report_encoded=id)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A bundle with pieces, of which records of a few kb have several."""
    folder = tmp_path_factory.mktemp("bundle") / "records"
    save_record_bundle(folder)
    return folder


def computed(job, old, folder, n_bytes, skipped=()):
    """Compute a job by blocks; write the outputs into a folder, with the manifest of `old`."""
    run = Run.open(RunDirectory(old))
    target = RunDirectory(folder)
    target.root.mkdir()
    inputs = scan(job.inputs, job.index.pairs, folder.parent, n_bytes)
    rank = rank_task(run, job, [Device("cpu")], Execution(folder, devices="cpu", threads=1))
    classes, calibrated = len(run.manifest.classes), bool(run.manifest.calibration)
    task = BlockTask(inputs, job.index, job.rules, rank, classes, calibrated)
    models, segments = Models.of(job, "cpu"), {}
    for number in range(len(inputs.blocks)):
        if number not in skipped:
            segments[number] = folder.parent / f"block-{number:06d}.h5"
            write_block(segments[number], compute_block(task, number, models, WATCH, Findings()))
    blocks = RunBlocks(inputs, job.index, job.rules, run.manifest, segments)
    called = call_blocks(blocks, run.manifest)
    write_blocks(target, blocks, run.manifest, called)
    if run.stores_vectors:
        write_vectors(target.embeddings, blocks, run.manifest)
    return SimpleNamespace(
        run=run, blocks=blocks, warnings=input_warnings(blocks, called), task=task
    )


def compare(job, folder, n_bytes, wanted_blocks):
    """Compute a job by rows and by blocks; compare all files of results and the warnings."""
    old, new = folder / "old", folder / "new"
    predict(job, Execution(old, devices="cpu", threads=1, in_process=True, report=False))
    found = computed(job, old, new, n_bytes)
    assert wanted_blocks(len(found.blocks.scan.blocks))
    assert [one.n_records for one in found.run.manifest.inputs] == counts(found.blocks)
    assert found.warnings == list(found.run.index.warnings)
    paths = files(old, found.run.paths)
    assert paths == files(new, found.run.paths)
    for path in paths:
        if path.suffix == ".h5":
            compare_vectors(old / path, new / path)
        else:
            assert (new / path).read_bytes() == (old / path).read_bytes(), path
    return found


def files(folder, paths):
    """Return the files of results, without those of the run and of MultiQC."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    others = (paths.machine.name, "multiqc")
    return sorted(path for path in found if not str(path).startswith(others))


def counts(blocks):
    found = [0] * len(blocks.scan.files)
    for block in blocks.scan.blocks:
        found[block.spans[0].file] += block.n_records
    return found


def compare_vectors(old, new):
    with h5py.File(old) as first, h5py.File(new) as second:
        assert {*first} == {*second}
        for name in first:
            if name in {"embeddings", "residues"}:
                assert first[name].dtype == second[name].dtype
                np.testing.assert_allclose(second[name][:], first[name][:], rtol=0, atol=1e-6)
                assert dict(first[name].attrs.items()).keys() == second[name].attrs.keys()
            else:
                assert (first[name][:] == second[name][:]).all()
        for name, value in first.attrs.items():
            assert np.all(second.attrs[name] == value)


def bases(seed, n):
    return "".join(random.Random(seed).choices(CODING, k=n))


def fastq(records, mark="I"):
    return "".join(f"@{name}\n{text}\n+\n{mark * len(text)}\n" for name, text in records)


def reads(seed, n, end=""):
    dice = random.Random(seed)
    return [
        (f"read{number}{end}", bases(f"{seed}{number}", dice.randint(20, 60)))
        for number in range(n)
    ]


def fasta(records, line=70, ends="\n"):
    texts = (
        ends.join([f">{name}", *(text[n : n + line] for n in range(0, len(text), line)), ""])
        for name, text in records
    )
    return "".join(texts)


def bam(path, first, second, alone=()):
    header = {"HD": {"VN": "1.6"}, "SQ": [{"SN": "chr", "LN": 1000}]}
    with pysam.AlignmentFile(str(path), "wb", header=header) as file:
        for number, ((name, one), (_, two)) in enumerate(zip(first, second, strict=True)):
            order = [(one, 77), (two, 141)]
            for text, flag in order[:: -1 if number % 3 == 0 else 1]:
                _write(file, name.removesuffix("/1"), text, flag)
            if number < len(alone):
                _write(file, *alone[number], 4)


def _write(file, name, text, flag):
    read = pysam.AlignedSegment(file.header)
    read.query_name, read.flag, read.query_sequence = name, flag, text
    read.query_qualities = pysam.qualitystring_to_array("5" * len(text))
    file.write(read)


ODD = (
    ("=name", "ACGTRYKMSWBDHVN" * 50),
    ("again", bases("x", 300)),
    ("", bases("y", 300)),
    ("again", bases("x", 300)),
    ("gaps", "AC-GT..ACGT" * 60),
    ("again|provirus_1_900", bases("z", 400)),
    ("bad", "ACGT*EFILPQ" * 30),
    ("nothing", ""),
    ("simple", "AC" * 2000),
    ("again", "U" * 500),
    ("unknown", "N" * 3000),
)
MATES = reads("first", 40, "/1"), reads("second", 40, "/2")


def contigs(folder):
    records = [(f"c{n}", bases(n, n * 37 % 900 + 60)) for n in range(30)]
    runs = [("runs", f"{bases('a', 400)}{'N' * 5000}{bases('b', 300)}{'N' * 30}{bases('c', 700)}")]
    long = [("long", bases("long", 40_000))]
    text = fasta([*records[:12], *runs, *long, *records[12:]])
    (folder / "contigs.fa").write_text(text)
    return [folder / "contigs.fa"], {"genes": True}


def odd_records(folder):
    (folder / "odd.fa").write_bytes(b"\xef\xbb\xbf \n\n" + fasta(ODD, ends="\r").encode())
    (folder / "crlf.fa").write_bytes(fasta([*ODD[1:], ("a>b", bases(1, 99))], ends="\r\n").encode())
    return [folder / "odd.fa", folder / "crlf.fa"], {"extract": "viral,non-viral,ambiguous"}


def compressed(folder):
    for name, seed in (("a", 1), ("b", 2)):
        text = fasta([(f"c{n}", bases(f"{seed}{n}", 400)) for n in range(9)])
        (folder / f"{name}.fa.gz").write_bytes(gzip.compress(text.encode()))
    return [folder / "a.fa.gz", folder / "b.fa.gz", folder / "a.fa.gz"], {"compress": True}


def single_reads(folder):
    text = fastq([*reads("single", 50), ("r", bases(3, 700)), ("", ""), ("empty", "")])
    (folder / "reads.fastq").write_text(text + "\n\n")
    (folder / "nothing.fastq").write_text("")
    return [folder / "reads.fastq", folder / "nothing.fastq"], {"min_length": 60}


def two_files(folder):
    first, second = folder / "r1.fastq", folder / "r2.fastq.gz"
    first.write_text(fastq(MATES[0]))
    second.write_bytes(gzip.compress(fastq(MATES[1], "!").encode()))
    return [first, second], {"paired": True, "extract": "viral,non-viral"}


def interleaved(folder):
    both = [mate for pair in zip(*MATES, strict=True) for mate in pair]
    (folder / "both.fa").write_text(fasta(both))
    return [folder / "both.fa"], {"interleaved": True, "extract": "viral,non-viral"}


def alignments(folder):
    bam(folder / "reads.bam", *MATES, alone=reads("alone", 20))
    return [folder / "reads.bam"], {"interleaved": True, "extract": "viral,non-viral"}


def unpaired_alignments(folder):
    bam(folder / "reads.bam", *MATES, alone=reads("alone", 20))
    return [folder / "reads.bam"], {"extract": "viral,non-viral"}


def empty_file(folder):
    (folder / "empty.fa").write_text("")
    return [folder / "empty.fa"], {}


INPUTS = [
    *(contigs, odd_records, compressed, single_reads, two_files, interleaved, alignments),
    *(unpaired_alignments, empty_file),
]


@pytest.mark.parametrize("n_bytes", [3_000, 1 << 30])
@pytest.mark.parametrize("inputs", INPUTS)
def test_blocks_give_the_files_of_a_run_by_rows(inputs, n_bytes, bundle, tmp_path):
    paths, options = inputs(tmp_path)
    job = predict_job(paths, bundle=bundle, precision="fp32", **options)
    many = n_bytes < 1 << 20 and inputs is not empty_file
    compare(job, tmp_path, n_bytes, lambda n: n > 3 if many else n <= len(paths))


def test_an_encoder_of_proteins_gives_equal_vectors_and_tables(tmp_path):
    records = [
        (f"p{n}", "".join(random.Random(n).choices("ACDEFGHIKLMNPQRSTVWY", k=n + 1)))
        for n in range(30)
    ]
    records += [("again", records[9][1]), ("", ""), ("odd", "MKXBZUJ*"), ("bad", "MK1")]
    path = tmp_path / "proteins.faa"
    path.write_text(fasta(records))
    job = embed_job(path, encoder="mini-deep/protein", precision="fp32", embeddings="fp32")
    compare(job, tmp_path, 200, lambda n: n > 3)


@pytest.mark.parametrize("pooling", ["mean", "none"])
def test_missing_blocks_of_embed_have_no_vectors(pooling, tmp_path):
    path = tmp_path / "bases.fa"
    path.write_text(fasta([(f"r{n}", bases(n, 30)) for n in range(12)]))
    job = embed_job(path, encoder="mini-deep/nucleotide", precision="fp32", pooling=pooling)
    predict(job, Execution(tmp_path / "old", devices="cpu", threads=1, in_process=True))
    computed(job, tmp_path / "old", tmp_path / "new", 300, skipped=(1,))
    name = "residues" if pooling == "none" else "embeddings"
    with h5py.File(tmp_path / "new/embeddings.h5") as file:
        status, vectors = file["status"][:], file[name][:]
        assert file.attrs["n_missing"] == np.count_nonzero(status == RowState.MISSING) == 4
        with h5py.File(tmp_path / "old/embeddings.h5") as whole:
            kept = np.repeat(status, np.diff(whole.get("offsets", range(13)))) == RowState.DONE
            found = vectors if pooling == "none" else vectors[kept]
            np.testing.assert_allclose(found, whole[name][:][kept], rtol=0, atol=1e-3)
            assert pooling == "none" or np.isnan(vectors[~kept]).all()
            assert (file["sequence_ids"][:] == whole["sequence_ids"][:]).all()


def test_frames_give_equal_published_files(tmp_path):
    (tmp_path / "frames.fa").write_text(random_records(12, seed="frames", least=80))
    options = {"bundle": "mini-deep", "precision": "fp32", "published_files": True}
    compare(predict_job(tmp_path / "frames.fa", **options), tmp_path, 900, lambda n: n > 3)


def test_records_of_missing_blocks_are_missing_and_the_others_unchanged(bundle, tmp_path):
    paths, options = contigs(tmp_path)
    job = predict_job(paths, bundle=bundle, precision="fp32", prevalence=0.1, **options)
    old = tmp_path / "old"
    predict(job, Execution(old, devices="cpu", threads=1, in_process=True, report=False))
    found = computed(job, old, tmp_path / "new", 3_000, skipped=(0, 2))
    first = found.blocks.first
    absent = {*range(first[0], first[1]), *range(first[2], first[3])}
    before, after = (read_table(folder / "predictions.tsv") for folder in (old, tmp_path / "new"))
    for number, (row, other) in enumerate(zip(before, after, strict=True)):
        if number in absent:
            same = ("seq_name", "length", "n_windows", "file", "record")
            assert other["status"] == "missing"
            assert [row[name] for name in same] == [other[name] for name in same]
        else:
            assert {**row, "fdr": ""} == {**other, "fdr": ""}
    missing = read_table(tmp_path / "new/missing.tsv")
    assert [row["seq_name"] for row in missing] == [before[n]["seq_name"] for n in sorted(absent)]


def test_a_segment_is_whole_and_of_its_block_or_refused(bundle, tmp_path):
    paths, options = contigs(tmp_path)
    job = predict_job(paths, bundle=bundle, precision="fp32", **options)
    predict(job, Execution(tmp_path / "old", devices="cpu", threads=1, in_process=True))
    task = computed(job, tmp_path / "old", tmp_path / "new", 3_000).task
    path, mark = tmp_path / "block-000001.h5", task.rank.fingerprint
    again = compute_block(task, 1, Models.of(job, "cpu"), WATCH, Findings())
    assert encode_block(again) == path.read_bytes()
    read = open_block(path, 1, mark)
    assert read.about == json.loads(json.dumps(again.about))
    assert {name: values.tolist() for name, values in read.arrays.items()} == {
        name: values.tolist() for name, values in again.arrays.items()
    }
    for number, fingerprint in ((2, mark), (1, "other")):
        with pytest.raises(SegmentError, match="a segment of block 1 of another run"):
            open_block(path, number, fingerprint)
    content = path.read_bytes()
    for damaged in (content[:-1], content[:2000] + b"?" + content[2001:]):
        path.write_bytes(damaged)
        with pytest.raises(DamagedSegmentError, match="truncated or altered"):
            open_block(path, 1, mark)
    path.write_bytes(b"")
    with pytest.raises(SegmentError, match="not a segment of version"):
        open_block(path, 1, mark)


def test_a_file_of_mostly_invalid_records_is_refused(bundle, tmp_path):
    path = tmp_path / "bad.fa"
    path.write_text(fasta([("a", bases("a", 300)), *((f"x{n}", "EFIL" * 99) for n in range(9))]))
    job = predict_job(path, bundle=bundle, precision="fp32")
    ok = predict_job(contigs(tmp_path)[0], bundle=bundle, precision="fp32")
    predict(ok, Execution(tmp_path / "old", devices="cpu", threads=1, in_process=True))
    with pytest.raises(InputError, match=r"record 2 \(x0\): .* \(9 of 10 records"):
        computed(job, tmp_path / "old", tmp_path / "new", 1_000)
