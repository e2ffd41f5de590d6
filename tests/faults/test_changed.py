"""Rows 16 and 17: resumes with other inputs or parameters."""

import json
import os
import shutil
from pathlib import Path

import pytest
from cases import TWO_THREADS
from samples import files_in

from virnucpro.cli.main import main
from virnucpro.run import input_check
from virnucpro.sequences.builder import input_digests

pytestmark = pytest.mark.usefixtures("one_process")


def edit_a_base(path):
    text = path.read_bytes()
    place = text.index(b"\n") + 50
    other = b"C" if text[place : place + 1] == b"A" else b"A"
    path.write_bytes(text[:place] + other + text[place + 1 :])


def swap_for_one_of_the_same_size_and_time(path):
    before = path.stat()
    edit_a_base(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def rename_a_record(path):
    path.write_bytes(path.read_bytes().replace(b">r7\n", b">s7\n"))


def cut_off_the_last_record(path):
    path.write_bytes(path.read_bytes().rpartition(b">")[0])


CHANGES = [
    edit_a_base,
    swap_for_one_of_the_same_size_and_time,
    rename_a_record,
    cut_off_the_last_record,
    Path.unlink,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_input_is_refused_by_name_and_the_old_table_is_kept(
    change, copy_of_run, few_fasta, tmp_path, called
):
    fasta = Path(shutil.copy2(few_fasta, tmp_path / "given.fa"))
    before = files_in(copy_of_run)
    change(fasta)
    printed = called("predict", fasta, "-o", copy_of_run, "--resume", code=1).stderr
    assert str(fasta) in printed
    assert files_in(copy_of_run) == before


def test_a_change_between_the_samples_is_refused_although_size_and_time_are_equal(
    copy_of_run, few_fasta, tmp_path, monkeypatch, called
):
    monkeypatch.setattr(input_check, "_BLOCKS", 2)
    monkeypatch.setattr(input_check, "_BLOCK_BYTES", 16)
    fasta = Path(shutil.copy2(few_fasta, tmp_path / "given.fa"))
    command = ["predict", str(fasta), "-o", str(copy_of_run), "--resume", "-q"]
    assert main(command) == 0  # the run now knows this file
    swap_for_one_of_the_same_size_and_time(fasta)
    assert f"the content of {fasta} differs" in called(*command, code=1).stderr


def test_equal_sequences_of_another_name_and_time_are_accepted(copy_of_run, few_fasta, tmp_path):
    fasta = tmp_path / "moved.fa"
    fasta.write_bytes(few_fasta.read_bytes().lower().replace(b"\n", b"\r\n"))
    os.utime(fasta, (0, 0))
    assert main(["predict", str(fasta), "-o", str(copy_of_run), "--resume", "-q"]) == 0


PARAMETERS = [
    ("--window", "301"),
    ("--precision", "bf16"),
    ("--embeddings", "fp32"),
    ("--min-length", "150"),
]


@pytest.mark.parametrize(("option", "value"), PARAMETERS)
def test_another_parameter_is_refused_by_name(option, value, copy_of_run, few_fasta, called):
    before = files_in(copy_of_run)
    name = option.removeprefix("--").replace("-", "_")
    own = json.loads((copy_of_run / "run" / "run.json").read_text())["parameters"][name]
    command = ["predict", str(few_fasta), "-o", str(copy_of_run), "--resume", option, value]
    assert f"{name} was {own} and is now {value}" in called(*command, code=1).stderr
    assert files_in(copy_of_run) == before


def test_a_run_keeps_its_least_length(few_fasta, tmp_path, capsys):
    command = ["predict", str(few_fasta), "-o", str(tmp_path / "run"), "-q", "--devices", "cpu:1"]
    assert main([*command, "--min-length", "0"]) == 0
    for options in ([], ["--min-length", "0"]):
        assert main([*command, "--resume", *options]) == 0
    capsys.readouterr()
    assert main([*command, "--resume", "--min-length", "99"]) == 1
    assert "min_length was 0 and is now 99" in capsys.readouterr().err


def test_a_run_with_invalid_records_is_resumed_unless_strict(few_fasta, tmp_path, capsys):
    fasta, folder = tmp_path / "in.fa", tmp_path / "run"
    fasta.write_bytes(few_fasta.read_bytes() + b">p\nMKVLEQ\n>g\nAC-GT\n")
    command = ["predict", str(fasta), "-o", str(folder), "-q", "--devices", "cpu:1"]
    assert main(command) == 0
    table = (folder / "predictions.tsv").read_bytes()
    assert b"invalid_letters" in table
    assert main([*command, "--resume", "--strict"]) == 1
    assert "record 121 (p): 'L' (line 242, letter 4)" in capsys.readouterr().err
    (folder / "predictions.tsv").unlink()
    os.utime(fasta)
    assert main([*command, "--resume"]) == 0
    assert (folder / "predictions.tsv").read_bytes() == table
    told = [line for line in capsys.readouterr().err.splitlines() if "warning:" in line]
    of_input = [line for line in told if "expected to be false" not in line]
    assert len(of_input) == 2
    assert main(["verify", str(folder)]) == 0


def test_another_command_is_refused(copy_of_run, few_fasta, called):
    command = ["embed", str(few_fasta), "-o", str(copy_of_run), "--encoder", "mini-deep/nucleotide"]
    assert "command was predict and is now embed" in called(*command, "--resume", code=1).stderr


def test_another_bundle_is_refused(copy_of_run, few_fasta, bundle_with, called):
    other = bundle_with(
        "protein.safetensors", lambda content: content[:-1] + bytes([content[-1] ^ 1])
    )
    command = ["predict", str(few_fasta), "-o", str(copy_of_run), "--resume"]
    assert "bundle_fingerprint was" in called(*command, "--bundle", other, code=1).stderr


@pytest.mark.parametrize(
    "options", [["--devices", "cpu:3"], ["--threads", "1"], ["--devices", "cpu:2", *TWO_THREADS]]
)
def test_devices_ranks_and_threads_may_change(options, copy_of_run, few_fasta):
    command = ["predict", str(few_fasta), "-o", str(copy_of_run), "--resume", "-q"]
    assert main([*command, *options]) == 0


def test_an_unchanged_input_is_read_once(copy_of_run, few_fasta, tmp_path, monkeypatch):
    fasta = shutil.copy2(few_fasta, tmp_path / "given.fa")
    command = ["predict", str(fasta), "-o", str(copy_of_run), "--resume", "-q"]
    read = []

    def counted(paths, *rules):
        read.append(len(paths))
        return input_digests(paths, *rules)

    monkeypatch.setattr(input_check, "input_digests", counted)
    assert main(command) == 0
    assert main(command) == 0
    os.utime(fasta)
    assert main(command) == 0
    assert main(command) == 0
    assert read == [1, 0, 1, 0]
