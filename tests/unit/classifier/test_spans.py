"""Spans of pieces: their log odds are those of their bases, and windows find their own."""

import numpy as np
import pytest

from virnucpro.classifier.calibration import RecordCalibration
from virnucpro.classifier.head import load_head
from virnucpro.classifier.spans import SpanOdds, SpanScores
from virnucpro.compute.in_memory import compute_in_memory
from virnucpro.compute.rank_encoder import Models
from virnucpro.encoders.genes.encoder import SCALES, _scanned
from virnucpro.encoders.genes.evidence import cut
from virnucpro.encoders.genes.inputs import N_INPUTS, vectors_of
from virnucpro.encoders.registry import load_encoder
from virnucpro.run.execution import Execution
from virnucpro.run.predict_job import predict_job
from virnucpro.run.reporter import Reporter

PIECE = 32_000
LENGTHS = {
    "one span": 3_900,
    "two": 7_001,
    "three": 9_001,
    "eight": 32_000,
    "pieces": 70_001,
    "short": 40,
}
CALIBRATION = RecordCalibration((1.0, 10_000.0), (1.0, 1.0), (0.5, 0.5), (-1.0, -1.0), 20.0)


@pytest.fixture(scope="module")
def sequences():
    rng = np.random.default_rng(5)
    return {
        name: rng.choice([*b"ACGT"], n).astype(np.uint8).tobytes() for name, n in LENGTHS.items()
    }


@pytest.fixture(scope="module")
def run(sequences, tmp_path_factory):
    path = tmp_path_factory.mktemp("spans") / "in.fa"
    entries = (f">{name.replace(' ', '_')}\n{one.decode()}\n" for name, one in sequences.items())
    path.write_text("".join(entries))
    job = predict_job(path, precision="fp32")
    done = compute_in_memory(
        job, job.inputs, Models.of(job, "cpu"), Execution(path, threads=1), Reporter()
    )
    return job, done.scores


def pieces_of(sequence):
    """Yield the start and the bases of each piece of a sequence."""
    pieces = -(-len(sequence) // PIECE)
    for piece in range(pieces):
        start, end = (n * len(sequence) // pieces for n in (piece, piece + 1))
        yield start, sequence[start:end]


def log_odds(run, record, middle, logit):
    spans = SpanScores.of(run.index, run.coverage, len(run.classes))
    return spans.log_odds(record, middle, logit, CALIBRATION, np.zeros(len(record)))


def test_spans_and_neighbours_have_the_log_odds_of_their_bases(run, sequences):
    """With one window a span: spans together have the sums of their bases, as a record."""
    job, scores = run
    (spec,), head = job.record.encoders, load_head(job.record.head)
    encoder = load_encoder(spec)

    def odds_of(sums):
        logit = head.logit(vectors_of(sums[None], encoder.means)[:, :N_INPUTS])
        return float(logit[0]) + 0.5 * 2 - 1  # as CALIBRATION

    for record, sequence in enumerate(sequences.values()):
        middle, wanted = [], []
        for start, piece in pieces_of(sequence):
            n = len(spans := cut(piece))
            middle += (start + np.cumsum([*map(len, spans)]) - 1).tolist()
            found, _ = _scanned([piece], encoder.scores)
            words = encoder.table.count(found.owner, found.keys, n)
            sums = np.concatenate((found.evidence, words), axis=1, dtype=np.int32)
            for first in range(n):
                lasts = [first + scale for scale in SCALES]
                known = [n >= SCALES[-1] and last <= n for last in lasts]
                odds = [odds_of(sums[first:last].sum(axis=0)) for last in lasts]
                wanted.append(np.where(known, odds, np.nan))
        windows = np.full(len(middle), record), np.array(middle), np.full(len(middle), 2.0)
        found = log_odds(scores, *windows)
        np.testing.assert_allclose(np.array(found.odds).T, np.array(wanted), rtol=1e-6)


def test_windows_of_a_span_share_its_evidence(run):
    _, scores = run
    record, middle = np.array([2, 2, 2, 2, 0]), np.array([100, 600, 2_900, 3_100, 100])
    logit = np.array([2.0, np.nan, 4.0, 1.0, 5.0])
    found = log_odds(scores, record, middle, logit)
    assert found.head.tolist() == [0, 3, 4]
    assert found.size.tolist() == [3, 1, 1]
    single = found.odds[0]
    assert np.isnan(found.odds[1]).all()  # the third span has no window here
    np.testing.assert_allclose(
        found.of_windows(), [*[0.9 * single[0] / 3] * 3, 0.9 * single[1], 0.0]
    )


def test_a_stretch_has_the_mean_of_the_spans_that_are_in_it():
    nan = np.nan
    odds = (np.array([1.0, 3.0, 5.0, -4.0, -6.0]), np.array([9.0, 2.0, -3.0, nan, nan]))
    spans = SpanOdds(np.array([0, 4, 8, 12, 16]), np.full(5, 4), odds)
    first, size = np.array([0, 13]), np.array([13, 7])
    # The fourth span has its middle window in the second stretch.
    found = spans.of_stretches(first, size)
    np.testing.assert_allclose(found, [((1 + 3 + 5) / 3 + 9) / 2, -5.0])
    within = spans.of_stretches(np.array([0, 5, 6]), np.array([5, 1, 14]))
    assert within[1] == 3.0


def test_a_bundle_without_genes_has_no_spans(run):
    _, scores = run
    narrow = type("", (), {"scores": scores.coverage.scores[:, :2]})()
    assert SpanScores.of(scores.index, narrow, 0) is None
