import pytest

from virnucpro.run.write_frames import write_frames_files
from virnucpro.tables import write


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
