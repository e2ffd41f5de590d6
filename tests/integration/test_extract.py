"""viruses.fasta and the columns of the origin, as a user of predict gets them."""

import gzip

import pytest
from samples import read_table

from virnucpro.cli.main import main

pytestmark = pytest.mark.usefixtures("one_process")


@pytest.fixture(scope="module")
def run(small_fasta, tmp_path_factory):
    """A run of two files whose records have the same names."""
    folder = tmp_path_factory.mktemp("extract")
    second = folder / "second.fa.gz"
    second.write_bytes(gzip.compress(small_fasta.read_bytes()))
    command = ["predict", str(small_fasta), str(second), "-o", str(folder / "run"), "-q"]
    options = ["--prevalence", "0.5", "--devices", "cpu:1", "--embeddings", "none"]
    assert main([*command, *options]) == 0
    return folder / "run", command[:5]


def names(path):
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [line[1:].split() for line in text.decode().splitlines() if line.startswith(">")]


def test_viral_records_are_written_with_score_and_length(run):
    folder, _ = run
    viral = [row for row in read_table(folder / "predictions.tsv") if row["call"] == "viral"]
    assert viral
    found = names(folder / "viruses.fasta")
    wanted = [
        [
            f"{row['file'].partition('.')[0]}|{row['seq_name']}",
            *("kind=virus", f"probability={row['probability']}", f"score={row['score']}"),
            *("start=1", f"end={row['length']}", f"topology={row['topology']}"),
            f"name={row['seq_name']}",
            *(f"{name}={row[name]}" for name in ("length", "file", "record")),
        ]
        for row in viral
    ]
    assert found == wanted


def test_equal_names_of_two_files_are_told_apart(run):
    folder, _ = run
    predictions = read_table(folder / "predictions.tsv")
    keys = [(row["file"], int(row["record"])) for row in predictions]
    half = len(predictions) // 2
    assert keys == [(name, n) for name in ("small.fa", "second.fa.gz") for n in range(1, half + 1)]
    by_key = dict(zip(keys, predictions, strict=True))
    for window in read_table(folder / "tracks" / "windows.tsv"):
        record = by_key[window["file"], int(window["record"])]
        assert record["seq_name"] == window["seq_name"]
        assert int(window["end"]) <= int(record["length"])


def test_a_resume_chooses_other_files_and_verify_agrees(run):
    folder, command = run
    words = [*command, "--resume", "-q", "--prevalence", "0.5", "--embeddings", "none"]
    assert main([*words, "--extract", "ambiguous,non-viral,not_scored", "--compress"]) == 0
    written = {path.name for path in folder.glob("*.fasta*")}
    assert written == {"ambiguous.fasta.gz", "non-viral.fasta.gz", "not_scored.fasta.gz"}
    calls = [row["call"] for row in read_table(folder / "predictions.tsv")]
    assert len(names(folder / "non-viral.fasta.gz")) == calls.count("non-viral")
    assert main(["verify", str(folder)]) == 0
    assert main([*words, "--extract", "non-viral"]) == 0  # as compressed as before
    assert {path.name for path in folder.glob("*.fasta*")} == {"non-viral.fasta.gz"}
    assert main([*words, "--extract", "none"]) == 0
    assert not list(folder.glob("*.fasta*"))
    assert main([*words, "--extract", "viral"]) == 0
    with gzip.open(folder / "viruses.fasta.gz", "wt") as stream:
        stream.write(">edited\nA\n")
    assert main(["verify", str(folder)]) == 1
