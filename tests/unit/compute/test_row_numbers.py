import numpy as np

from virnucpro.compute.row_embedder import RowNumbers, unstorable_rows


def numbers(first, second, *, scores=None):
    joined = np.concatenate([first, second], 1)
    with np.errstate(over="ignore"):
        stored = joined.astype(np.float16)
    return RowNumbers([("bases", first), ("residues", second)], stored, scores)


def test_a_row_is_reported_with_the_first_failed_check():
    first, second = np.ones((5, 3), np.float32), np.ones((5, 4), np.float32)
    first[1, 2] = np.nan
    second[1] = np.nan
    second[2, :2] = np.inf
    first[3, 0] = -1e6
    scores = np.full((5, 2), 0.5, np.float32)
    scores[1, 0] = scores[4, 1] = np.inf
    assert unstorable_rows(numbers(first, second, scores=scores)) == {
        1: "not_finite: 1 of 3 numbers of the bases vector are NaN or infinite",
        2: "not_finite: 2 of 4 numbers of the residues vector are NaN or infinite",
        3: "overflow: the vector has numbers up to 1e+06, too large for float16 (start a new run "
        "with --embeddings fp32)",
        4: "not_finite: a score of the classifier is NaN or infinite",
    }


def test_finite_numbers_have_no_problem_and_numbers_that_are_not_stored_are_ignored():
    ones = np.ones((3, 2), np.float32)
    assert unstorable_rows(numbers(ones, ones, scores=ones)) == {}
    assert unstorable_rows(RowNumbers([("bases", 1e6 * ones)], None, None)) == {}
