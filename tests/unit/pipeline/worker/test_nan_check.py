import numpy as np

from virnucpro.pipeline.worker.nan_check import RowNumbers, problems


def numbers(first, second, *, scores=None):
    joined = np.concatenate([first, second], 1)
    with np.errstate(over="ignore"):
        stored = joined.astype(np.float16)
    return RowNumbers([("bases", first), ("residues", second)], stored, scores)


def test_each_row_is_told_by_the_first_check_that_it_fails():
    first, second = np.ones((5, 3), np.float32), np.ones((5, 4), np.float32)
    first[1, 2] = np.nan
    second[1] = np.nan
    second[2, :2] = np.inf
    first[3, 0] = -1e6
    scores = np.full((5, 2), 0.5, np.float32)
    scores[1, 0] = scores[4, 1] = np.inf
    assert problems(numbers(first, second, scores=scores)) == {
        1: "not_finite: bases gave a vector with 1 of 3 numbers not finite",
        2: "not_finite: residues gave a vector with 2 of 4 numbers not finite",
        3: "overflow: its vector has numbers up to 1e+06, more than float16 stores (a new run with "
        "--embeddings fp32 keeps it)",
        4: "not_finite: the head gave a score that is not finite",
    }


def test_finite_numbers_are_no_problem_and_what_is_not_kept_is_not_asked_for():
    ones = np.ones((3, 2), np.float32)
    assert problems(numbers(ones, ones, scores=ones)) == {}
    assert problems(RowNumbers([("bases", 1e6 * ones)], None, None)) == {}
