import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.run.report import sample_names

FOLDERS = st.lists(st.sampled_from(["a", "b", "out", "Run"]), min_size=1, max_size=4)


@given(st.lists(FOLDERS, max_size=8))
def test_different_folders_have_different_names(folders):
    paths = [Path("/", *words) for words in dict.fromkeys(map(tuple, folders))]
    names = sample_names(paths)
    assert len({*names}) == len(names)
    assert all(name.endswith(path.name) for name, path in zip(names, paths, strict=True))


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["/data/gut"], ["gut"]),
        (["/data/gut/out"], ["gut_out"]),
        (["/data/gut/out/out"], ["gut_out"]),
        (["/data/gut/results/Run"], ["gut_Run"]),
        (["/out/out"], ["out"]),
        (["/"], [""]),
        (["/a/gut", "/b/gut"], ["a_gut", "b_gut"]),
        (["/a/out/gut", "/b/out/gut"], ["a_gut", "b_gut"]),
        (["/a/out/run", "/a/results/run"], ["a_out_run", "a_results_run"]),
    ],
)
def test_names(folders, names):
    assert sample_names([Path(folder) for folder in folders]) == names


def test_the_time_is_linear():
    paths = [Path(f"/data/sample{number}/out") for number in range(8_000)]
    before = time.process_time()
    names = sample_names(paths)
    assert time.process_time() - before < 2  # a quadratic rule takes 4 s and more
    assert names[-1] == "sample7999_out"
