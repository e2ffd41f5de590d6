import io
import os
import shutil
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from virnucpro.run import input_check
from virnucpro.run.input_check import InputStamps, current_digests, is_unchanged
from virnucpro.sequences.builder import input_digests
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec

WHOLE = IndexSpec("whole", Alphabet.NUCLEOTIDE)


@pytest.fixture
def fasta(tmp_path):
    path = tmp_path / "a.fa"
    path.write_bytes(b">a\n" + b"ACGT" * 2_000_000 + b"\n")
    return path


def stamp_of(path):
    (stamp,) = InputStamps([str(path)]).after_reading()
    return stamp


def write_in_place(path, place, data):
    with path.open("r+b") as stream:
        stream.seek(place)
        stream.write(data)


def test_an_untouched_file_is_unchanged(fasta):
    assert is_unchanged(str(fasta), stamp_of(fasta))


def with_its_former_time(path):
    before = path.stat()
    write_in_place(path, 4_000_001, b"C")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced_by_a_copy(path):
    shutil.copy2(path, path.with_name("copy")).replace(path)


@pytest.mark.parametrize(
    "change", [with_its_former_time, replaced_by_a_copy, lambda path: path.unlink()]
)
def test_a_file_that_may_have_changed_is_not_unchanged(change, fasta):
    stamp = stamp_of(fasta)
    change(fasta)
    assert not is_unchanged(str(fasta), stamp)


@pytest.mark.parametrize("place", [3, 4_000_000, 8_000_002])
def test_the_sample_finds_changes_if_the_times_do_not(place, fasta):
    stamp = stamp_of(fasta)
    start = place if place != 4_000_000 else (8_000_004 - 65_536) * 30 // 63
    write_in_place(fasta, start, b"N")
    times = stamp_of(fasta)
    forged = replace(stamp, mtime_ns=times.mtime_ns, ctime_ns=times.ctime_ns)
    assert not is_unchanged(str(fasta), forged)


def test_a_file_that_changes_while_it_is_read_has_no_stamp(fasta):
    stamps = InputStamps([str(fasta)])
    write_in_place(fasta, 0, b">b")
    assert stamps.after_reading() == (None,)


def test_pipes_and_standard_input_have_no_stamp(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-").write_bytes(b">a\nACGT\n")  # not standard input, but of the same name
    os.mkfifo(tmp_path / "pipe")
    assert InputStamps(["-", "pipe"]).after_reading() == (None, None)


def test_only_changed_files_are_read(fasta, tmp_path, monkeypatch):
    other = tmp_path / "b.fa"
    other.write_bytes(b">b\nACGT\n")
    paths = [str(fasta), str(other)]
    stamps = InputStamps(paths).after_reading()
    known = input_digests(paths, WHOLE)
    other.write_bytes(b">b\nACGG\n")
    expected = input_digests(paths, WHOLE)
    read = []

    def counted(some, *rules):
        read.extend(some)
        return input_digests(some, *rules)

    monkeypatch.setattr(input_check, "input_digests", counted)
    assert current_digests(paths, known, stamps, WHOLE) == expected
    assert read == [str(other)]


def test_a_pipe_is_read_completely(tmp_path, monkeypatch):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    text = b">a\nACGT\n"
    writer = threading.Thread(target=pipe.write_bytes, args=(text,))
    writer.start()
    (found,) = current_digests([str(pipe)], (None,), (None,), WHOLE)
    writer.join()
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text)))
    (again,) = current_digests(["-"], (found,), (None,), WHOLE)
    assert (found.sha256, found.n_records) == (again.sha256, 1)
