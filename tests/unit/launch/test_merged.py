import gzip
import os
from dataclasses import replace
from pathlib import Path

import pytest

from virnucpro.launch.balancer import LoadBalancer
from virnucpro.launch.results import FileResult
from virnucpro.launch.table import LaunchTable, MergedOutputs
from virnucpro.launch_dir import FileStatus


def result(folder, number, status=FileStatus.DONE, *, table="seq_name\tcall\n", fasta=None):
    """Return the result of a file, whose outputs are written."""
    run = folder / f"run-{number}"
    run.mkdir()
    (run / "predictions.tsv").write_text(table)
    outputs = {"predictions.tsv": str(run / "predictions.tsv")}
    if fasta is not None:
        (run / "viruses.fasta").write_text(fasta)
        outputs["viruses.fasta"] = str(run / "viruses.fasta")
    return FileResult(f"{number}.fa", status, result={"outputs": outputs})


def test_rows_and_sequences_are_merged_in_the_order_of_the_table(tmp_path):
    results = [
        result(tmp_path, 1, table="seq_name\tcall\na\tviral\n", fasta=">a\nAC\n"),
        FileResult("2.fa", FileStatus.LEFT),
        FileResult("3.fa", FileStatus.FAILED, result={"outputs": "none"}),
        result(tmp_path, 4, FileStatus.PARTIAL, table="seq_name\tcall\na\tnon-viral\n", fasta=""),
    ]
    MergedOutputs(Path(), tmp_path).write(results)
    merged = (tmp_path / "launch.predictions.tsv").read_text()
    assert merged == "seq_name\tcall\na\tviral\na\tnon-viral\n"
    assert (tmp_path / "launch.viruses.fasta").read_text() == ">1|a\nAC\n"
    assert not (tmp_path / "launch.viruses.fasta.gz").exists()


def test_the_column_file_has_the_names_of_the_launch(tmp_path):
    results = [
        result(tmp_path, number, table=f"seq_name\tfile\tcall\n{number}\tsub.fa\tviral\n")
        for number in (1, 2)
    ]
    MergedOutputs(Path(), tmp_path).write(results)
    merged = (tmp_path / "launch.predictions.tsv").read_text()
    assert merged == "seq_name\tfile\tcall\n1\t1.fa\tviral\n2\t2.fa\tviral\n"


def test_headers_have_the_names_of_the_launch(tmp_path):
    """A join of launch.viruses.fasta and launch.predictions.tsv by file gives the same sequence."""
    one = result(tmp_path, 1, fasta=">k1 name=k1 file=a.fa record=1\nAC\n")
    MergedOutputs(Path(), tmp_path).write(
        [replace(one, file="x/a 1.fa"), FileResult("b", one.status)]
    )
    merged = (tmp_path / "launch.viruses.fasta").read_text()
    assert merged == ">x_a%201|k1 name=k1 file=x/a%201.fa record=1\nAC\n"


def test_tables_of_other_columns_are_not_merged(tmp_path):
    results = [result(tmp_path, 1), result(tmp_path, 2, table="name\tcall\n")]
    with pytest.raises(OSError, match=r"run-2/predictions.tsv has other columns than .*run-1/pred"):
        MergedOutputs(Path(), tmp_path).write(results)


@pytest.mark.parametrize("name", ["viruses.fasta.gz", "viruses.fastq.gz"])
def test_compressed_files_are_joined(tmp_path, name):
    results = []
    for number in range(3):
        path = tmp_path / f"{number}-{name}"
        text = ">k1 x\nA\n" if "fasta" in name else "@k1 x\nA\n+\n@\n"
        path.write_bytes(gzip.compress(text.encode()))
        outputs = {"outputs": {name: str(path)}}
        results.append(FileResult(f"{number}.fa", FileStatus.SKIPPED, result=outputs))
    MergedOutputs(Path(), tmp_path).write(results)
    with gzip.open(tmp_path / f"launch.{name}", "rt") as stream:
        assert [line for line in stream if "k1" in line] == [
            f"{'>' if 'fasta' in name else '@'}{number}|k1 x\n" for number in range(3)
        ]


def test_merged_outputs_are_kept_up_and_removed(tmp_path):
    merged, path = MergedOutputs(Path(), tmp_path), tmp_path / "launch.predictions.tsv"
    merged.update([FileResult("1.fa", FileStatus.LEFT)])
    assert not path.exists()
    first = result(tmp_path, 1, table="seq_name\tcall\na\tviral\n")
    merged.update([first])
    assert path.read_text().count("\n") == 2
    before = path.stat().st_mtime_ns
    merged.update([first])
    assert path.stat().st_mtime_ns == before
    merged.write([])
    assert not path.exists()


@pytest.mark.parametrize("place", ["outside", "pipe", "link", "folder", "out/../outside"])
def test_only_files_in_the_output_folder_are_merged(tmp_path, place):
    (tmp_path / "outside").write_text("secret\n")
    out = tmp_path / "out"
    (out / "folder").mkdir(parents=True)
    os.mkfifo(out / "pipe")
    (out / "link").symlink_to(tmp_path / "outside")
    path = out / place if (out / place).exists() else tmp_path / place
    edited = FileResult("a.fa", FileStatus.DONE, result={"outputs": {"viruses.fasta": str(path)}})
    with pytest.raises(OSError, match=f"{place} is not a file in .*out: rerun a.fa"):
        MergedOutputs(Path(), out).write([edited])
    assert not (out / "launch.viruses.fasta").exists()


@pytest.mark.parametrize("failed", [0, 1])
def test_a_launch_that_cannot_merge_says_so_and_keeps_its_table(tmp_path, capsys, failed):
    lost = result(tmp_path, 1)
    Path(lost.result["outputs"]["predictions.tsv"]).unlink()
    balancer = LoadBalancer([0])
    balancer.results.append(lost)
    files = [Path("1.fa"), *[Path("2.fa")] * failed]
    report = LaunchTable(Path(), tmp_path, files, {}, balancer).end()
    assert report.exit_code == 2
    assert "could not be merged" in capsys.readouterr().err
    assert (tmp_path / "launch.tsv").read_text().count("\n") == 2 + failed
