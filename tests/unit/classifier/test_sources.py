import numpy as np
import pytest
from samples import index_of

from virnucpro.classifier.consensus import Call
from virnucpro.classifier.run_scores import run_windows
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec
from virnucpro.store.coverage import Coverage
from virnucpro.store.schema import RowState
from virnucpro.tables.source import agreeing, likely_sources

RNG = np.random.default_rng(6)
WINDOWS = (2, 1, 1, 3, 0)
"""Windows of each record, 100 bases each."""


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return build(tmp_path_factory.mktemp("index"), None)


def build(folder, piece):
    letters = (RNG.choice(list(b"ACGT"), size=100 * n).astype(np.uint8) for n in WINDOWS)
    spec = IndexSpec("windows", Alphabet.NUCLEOTIDE, 100, "even", 11, piece=piece)
    found = index_of(folder, [bases.tobytes() for bases in letters], spec)
    assert found.n_rows == sum(WINDOWS) + found.n_pieces
    return found


def sources(index, classes, missing=(), pieces=None):
    """Return the sources of records from the class probabilities of each window, in order.

    `pieces` are those of the pieces; their scores end with a fact.
    """
    scores = np.full((index.n_rows, 3 + len(classes[0])), np.nan, np.float32)
    scores[index.item_row, 2:-1] = classes
    scores[:, -1] = 99
    if pieces is not None:
        scores[index.piece_row, 2:-1] = pieces
    scores[:, :2] = 0.5
    state = np.full(index.n_rows, RowState.DONE, np.uint8)
    lost = index.item_row[list(missing)]
    state[lost], scores[lost] = RowState.MISSING, np.nan
    coverage = Coverage(np.array([0, index.n_rows]), "f", {}, (), (), state, scores, {})
    windows = run_windows(index, coverage)
    return likely_sources(index, windows, coverage, len(classes[0])).tolist()


A, B, C = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
MIXED = (0.4, 0.35, 0.25)


def test_the_source_is_the_class_with_the_largest_mean_probability(index):
    # record 3: two windows prefer class 0 a little, one is certain of class 1
    assert sources(index, [A, A, B, C, MIXED, MIXED, B]) == [0, 1, 2, 1, -1]


def test_windows_without_a_score_do_not_count(index):
    assert sources(index, [A, A, B, C, MIXED, MIXED, B], missing=(2, 6)) == [0, -1, 2, 0, -1]


def test_a_classifier_of_two_classes_has_no_source(index):
    assert sources(index, [()] * 7) == [-1] * 5


def test_pieces_decide_where_a_record_has_them(tmp_path):
    index = build(tmp_path, 200)  # record 3 has two pieces of 150 bases
    assert index.n_pieces == 5
    windows = [A, A, B, C, MIXED, MIXED, B]
    assert sources(index, windows, pieces=[B, B, B, C, MIXED]) == [1, 1, 1, 2, -1]
    lost = sources(index, windows, missing=(), pieces=[B, B, (0, 0, 0), C, C])
    assert lost == [1, 1, 2, 2, -1]  # without probabilities of pieces, those of windows count


@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        (Call.VIRAL, [-1, 1, -1]),
        (Call.NON_VIRAL, [0, -1, -1]),
        (Call.AMBIGUOUS, [0, 1, -1]),
        (Call.NOT_SCORED, [0, 1, -1]),
    ],
)
def test_a_source_that_contradicts_the_call_is_left_out(call, wanted):
    found, viral = np.array([0, 1, -1]), np.array([False, True])
    assert agreeing(found, viral, np.full(3, call, np.uint8)).tolist() == wanted
