"""Units with open frames and, for windows without one, whole windows of the fallback classifier."""

import random

import numpy as np
import pytest
from doubles import Watch, isolating
from samples import index_of

from virnucpro.bundles.bundle import open_bundle
from virnucpro.bundles.manifest import Classifier
from virnucpro.classifier.head import load_head
from virnucpro.compute.poison_isolation import tokenising_stage
from virnucpro.compute.row_embedder import RowEmbedder
from virnucpro.encoders.registry import load_encoder
from virnucpro.runtime.policy import Findings
from virnucpro.sequences.items import WINDOW_ITEM
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec
from virnucpro.store.schema import RowState
from virnucpro.store.segment import encode_segment

CLOSE = {"rtol": 0, "atol": 2e-5}
N_MAIN = 2  # encoders of mini-deep


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """Records with open frames, records with a stop in each frame, and records with both."""
    dice = random.Random(9)
    records = []
    for number in range(12):
        bases = bytes(dice.choices(b"ACG", [1, 2, 2], k=dice.randint(60, 300)))
        stops = b"".join(dice.choices([b"TTAA", b"CTAG", b"TCA", b"G"], k=dice.randint(60, 120)))
        records.append((bases, stops, bases[:300].ljust(300, b"C") + stops)[number % 3])
    spec = IndexSpec("frames", Alphabet.NUCLEOTIDE, 300, "even", 11, fallback=True)
    return index_of(tmp_path_factory.mktemp("index"), records, spec)


@pytest.fixture(scope="module")
def whole(index):
    """Whether each row is a whole window."""
    found = index.kinds(np.arange(index.n_rows)) == WINDOW_ITEM
    assert 4 <= found.sum() <= index.n_rows - 20
    return found


@pytest.fixture(scope="module")
def task(index, tmp_path_factory, doubles):
    mini = open_bundle("mini")
    return doubles.mini_task(
        tmp_path_factory.mktemp("run"),
        index.n_rows,
        others={WINDOW_ITEM: Classifier(mini.encoders, mini.head, mini.fingerprint)},
    )


@pytest.fixture(scope="module")
def embedded(task, index):
    watch, embedder = Watch(), RowEmbedder(task, index)
    segment = embedder.embed(0, range(index.n_rows), watch, Findings())
    encode_segment(segment)  # refuses a number that is not finite
    return segment, watch, embedder


def alone(bundle, index, rows):
    """Return vectors and scores of rows from one bundle, encoder by encoder."""
    opened = open_bundle(bundle)
    parts = []
    for spec in opened.encoders:
        encoder = load_encoder(spec)
        tokens = encoder.tokenise(index.sequences(rows, spec.view))
        parts.append(encoder.vectors(tokens))
    joined = np.concatenate(parts, axis=1)
    return joined, load_head(opened.head).scores(joined)[:, :2]


def test_scores_equal_those_of_the_two_classifiers_run_apart(embedded, index, whole):
    segment, _, _ = embedded
    vectors, scores = alone("mini-deep", index, np.flatnonzero(~whole))
    np.testing.assert_allclose(segment.embeddings[~whole], vectors, **CLOSE)
    np.testing.assert_allclose(segment.scores[~whole], scores, **CLOSE)
    _, scores = alone("mini", index, np.flatnonzero(whole))
    np.testing.assert_allclose(segment.scores[whole], scores, **CLOSE)
    assert (segment.state == RowState.DONE).all()


def test_whole_windows_have_no_vector(embedded, whole):
    segment, _, _ = embedded
    assert segment.embeddings.shape[1] == 256
    assert not segment.embeddings[whole].any()
    assert segment.embeddings[~whole].any(axis=1).all()


def test_each_encoder_encodes_its_own_rows_only(embedded, index, whole):
    _, watch, embedder = embedded
    tokens = embedder.tokenise(0, range(index.n_rows))
    assert len(tokens) == N_MAIN + 1
    for number, one in enumerate(tokens):
        own = whole if number >= N_MAIN else ~whole
        assert [len(ids) > 0 for ids in one.ids] == own.tolist()
    assert watch.rows == sorted(watch.rows)
    assert watch.rows[-1] <= index.n_rows


def test_units_of_one_kind_give_the_same_scores(embedded, task, index, whole):
    """A unit may have rows of one kind alone."""
    segment, _, _ = embedded
    embedder = RowEmbedder(task, index)
    first, last = int(whole.argmax()), index.n_rows
    for rows in (range(first, first + 1), range(last - 3, last)):
        assert len(set(whole[rows.start : rows.stop].tolist())) == 1
        part = embedder.embed(1, rows, Watch(), Findings())
        np.testing.assert_allclose(part.scores, segment.scores[rows.start : rows.stop], **CLOSE)


def test_without_vectors_the_scores_are_the_same(embedded, task, index, doubles):
    segment, _, _ = embedded
    other = doubles.mini_task(task.run.root, index.n_rows, others=task.others, embeddings="none")
    found = RowEmbedder(other, index).embed(0, range(index.n_rows), Watch(), Findings())
    assert found.embeddings is None
    np.testing.assert_array_equal(found.scores, segment.scores)


def test_an_isolated_whole_window_is_quarantined_alone(embedded, task, index, whole):
    segment, _, _ = embedded
    row = int(whole.argmax())
    stage = tokenising_stage(N_MAIN)
    suspicion = isolating(stage, row, unit=0)
    found = RowEmbedder(task, index).embed(0, range(index.n_rows), Watch(), suspicion)
    assert np.flatnonzero(found.state == RowState.QUARANTINED).tolist() == [row]
    assert not found.scores[row].any()
    others = np.arange(index.n_rows) != row
    np.testing.assert_allclose(found.scores[others], segment.scores[others], **CLOSE)
