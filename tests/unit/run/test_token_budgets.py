from virnucpro.encoders.batching import TokenBudget
from virnucpro.run.coordinator_files import merge_budgets


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
