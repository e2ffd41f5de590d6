"""DNABERT-S compared with a simple implementation, for any batches, precision and weights."""

import math
from itertools import islice

import numpy as np
import pytest
import torch
from batchings import batchings, encoded
from cases import mostly_slow
from safetensors.torch import load_file, save_file

from virnucpro.encoders.registry import load_encoder, open_spec

SHAPES = [(2, 16, 1), (3, 24, 3), (6, 48, 2)]
"""Heads, channels, layers."""
MOSTLY_MIDDLE = mostly_slow(SHAPES, SHAPES[1])

LENGTHS = [109, 1, 40, 2, 1000, 40, 3, 300, 17, 109, 40, 5]
"""In tokens."""


def straight_line(weights, heads, ids):
    """Compute one sequence's vector from the named tensors alone: plain softmax, explicit bias."""

    def norm(x, name):
        centred = x - x.mean(1, keepdim=True)
        scale = torch.sqrt(centred.square().mean(1, keepdim=True) + 1e-12)
        return centred / scale * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", torch.zeros(()))

    def attend(x, name):
        joined = linear(x, f"{name}.self.Wqkv")
        width = x.shape[1] // heads
        columns = []
        for head in range(heads):
            q, k, v = (
                joined[:, part * x.shape[1] :][:, head * width :][:, :width] for part in range(3)
            )
            scores = q @ k.T / math.sqrt(width) - SLOPES[heads][head] * distance
            columns.append(torch.softmax(scores, 1) @ v)
        return torch.cat(columns, 1)

    place = torch.arange(len(ids), dtype=torch.float64)
    distance = (place[:, None] - place[None]).abs()
    x = weights["embeddings.word_embeddings.weight"][ids]
    x = x + weights["embeddings.token_type_embeddings.weight"][0]
    x = norm(x, "embeddings.LayerNorm")
    for number in range(sum(name.endswith("Wqkv.weight") for name in weights)):
        layer = f"encoder.layer.{number}"
        mixed = linear(attend(x, f"{layer}.attention"), f"{layer}.attention.output.dense")
        x = norm(mixed + x, f"{layer}.attention.output.LayerNorm")
        wide = linear(x, f"{layer}.mlp.gated_layers")
        gate, value = wide[:, : wide.shape[1] // 2], wide[:, wide.shape[1] // 2 :]
        gated = gate * 0.5 * (1 + torch.erf(gate / math.sqrt(2))) * value
        x = norm(linear(gated, f"{layer}.mlp.wo") + x, f"{layer}.mlp.layernorm")
    return x.mean(0)


# by hand from the paper: 2^(-8k/n), and for 3 and 6 heads every other slope of 4 and of 8
SLOPES = {
    2: [2**-4, 2**-8],
    3: [2**-4, 2**-8, 2**-2],
    6: [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3],
}


def peaky(tensors):
    """Enlarge queries and keys: attention has few peaks."""
    for name, tensor in tensors.items():
        if name.endswith("Wqkv.weight"):
            tensor[: 2 * tensor.shape[1]] *= 3


def outliers(tensors):
    """Enlarge a few channels to tens of times the others, as in large trained models."""
    for name, tensor in tensors.items():
        if name.endswith("mlp.layernorm.weight"):
            tensor[5] *= 30
        if name.endswith("mlp.layernorm.bias"):
            tensor[7] += 20


def both(tensors):
    peaky(tensors)
    outliers(tensors)


def nothing(_):
    """Keep the random weights."""


def model(dnabert, shape, change=nothing):
    """Save altered random weights: -> folder, simple implementation."""
    heads, hidden, layers = shape
    folder, _ = dnabert(heads, hidden, layers)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    weights = {name: tensor.double() for name, tensor in tensors.items()}
    return folder, lambda ids: straight_line(weights, heads, ids)


@pytest.fixture(scope="module")
def batch():
    generator = np.random.default_rng(4)
    return [generator.integers(0, 64, length) for length in LENGTHS]


@pytest.fixture(scope="module")
def expected_once(batch):
    """Return a function that computes expected vectors once per key."""
    answers = {}

    def ask(rule, *key):
        if key not in answers:
            answers[key] = torch.stack([rule(ids) for ids in batch])
        return answers[key]

    return ask


CHANGES = [nothing, peaky, outliers, both]


@pytest.mark.parametrize("change", mostly_slow(CHANGES, nothing, both))
@pytest.mark.parametrize("shape", MOSTLY_MIDDLE)
def test_vectors_equal_a_simple_implementation(dnabert, batch, expected_once, shape, change):
    folder, rule = model(dnabert, shape, change)
    encoder = load_encoder(open_spec(folder))
    expected = expected_once(rule, shape, change)
    most = 1e-5 if change is nothing else 1e-6 * expected.abs().max().item()
    for parts in batchings(len(batch)):
        vectors = encoded(encoder, batch, parts)
        torch.testing.assert_close(vectors.double(), expected, rtol=0, atol=most)


@pytest.mark.parametrize(
    "shape", mostly_slow([*SHAPES, (5, 130, 1), (1, 66, 1)], SHAPES[1], (1, 66, 1))
)
def test_a_vector_has_the_same_bits_in_any_batch(dnabert, batch, shape):
    folder, _ = model(dnabert, shape)
    encoder = load_encoder(open_spec(folder))
    generator = np.random.default_rng(9)
    more = batch + [generator.integers(0, 64, length) for length in [*range(1, 35), 33, 64]]
    alone, *others = (encoded(encoder, more, parts) for parts in batchings(len(more)))
    assert all(torch.equal(vectors, alone) for vectors in others)


def test_a_vector_has_the_same_bits_in_any_batch_with_two_threads(dnabert, batch):
    folder, _ = model(dnabert, (3, 66, 1))
    encoder = load_encoder(open_spec(folder))
    some = batch[5:]
    torch.set_num_threads(2)
    try:
        alone, together = (encoded(encoder, some, p) for p in islice(batchings(len(some)), 2))
    finally:
        torch.set_num_threads(1)
    assert torch.equal(together, alone)


LEAST_CENTRED = {"bf16": (0.9995, 0.97), "fp16": (0.99999, 0.9995)}
"""Of the channels that do not stand out, without what all vectors share: where none does, and where
some do."""


@pytest.mark.parametrize("change", mostly_slow(CHANGES, both))
@pytest.mark.parametrize("shape", MOSTLY_MIDDLE)
@pytest.mark.parametrize(("precision", "least"), [("bf16", 0.999), ("fp16", 0.9999)])
def test_half_precision_is_close_to_fp32(
    dnabert, batch, expected_once, shape, change, precision, least
):
    folder, rule = model(dnabert, shape, change)
    encoder = load_encoder(open_spec(folder), precision=precision)
    expected = expected_once(rule, shape, change).float()
    vectors = encoder.encode(encoder.collate(batch))
    assert vectors.dtype == torch.float32
    assert torch.cosine_similarity(vectors, expected).min() >= least
    others = [channel for channel in range(shape[1]) if channel not in (5, 7)]
    shared = expected[:, others].mean(0)
    centred = torch.cosine_similarity(vectors[:, others] - shared, expected[:, others] - shared)
    assert centred.min() >= LEAST_CENTRED[precision][change in (outliers, both)]


def test_the_padding_id_counts_as_a_token_within_a_sequence(dnabert):
    folder, rule = model(dnabert, SHAPES[1])
    encoder = load_encoder(open_spec(folder))
    batch = encoder.tokenise([b"ANNNNA", b"AA", b"ACGTACGTACGTACGT"])
    assert (batch[0] == 0).sum() == 4
    expected = torch.stack([rule(ids) for ids in batch])
    torch.testing.assert_close(
        encoder.encode(encoder.collate(batch)).double(), expected, rtol=0, atol=1e-5
    )
