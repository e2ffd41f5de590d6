"""Files are found, and distributed without loss."""

import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.errors import UsageError
from virnucpro.launch import ResourceAllocator, distribute_to_gpus

ALLOCATOR = ResourceAllocator()


@pytest.fixture
def tree(tmp_path):
    for name, size in (("b.fa", 30), ("a.fa", 10), ("sub/a.fa", 20), ("sub/a.fa.gz", 20)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x" * size)
    (tmp_path / "run.fa").mkdir()  # a run folder has the name of its file
    return tmp_path


def names(files, tree):
    return [str(file.relative_to(tree)) for file in files]


def test_matching_files_are_returned_sorted_without_folders(tree):
    assert names(ALLOCATOR.discover_files(tree, "*.fa"), tree) == ["a.fa", "b.fa"]
    found = names(ALLOCATOR.discover_files(str(tree), "**/a.fa*"), tree)
    assert found == ["a.fa", "sub/a.fa", "sub/a.fa.gz"]
    assert ALLOCATOR.discover_files(tree, "*.fq") == []


PATTERNS = {
    "*": "a.txt",
    ".*": ".hidden",
    "**/*.txt": "a.txt sub/b.txt sub/deep/c.txt",
    "**": "a.txt sub/b.txt sub/deep/c.txt",
    "sub/*": "sub/b.txt",
    "*/*/c.*": "sub/deep/c.txt",
    "*/*": "sub/b.txt",
    "**/deep/**/*": "sub/deep/c.txt",
    "[!a]*": "",
}


def test_patterns_match_as_in_a_shell(files):
    folder = files(a="", sub__b="", sub__deep__c="")
    (folder / ".hidden").touch()
    outputs = {
        "out/run/run.json": '{"schema_version": 1, "fingerprint": ""}',
        "all/launch.json": "",
    }
    for name, content in outputs.items():  # outputs of this program are no input
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(content)
        (folder / name).with_suffix(".tsv").touch()
        (folder / name.partition("/")[0] / "d.txt").touch()
    for pattern, wanted in PATTERNS.items():
        found = ALLOCATOR.discover_files(folder, pattern)
        assert {str(path.relative_to(folder)) for path in found} == set(wanted.split()), pattern


MAC = [".DS_Store", "._s1.fa", ".hidden.fa", "sub/._s2.fa", ".Trashes/501/s1.fa"]
SNAPSHOTS = [".snapshot/hourly.0/s1.fa", ".zfs/snapshot/daily/s1.fa", "sub/.snapshot/weekly/s2.fa"]


def test_a_folder_from_a_mac_or_of_a_file_system_with_snapshots(tmp_path):
    folder = tmp_path / ".data"  # the folder itself may be hidden
    for name in ("s1.fa", "sub/s2.fa", *MAC, *SNAPSHOTS):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    for pattern, wanted in (
        ("*", ["s1.fa"]),
        ("**/*", ["s1.fa", "sub/s2.fa"]),
        ("*/*/*", []),
        (".hid*", [".hidden.fa"]),
        ("**/._*", ["._s1.fa", "sub/._s2.fa"]),
        (".snapshot/**/*.fa", SNAPSHOTS[:1]),
        ("**/.snapshot/*/*", [SNAPSHOTS[0], SNAPSHOTS[2]]),
    ):
        assert names(ALLOCATOR.discover_files(folder, pattern), folder) == wanted, pattern


def test_files_of_other_programs_hide_no_folder(files):
    folder = files(sub__b="")
    os.mkfifo(folder / "sub" / "run.json")
    (folder / "sub" / "run").mkdir()
    os.mkfifo(folder / "sub" / "run" / "run.json")
    (folder / "sub" / "launch.json").touch()
    assert [*ALLOCATOR.discover_files(folder, "*/b*")] == [folder / "sub" / "b.txt"]


def test_patterns_that_leave_the_folder_are_refused(tree):
    for pattern in ("", "../*", "sub/../../*", "/etc/*"):
        with pytest.raises(UsageError, match="below the folder"):
            ALLOCATOR.discover_files(tree, pattern)
    with pytest.raises(UsageError, match=r"'\*\*' matches"):
        ALLOCATOR.discover_files(tree, "a**b")


def test_a_missing_folder_is_refused(tree):
    assert ALLOCATOR.validate_input_dir(tree) == (True, "")
    ok, error = ALLOCATOR.validate_input_dir(tree / "a.fa")
    assert not ok
    assert "a.fa is not a folder" in error
    with pytest.raises(UsageError, match="not a folder"):
        ALLOCATOR.discover_files(tree / "nowhere")


def test_the_task_queue_has_the_largest_files_first_and_an_end_for_each_worker(tree):
    files = ALLOCATOR.discover_files(tree, "**/*.fa*")
    queue = ALLOCATOR.create_task_queue(files, 3)
    taken = [queue.get_nowait() for _ in range(queue.qsize())]
    assert names(taken[:-3], tree) == ["b.fa", "sub/a.fa", "sub/a.fa.gz", "a.fa"]
    assert taken[-3:] == [None, None, None]
    with pytest.raises(ValueError, match="at least one"):
        ALLOCATOR.create_task_queue(files, 0)


def test_the_workload_is_estimated(tree):
    estimate = ALLOCATOR.estimate_workload(ALLOCATOR.discover_files(tree, "**/*.fa*"))
    assert (estimate["file_count"], estimate["total_size"]) == (4, 80)
    assert (estimate["average_size"], estimate["largest_size"]) == (20.0, 30)
    assert estimate["largest_file"] == tree / "b.fa"
    assert ALLOCATOR.estimate_workload([])["file_count"] == 0


def test_missing_files_are_distributed_too():
    parts = ALLOCATOR.distribute_workload([Path("a.wav"), Path("b.wav")], num_gpus=2)
    assert sorted(map(len, parts)) == [1, 1]


@pytest.fixture
def sized(monkeypatch):
    """Sizes of files that need not exist."""
    sizes = {}
    monkeypatch.setattr("virnucpro.launch.allocator._size", lambda file: sizes[file])
    return sizes


@pytest.mark.parametrize("strategy", ["size", "round_robin", "contiguous"])
def test_every_file_goes_to_one_gpu_and_loads_by_size_are_balanced(sized, strategy):
    @given(st.lists(st.integers(0, 10**6), max_size=40), st.integers(1, 9))
    def check(sizes, n_gpus):
        files = [Path(f"{number:03d}") for number in range(len(sizes))]
        sized.update(zip(files, sizes, strict=True))
        parts = ALLOCATOR.distribute_workload(files, n_gpus, strategy)
        assert len(parts) == n_gpus
        assert sorted(file for part in parts for file in part) == files
        loads = [sum(sized[file] for file in part) for part in parts]
        if strategy == "size" and files:
            assert max(loads) <= sum(loads) / n_gpus + max(sizes)
        if strategy == "round_robin":
            assert max(map(len, parts)) - min(map(len, parts)) <= 1
        if strategy == "contiguous":
            assert [file for part in parts for file in part] == files
            assert len(parts[0]) == math.ceil(len(files) / n_gpus)

    check()


@given(st.lists(st.integers(), max_size=60), st.integers(1, 12))
def test_records_are_cut_into_contiguous_parts(records, n_gpus):
    parts = distribute_to_gpus(records, n_gpus)
    assert [record for part, _, _ in parts for record in part] == records
    assert [(gpu, position) for _, gpu, position in parts] == [
        (number, number) for number in range(len(parts))
    ]
    size = math.ceil(len(records) / n_gpus)
    assert all(len(part) == size for part, _, _ in parts[:-1])
    assert all(part for part, _, _ in parts)


def test_work_is_not_distributed_over_zero_gpus():
    with pytest.raises(ValueError, match="at least 1"):
        distribute_to_gpus([1], 0)
    with pytest.raises(ValueError, match="at least 1"):
        ALLOCATOR.distribute_workload([], -1)
