import gzip
import os

import pytest

from virnucpro.errors import InputError, UsageError
from virnucpro.run.options import FramesOptions
from virnucpro.run.write_frames import write_frames, write_frames_files
from virnucpro.tables import write

FASTA = b">gene\nATGGCCAAAGGTCCC\n"
OUTPUTS = ["gene_chunked500.fa", "gene_identified_nucleotide.fa", "gene_identified_protein.faa"]


def frames(tmp_path, *names, out="out", **options):
    """Write the frames of files in `tmp_path` to a folder in it."""
    inputs = [tmp_path / name for name in names]
    return [path.name for path in write_frames(inputs, tmp_path / out, FramesOptions(**options))]


@pytest.mark.parametrize(
    "content",
    [None, b">gene\nATGE\n", b"no sequences\n", gzip.compress(FASTA, mtime=0)[:-9]],
    ids=["no file", "a protein", "no FASTA", "truncated gzip"],
)
def test_a_refused_input_leaves_no_folder(content, tmp_path):
    if content is not None:
        (tmp_path / "gene.fa").write_bytes(content)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError):
        frames(tmp_path, "gene.fa")
    assert sorted(tmp_path.iterdir()) == before


def test_existing_files_are_kept_unless_forced(tmp_path):
    (tmp_path / "gene.fa").write_bytes(FASTA)
    assert frames(tmp_path, "gene.fa") == OUTPUTS
    for path in (tmp_path / "out").iterdir():
        path.write_text("older")
    with pytest.raises(UsageError, match=r"chunked500\.fa: the file exists; use --force"):
        frames(tmp_path, "gene.fa")
    assert {path.read_text() for path in (tmp_path / "out").iterdir()} == {"older"}
    frames(tmp_path, "gene.fa", force=True)
    assert (tmp_path / "out" / OUTPUTS[0]).read_text() == ">gene_chunk_1\nATGGCCAAAGGTCCC\n"


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_an_output_that_is_no_regular_file_is_refused(kind, tmp_path):
    (tmp_path / "gene.fa").write_bytes(FASTA)
    (tmp_path / "out").mkdir()
    path = tmp_path / "out" / OUTPUTS[1]
    os.mkfifo(path) if kind == "pipe" else path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"nucleotide\.fa: is not a regular file"):
        frames(tmp_path, "gene.fa", force=True)
    assert [entry.name for entry in (tmp_path / "out").iterdir()] == [path.name]


def test_an_input_is_never_overwritten(tmp_path):
    for name in ("gene.fa", OUTPUTS[0]):
        (tmp_path / name).write_bytes(FASTA)
    with pytest.raises(UsageError, match=r"chunked500\.fa: both an input and an output"):
        frames(tmp_path, "gene.fa", OUTPUTS[0], out=tmp_path, force=True)
    assert (tmp_path / OUTPUTS[0]).read_bytes() == FASTA


def test_inputs_with_the_same_output_files_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"gene_\*: several inputs have output files"):
        frames(tmp_path, "gene.fa", "gene.fq.gz")
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_an_input(tmp_path):
    reader, writer = os.pipe()
    os.write(writer, FASTA)
    os.close(writer)
    try:
        assert len(frames(tmp_path, f"/dev/fd/{reader}")) == 3
    finally:
        os.close(reader)


def test_names_with_control_characters_are_counted_in_one_warning(tmp_path, capsys):
    (tmp_path / "gene.fa").write_bytes(FASTA + b">a\x1b[2J\nA\n>b\x07\nA\n")
    frames(tmp_path, "gene.fa")
    warning = capsys.readouterr().err
    assert warning.count("\n") == 1
    assert "gene.fa: sequence names with control characters" in warning


def test_a_warning_names_its_file_once(tmp_path, capsys):
    (tmp_path / "gene.fq").write_bytes(b"@a\n%b\n+\n%b\n" % (b"ACGTGC" * 200, b"./" * 600))
    frames(tmp_path, "gene.fq")
    printed = capsys.readouterr().err
    assert "mean error rate" in printed
    assert "break open frames" in printed
    assert "mini" not in printed
    assert printed.count("gene.fq") == 1


# --- the files


@pytest.fixture
def paths(tmp_path):
    return [tmp_path / name for name in ("chunked.fa", "nucleotide.fa", "protein.faa")]


@pytest.mark.shared
@pytest.mark.parametrize("rows_at_once", [1, 1000])
def test_fasta_files_equal_those_of_the_published_tool(
    shared, index_file, paths, monkeypatch, rows_at_once
):
    monkeypatch.setattr(write, "_ROWS_AT_ONCE", rows_at_once)
    reference = shared / "reference" / "published-tool"
    index = index_file(reference / "test_with_orfs.fa", window=500)
    write_frames_files(index, *paths)
    for path, suffix in zip(
        paths,
        ("chunked500.fa", "identified_nucleotide.fa", "identified_protein.faa"),
        strict=True,
    ):
        assert path.read_bytes() == (reference / f"test_with_orfs_{suffix}").read_bytes()


def test_windows_without_frames_are_written(index_records, paths):
    index = index_records([("closed", "TTAA" * 20), ("twice", "GCC" * 2), ("twice", "GCC" * 2)])
    write_frames_files(index, *paths)
    chunked, nucleotide, protein = (path.read_text() for path in paths)
    assert chunked == (
        f">closed_chunk_1\n{'TTAA' * 15}\n{'TTAA' * 5}\n"
        ">twice_chunk_1\nGCCGCC\n>twice_chunk_1\nGCCGCC\n"
    )
    assert nucleotide.startswith(">twice_chunk_1F1\nGCCGCC\n>twice_chunk_1F2\nCCGC\n")
    assert protein.startswith(">twice_chunk_1F1\nAA\n>twice_chunk_1F2\nP\n")
    assert nucleotide.count(">") == protein.count(">") == 12


def test_files_without_records_are_empty(index_records, paths):
    write_frames_files(index_records([]), *paths)
    assert [path.read_bytes() for path in paths] == [b"", b"", b""]
