"""Files are found, and divided without loss."""

import math
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
    (tmp_path / "run.fa").mkdir()  # what a launch leaves is named after its file
    return tmp_path


def names(files, tree):
    return [str(file.relative_to(tree)) for file in files]


def test_files_are_found_by_pattern_sorted_and_folders_do_not_count(tree):
    assert names(ALLOCATOR.discover_files(tree, "*.fa"), tree) == ["a.fa", "b.fa"]
    found = names(ALLOCATOR.discover_files(str(tree), "**/a.fa*"), tree)
    assert found == ["a.fa", "sub/a.fa", "sub/a.fa.gz"]
    assert ALLOCATOR.discover_files(tree, "*.fq") == []


@pytest.mark.parametrize("pattern", ["", "../*", "sub/../../*", "/etc/*"])
def test_a_pattern_that_leads_out_is_refused(tree, pattern):
    with pytest.raises(UsageError, match=r"below the folder"):
        ALLOCATOR.discover_files(tree, pattern)


def test_what_is_no_folder_is_refused(tree):
    assert ALLOCATOR.validate_input_dir(tree) == (True, "")
    ok, error = ALLOCATOR.validate_input_dir(tree / "a.fa")
    assert not ok
    assert "a.fa is no folder" in error
    with pytest.raises(UsageError, match="no folder"):
        ALLOCATOR.discover_files(tree / "nowhere")


def test_the_queue_has_the_largest_first_and_an_end_for_each_worker(tree):
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


def test_files_that_are_not_there_have_no_size():
    parts = ALLOCATOR.distribute_workload([Path("a.wav"), Path("b.wav")], num_gpus=2)
    assert sorted(map(len, parts)) == [1, 1]


@pytest.fixture
def sized(monkeypatch):
    """Files of sizes that the test chooses, without writing them."""
    sizes = {}
    monkeypatch.setattr("virnucpro.launch.allocator._size", lambda file: sizes[file])
    return sizes


@pytest.mark.parametrize("strategy", ["size", "round_robin", "contiguous"])
def test_every_file_goes_to_one_gpu_and_by_size_none_has_much_more(sized, strategy):
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
def test_records_are_cut_into_runs_of_neighbours(records, n_gpus):
    parts = distribute_to_gpus(records, n_gpus)
    assert [record for part, _, _ in parts for record in part] == records
    assert [(gpu, position) for _, gpu, position in parts] == [
        (number, number) for number in range(len(parts))
    ]
    size = math.ceil(len(records) / n_gpus)
    assert all(len(part) == size for part, _, _ in parts[:-1])
    assert all(part for part, _, _ in parts)


@pytest.mark.parametrize("n_gpus", [0, -1])
def test_work_is_not_divided_among_nobody(n_gpus):
    with pytest.raises(ValueError, match="at least 1"):
        distribute_to_gpus([1], n_gpus)
    with pytest.raises(ValueError, match="at least 1"):
        ALLOCATOR.distribute_workload([], n_gpus)
