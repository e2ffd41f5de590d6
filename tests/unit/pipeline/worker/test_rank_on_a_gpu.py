"""What a rank does on a GPU: a CPU rank's numbers, batch behind batch, and a whole run.

Every test takes the device from the fixture ``gpu``, so that its body runs on a CPU as well.
"""

import json
import random
from concurrent.futures import Future

import h5py
import numpy as np
import pytest
import torch

from virnucpro.pipeline.worker.fallback_precision import Fallback, open_fallback
from virnucpro.pipeline.worker.poison_isolation import Suspicion
from virnucpro.pipeline.worker.rank_encoder import RankEncoder
from virnucpro.pipeline.worker.row_embedder import RowEmbedder
from virnucpro.sequences.index import build_index
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(110)]

SMALL_BATCH = 512
LEAST = {"fp32": 0.99999, "fp16": 0.9999, "bf16": 0.999}
"""Cosines with a run at fp32 on a CPU, as both store their vectors in fp16."""


class Watch:
    """Counts what it hears."""

    def __init__(self):
        self.places = []
        self.rows = 0

    def at(self, place):
        self.places.append(place)

    def through(self, rows):
        self.rows = rows


@pytest.fixture(scope="module")
def fasta(tmp_path_factory):
    """Records of 60 to 480 bases without a stop in any frame: six rows each."""
    dice = random.Random(5)
    path = tmp_path_factory.mktemp("input") / "in.fa"
    records = ("".join(dice.choices("ACG", [1, 2, 2], k=dice.randint(60, 480))) for _ in range(20))
    path.write_text("".join(f">r{number}\n{bases}\n" for number, bases in enumerate(records)))
    return path


@pytest.fixture(scope="module")
def index(tmp_path_factory, fasta):
    spec = IndexSpec("frames", Alphabet.NUCLEOTIDE, 500, "even", 11)
    return build_index(tmp_path_factory.mktemp("index") / "index", [str(fasta)], spec)


@pytest.fixture
def task_on(tmp_path, index, doubles):
    """Return a function that makes the task of a rank on a device."""

    def make(device, precision="fp32"):
        changes = {"precision": precision, "torch_device": device.type}
        return doubles.mini_task(tmp_path, index.n_rows, batch_tokens=SMALL_BATCH, **changes)

    return make


def embedded(embedder, n_rows):
    """Make a segment as a rank does whose feeder made the tokens."""
    fed, watch = Future(), Watch()
    fed.set_result(embedder.feed(0, 0, n_rows))
    segment = embedder.embed(0, 0, n_rows, watch, Suspicion(), fed)
    assert watch.rows == n_rows
    return segment, sum(place.stage >= 0 for place in watch.places)


def small_batches(task):
    """Give budgets that a rank takes for learnt, so that it tries none and has many batches."""
    return {spec.name: SMALL_BATCH for spec in task.encoders}


@pytest.mark.parametrize("by_trial", [True, False])
def test_a_segment_is_a_cpu_ranks(gpu, index, task_on, by_trial):
    task = task_on(gpu)
    expected, _ = embedded(RowEmbedder(task_on(torch.device("cpu")), index), index.n_rows)
    embedder = RowEmbedder(task, index, None if by_trial else small_batches(task))
    segment, n_batches = embedded(embedder, index.n_rows)
    assert segment.reasons == {}
    np.testing.assert_allclose(segment.embeddings, expected.embeddings, rtol=0, atol=1e-4)
    np.testing.assert_allclose(segment.scores, expected.scores, rtol=0, atol=1e-4)
    if by_trial and gpu.type == "cuda":
        assert min(embedder.learnt.values()) > SMALL_BATCH
        assert n_batches == len(task.encoders)
    else:
        assert n_batches > 2 * len(task.encoders)


@pytest.mark.parametrize("precision", LEAST)
def test_batches_follow_one_another_without_waiting_but_for_their_vectors(
    gpu, nothing_waits, index, task_on, precision
):
    task = task_on(gpu, precision)
    embedder = RowEmbedder(task, index, small_batches(task))
    fed = embedder.feed(0, 0, index.n_rows)
    for encoder, tokens in zip(embedder._encoders, fed, strict=True):
        heard, rows = [], []

        def vectors(encoder=encoder, tokens=tokens, heard=heard, rows=rows):
            return encoder.vectors(
                tokens, Suspicion(), heard.append, rows.append, shortest=lambda: 22, ahead=True
            )

        first = vectors()  # kernels are loaded once
        heard.clear(), rows.clear()
        with nothing_waits():
            again = vectors()
        assert len(heard) == len(rows) > 2
        assert sum(rows) == index.n_rows
        assert again.reasons == {}
        assert torch.equal(again.vectors, first.vectors)
        assert again.vectors.abs().sum(1).min() > 0


def test_a_row_that_is_not_finite_is_tried_on_a_twin_on_the_gpu(gpu, index, task_on):
    task = task_on(gpu, "fp16")
    spec = task.encoders[0]
    twin = open_fallback(spec, gpu.type, "fp16")
    assert isinstance(twin, Fallback)
    assert (twin.precision, twin.short) == ("fp32", "")
    encoder = RankEncoder(0, spec, gpu.type, "fp16", SMALL_BATCH, {})
    fed = RowEmbedder(task, index, small_batches(task)).feed(0, 0, index.n_rows)
    again = encoder.alone(fed[0], 3, lambda _place: None)
    exact = twin.encoder.encode(twin.encoder.collate([fed[0].ids[3]])).cpu()
    assert again.precision == "fp32"
    torch.testing.assert_close(again.vector, exact[0], rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def on_a_cpu(tmp_path_factory, fasta):
    """A run at fp32 on the CPU."""
    from virnucpro.cli.main import main

    folder = tmp_path_factory.mktemp("cpu") / "run"
    options = ("--devices", "cpu:1", "--precision", "fp32", "-q")
    assert main(["predict", str(fasta), "-o", str(folder), *options]) == 0
    return folder


@pytest.mark.parametrize("precision", LEAST)
def test_a_whole_run_is_a_cpus(gpu, on_a_cpu, fasta, tmp_path, virnucpro, difference_of, precision):
    folder, device = tmp_path / "run", "0" if gpu.type == "cuda" else "cpu:1"
    done = virnucpro("predict", fasta, "-o", folder, "--devices", device, "--precision", precision)
    assert done.returncode == 0, done.stderr
    if precision == "fp32":
        assert difference_of(on_a_cpu, folder) == []
    names, vectors = embeddings_of(folder)
    expected_names, expected = embeddings_of(on_a_cpu)
    assert names == expected_names
    assert torch.cosine_similarity(vectors, expected).min() >= LEAST[precision]
    (launch,) = json.loads((folder / "run.json").read_text())["launches"]
    assert launch["ranks"]["0"]["rows"] == len(names)
    if gpu.type == "cuda":
        assert launch["devices"] == ["cuda:0"]
        assert list(json.loads((folder / "budgets.json").read_text())) == [
            torch.cuda.get_device_name()
        ]
    assert virnucpro("verify", folder).returncode == 0


def embeddings_of(folder):
    with h5py.File(folder / "embeddings.h5") as file:
        return file["sequence_ids"][:].tolist(), torch.from_numpy(file["embeddings"][:]).float()
