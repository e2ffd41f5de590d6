import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.encoders.batching import TokenBudget
from virnucpro.run.coordinator_files import merge_budgets, read_budgets, write_budgets
from virnucpro.run_dir import RunDirectory


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return RunDirectory(tmp_path_factory.mktemp("run"))


GOOD = {"cpu": {"esm2": 2048, "esm2/512": 1024, "a/b": 7, "a/b/1": 1}}


def test_written_budgets_are_read_back(run):
    write_budgets(run, GOOD)
    assert read_budgets(run) == GOOD
    run.budgets.unlink()
    assert read_budgets(run) == {}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"3",
        b"[]",
        b"[" * 200_000,
        b'{"cpu":' * 100_000,
        b"9" * 5000,
        b'{"cpu": {"esm2": 1}}' + b" " * (1 << 20),
    ],
)
def test_a_malformed_file_of_budgets_is_ignored(text, run):
    run.budgets.write_bytes(text)
    assert read_budgets(run) == {}


@pytest.mark.parametrize("kind", ["folder", "loop", "fifo"])
def test_an_irregular_file_of_budgets_is_ignored(kind, tmp_path):
    run = RunDirectory(tmp_path)
    if kind == "folder":
        run.budgets.mkdir()
    elif kind == "loop":
        run.budgets.symlink_to(run.budgets)
    else:
        os.mkfifo(run.budgets)
    assert read_budgets(run) == {}
    if kind == "folder":
        with pytest.raises(IsADirectoryError):
            write_budgets(run, GOOD)
    else:
        write_budgets(run, GOOD)
        assert read_budgets(run) == GOOD


@pytest.mark.parametrize(
    ("key", "tokens"),
    [
        ("esm2", True),
        ("esm2", 0),
        ("esm2", -1),
        ("esm2", 1.0),
        ("esm2", "1"),
        ("esm2", 1 << 41),
        ("", 1),
        ("esm2/", 1),
        ("esm2/" + "9" * 5000, 1),
        ("esm2/" + str(1 << 80), 1),
        ("esm2/3", 1),
        ("esm2/0", 1),
        ("esm2/064", 1),
        ("esm2/\u0663\u0662", 1),
    ],
)
def test_invalid_entries_of_budgets_are_ignored(key, tokens, run):
    run.budgets.write_text(json.dumps({"cpu": {"dnabert": 5, key: tokens}, "x": [1]}))
    assert read_budgets(run) == {"cpu": {"dnabert": 5}}


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
keys = st.text("ab/0123468\u0663") | st.text()


@given(st.dictionaries(st.text(), st.dictionaries(keys, anything) | anything) | anything)
def test_any_content_of_budgets_gives_valid_budgets(run, content):
    run.budgets.write_text(json.dumps(content))
    for learnt in read_budgets(run).values():
        for name in {key.rpartition("/")[0] or key for key in learnt}:
            assert TokenBudget(name, 2048, learnt)(600) >= 1


def test_the_lowest_limit_and_the_longest_fitting_row_are_kept():
    known = {"cpu": {"esm2": 2048, "esm2/512": 1024, "esm2/fitted": 602}}
    merged = merge_budgets(known, "cpu", {"esm2": 4096, "esm2/512": 256, "esm2/fitted": 120})
    assert merged == {"cpu": {"esm2": 2048, "esm2/512": 256, "esm2/fitted": 602}}
    assert merge_budgets(merged, "cpu", {"esm2/fitted": 700})["cpu"]["esm2/fitted"] == 700


def test_the_longest_fitting_row_is_reported_after_memory_was_short():
    budget = TokenBudget("esm2", 2048, {})
    budget.fitted(602)
    budget.fitted(70)
    assert budget.learnt == {}
    budget.was_short()
    assert budget.learnt == {"esm2/fitted": 602}
    assert TokenBudget("esm2", 2048, budget.learnt).longest_fitted == 602
    assert TokenBudget("esm2", 2048, budget.learnt).learnt == budget.learnt
