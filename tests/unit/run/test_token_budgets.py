import os

import pytest
from samples import empty_run

from virnucpro.encoders.batching import TokenBudget
from virnucpro.run.coordinator_files import merge_budgets, read_budgets, write_budgets


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return empty_run(tmp_path_factory.mktemp("run"))


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
        b'{"devices": {"cpu": {"esm2": 1}}}',
        b'{"devices": {"cpu": {"esm2": 1}}, "sha256": "f"}',
    ],
)
def test_a_malformed_file_of_budgets_is_ignored(text, run):
    run.budgets.write_bytes(text)
    assert read_budgets(run) == {}


@pytest.mark.parametrize("kind", ["folder", "loop", "fifo"])
def test_an_irregular_file_of_budgets_is_ignored(kind, tmp_path):
    run = empty_run(tmp_path)
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
