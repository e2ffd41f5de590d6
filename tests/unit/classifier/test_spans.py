"""Spans of pieces: their logits are those of their bases, and windows find their own."""

import numpy as np
import pytest

from virnucpro.classifier.calibration import RecordCalibration
from virnucpro.classifier.head import load_head
from virnucpro.classifier.regions import SpanScores, local_log_odds
from virnucpro.compute.in_memory import compute_in_memory
from virnucpro.compute.rank_encoder import Models
from virnucpro.encoders.genes.genes import SPAN
from virnucpro.encoders.genes.inputs import N_INPUTS
from virnucpro.encoders.registry import load_encoder
from virnucpro.run.execution import Execution
from virnucpro.run.predict_job import predict_job
from virnucpro.run.reporter import Reporter

PIECE = 32_000
LENGTHS = {"one span": 3_900, "three": 9_001, "eight": 32_000, "pieces": 70_001, "short": 40}
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


def spans_of(sequence):
    """Yield start, bases and number of spans of the spans of a sequence, piece by piece."""
    pieces = -(-len(sequence) // PIECE)
    for piece in range(pieces):
        start, end = (n * len(sequence) // pieces for n in (piece, piece + 1))
        count = -(-(end - start) // SPAN)
        for span in range(count):
            low, high = (start + n * (end - start) // count for n in (span, span + 1))
            yield low, sequence[low:high], count


def test_windows_have_the_logits_of_their_spans(run, sequences):
    job, scores = run
    spans = SpanScores.of(scores.index, scores.coverage, len(scores.classes))
    (spec,), head = job.record.encoders, load_head(job.record.head)
    encoder = load_encoder(spec)
    for record, sequence in enumerate(sequences.values()):
        for start, bases, count in spans_of(sequence):
            middle = np.array([start, start + len(bases) // 2, start + len(bases) - 1])
            logit, number, n_bases = spans.of_windows(np.full(3, record), middle)
            if count == 1:
                assert np.isnan(logit).all()
                continue
            vectors = encoder.vectors(encoder.tokenise([bases]))[:, :N_INPUTS]
            np.testing.assert_array_equal(logit, np.repeat(head.logit(vectors), 3))
            assert len(set(number.tolist())) == 1
            assert (n_bases == len(bases)).all()


def test_numbers_of_spans_differ_in_a_run(run):
    _, scores = run
    spans = SpanScores.of(scores.index, scores.coverage, len(scores.classes))
    record = np.repeat(np.arange(5), 71)
    middle = np.tile(np.arange(0, 71_000, 1_000), 5)
    inside = middle < scores.index.record_lengths[record]
    _, number, _ = spans.of_windows(record[inside], middle[inside])
    expected = 1 + 3 + 8 + 3 * 6 + 1
    assert len(set(number.tolist())) == expected
    assert (np.diff(number) >= 0).all()


def test_the_log_odds_of_a_span_are_shared_by_its_windows(run):
    _, scores = run
    spans = SpanScores.of(scores.index, scores.coverage, len(scores.classes))
    record, middle = np.array([1, 1, 1, 1, 0]), np.array([100, 600, 2_900, 3_100, 100])
    logit = np.array([2.0, np.nan, 4.0, 1.0, 5.0])
    found, of_span = local_log_odds(
        spans, record, middle, logit, CALIBRATION, np.zeros(len(record))
    )
    first, second = of_span[0], of_span[3]
    assert of_span[:3].tolist() == [first] * 3 != [second] * 3
    np.testing.assert_allclose(found[:3], np.full(3, (first + 0.5 * 3 - 1) / 3))
    np.testing.assert_allclose(found[3], second + 0.5 * 1 - 1)
    assert found[4] == 0
    assert np.isnan(of_span[4])


def test_a_bundle_without_genes_has_no_spans(run):
    _, scores = run
    narrow = type("", (), {"scores": scores.coverage.scores[:, :2]})()
    assert SpanScores.of(scores.index, narrow, 0) is None
