import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from virnucpro.run.report import _COMMON_NAMES, sample_names

FOLDERS = st.lists(st.sampled_from(["a", "b", "out", "Run"]), min_size=1, max_size=4)


def former_names(folders):
    """Return the names by counting each one in the whole list."""
    parts = [2 if path.name.lower() in _COMMON_NAMES else 1 for path in folders]
    while True:
        names = [
            "_".join(path.parts[1:][-number:]) or path.name
            for path, number in zip(folders, parts, strict=True)
        ]
        longer = [
            number + (names.count(name) > 1 and number < len(path.parts) - 1)
            for name, number, path in zip(names, parts, folders, strict=True)
        ]
        if longer == parts:
            return names
        parts = longer


@given(st.lists(FOLDERS, max_size=8))
def test_names_are_those_of_counting_in_the_whole_list(folders):
    paths = [Path("/", *words) for words in folders]
    assert sample_names(paths) == former_names(paths)


def test_the_time_is_linear():
    paths = [Path(f"/data/sample{number}/out") for number in range(8_000)]
    before = time.process_time()
    names = sample_names(paths)
    assert time.process_time() - before < 2  # a quadratic rule takes 4 s and more
    assert names[-1] == "sample7999_out"
