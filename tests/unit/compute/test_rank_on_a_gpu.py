"""Ranks on a GPU: agreement with a CPU rank, prefetched batches, a complete run.

Each test takes its device from the fixture ``gpu``, so its body can run on a CPU.
"""

import json
import os
import random
from concurrent.futures import Future

import h5py
import numpy as np
import pytest
import torch
from doubles import Watch

from virnucpro.compute.rank_encoder import Models, RankEncoder
from virnucpro.compute.row_embedder import RowEmbedder
from virnucpro.encoders.registry import load_encoder
from virnucpro.runtime.devices import parse_devices
from virnucpro.runtime.policy import Findings
from virnucpro.sequences.index import build_index
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.spec import IndexSpec

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(110)]

SMALL_BATCH = 512
LEAST = {"fp32": 0.99999, "fp16": 0.9999, "bf16": 0.999}
"""Least cosine with a run at fp32 on a CPU; both store their vectors at fp16."""

WITH_TRANSFORMERS = ("--bundle", "mini-deep", "--embeddings", "fp16")


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
    """Compute a segment with prefetched tokens; return it and the number of batches."""
    fed, watch = Future(), Watch()
    fed.set_result(embedder.tokenise(0, range(n_rows)))
    segment = embedder.embed(0, range(n_rows), watch, Findings(), fed)
    assert watch.rows[-1] == n_rows
    return segment, len(watch.batches)


def small_batches(task):
    """Return loaded models with budgets for many small batches and no trial."""
    models = Models(task, task.torch_device, task.precision, task.batch_tokens)
    for encoder in models.encoders:
        encoder.budget.begin_with(1, SMALL_BATCH)
    return models


@pytest.mark.parametrize("by_trial", [True, False])
def test_a_segment_agrees_with_a_cpu_rank(gpu, index, task_on, by_trial):
    task = task_on(gpu)
    expected, _ = embedded(RowEmbedder(task_on(torch.device("cpu")), index), index.n_rows)
    embedder = RowEmbedder(task, index, None if by_trial else small_batches(task))
    segment, n_batches = embedded(embedder, index.n_rows)
    assert segment.reasons == {}
    np.testing.assert_allclose(segment.embeddings, expected.embeddings, rtol=0, atol=1e-4)
    np.testing.assert_allclose(segment.scores, expected.scores, rtol=0, atol=1e-4)
    if by_trial and gpu.type == "cuda":
        assert all(encoder.budget(512) > SMALL_BATCH for encoder in embedder._encoders)
        assert n_batches == len(task.encoders)
    else:
        assert n_batches > 2 * len(task.encoders)


@pytest.mark.parametrize("precision", LEAST)
def test_the_host_waits_only_for_vectors(gpu, nothing_waits, index, task_on, precision):
    task = task_on(gpu, precision)
    embedder = RowEmbedder(task, index, small_batches(task))
    fed = embedder.tokenise(0, range(index.n_rows))
    for encoder, tokens in zip(embedder._encoders, fed, strict=True):
        spans, rows = [], []

        def vectors(encoder=encoder, tokens=tokens, spans=spans, rows=rows):
            return encoder.vectors(tokens, Findings(), spans.append, rows.append, prefetch=True)

        first = vectors()  # kernels are loaded once
        spans.clear(), rows.clear()
        with nothing_waits():
            again = vectors()
        assert len(spans) == len(rows) > 2
        assert sum(rows) == index.n_rows
        assert again.reasons == {}
        np.testing.assert_array_equal(again.vectors, first.vectors)
        assert np.abs(again.vectors).sum(1).min() > 0


def test_a_row_that_is_not_finite_falls_back_to_fp32_on_the_gpu(gpu, index, task_on):
    task = task_on(gpu, "fp16")
    spec = task.encoders[0]
    encoder = RankEncoder(0, spec, gpu.type, "fp16", SMALL_BATCH)
    fed = RowEmbedder(task, index, small_batches(task)).tokenise(0, range(index.n_rows))
    retry = encoder.encode_again(fed[0], 3, lambda _place: None)
    wider = load_encoder(spec, gpu.type, "fp32")
    exact = wider.vectors([fed[0].ids[3]])
    assert retry.attempts == "at fp16 in a batch and at fp32 alone"
    assert retry.too_large == ""
    np.testing.assert_allclose(retry.vectors, exact, rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def on_a_cpu(tmp_path_factory, fasta):
    """A run at fp32 on the CPU."""
    from virnucpro.cli.main import main

    folder = tmp_path_factory.mktemp("cpu") / "run"
    options = ("--devices", "cpu:1", "--precision", "fp32", *WITH_TRANSFORMERS, "-q")
    assert main(["predict", str(fasta), "-o", str(folder), *options]) == 0
    return folder


@pytest.mark.parametrize("precision", LEAST)
def test_a_run_agrees_with_a_run_on_the_cpu(
    gpu, on_a_cpu, fasta, tmp_path, virnucpro, difference_of, precision
):
    folder, device = tmp_path / "run", "0" if gpu.type == "cuda" else "cpu:1"
    options = ("--devices", device, "--precision", precision, *WITH_TRANSFORMERS)
    virnucpro("predict", fasta, "-o", folder, *options, code=0)
    if precision == "fp32":
        assert difference_of(on_a_cpu, folder) == []
    names, vectors = embeddings_of(folder)
    expected_names, expected = embeddings_of(on_a_cpu)
    assert names == expected_names
    assert torch.cosine_similarity(vectors, expected).min() >= LEAST[precision]
    (launch,) = json.loads((folder / "run" / "run.json").read_text())["launches"]
    assert launch["ranks"]["0"]["rows"] == len(names)
    if gpu.type == "cuda":
        # the name of a device is its entry in CUDA_VISIBLE_DEVICES: a number or a UUID
        assert launch["devices"] == [str(one) for one in parse_devices(device, os.environ)]
    assert virnucpro("verify", folder).returncode == 0


def embeddings_of(folder):
    with h5py.File(folder / "embeddings.h5") as file:
        return file["sequence_ids"][:].tolist(), torch.from_numpy(file["embeddings"][:]).float()
