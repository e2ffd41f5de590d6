"""Heads of both kinds: equal to torch's modules, in any unit, and damaged files are refused."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from threadpoolctl import threadpool_limits
from torch import nn

from virnucpro.classifier.head import (
    head_shapes,
    head_sizes,
    layer_sizes,
    load_head,
    standardised_sizes,
)
from virnucpro.classifier.integer_network import STEPS, hidden
from virnucpro.errors import BundleError

ROUNDING = 1e-3
"""Largest difference of scores by the integers of a standardised head."""


def load(tmp_path, tensors):
    """Save tensors as a file, and load the file as a head."""
    save_file(tensors, tmp_path / "head.safetensors")
    return load_head(tmp_path / "head.safetensors")


def published(sizes):
    """Modules of torch in the published order, whose batch norms have seen data, and a head file's
    tensors."""
    torch.manual_seed(0)
    layers, names = [], []
    for number, (wide, narrow) in enumerate(pairwise(sizes[:-1])):
        layers += [nn.Linear(wide, narrow), nn.BatchNorm1d(narrow), nn.ReLU(), nn.Dropout(0.5)]
        names += [f"hidden.{number}.linear", f"hidden.{number}.norm", None, None]
    network = nn.Sequential(*layers, nn.Linear(*sizes[-2:])).train()
    for _ in range(5):
        network(torch.randn(32, sizes[0]) * 3 + 1)
    tensors = {
        f"{name}.{key}": value
        for name, layer in zip([*names, "output"], network, strict=True)
        for key, value in layer.state_dict().items()
        if key != "num_batches_tracked"
    }
    return network.eval(), tensors


@pytest.mark.parametrize("sizes", [(3328, 512, 2), (8, 2), (6, 5, 4, 2)])
def test_a_published_head_of_any_sizes_has_the_scores_of_torch(sizes, tmp_path):
    network, tensors = published(sizes)
    vectors = torch.randn(300, sizes[0])
    found = load(tmp_path, tensors).scores(vectors.numpy())
    with torch.inference_mode():
        expected = torch.softmax(network(vectors), dim=1).numpy()
    assert (found.dtype, found.shape) == (np.float32, (300, 2))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_vectors_of_half_precision_are_scored_in_float32(tmp_path):
    head = load(tmp_path, published((10, 4, 2))[1])
    vectors = np.random.default_rng(0).normal(0, 1, (5, 10)).astype(np.float16)
    assert np.array_equal(head.scores(vectors), head.scores(vectors.astype(np.float32)))


def test_gelu_is_that_of_torch():
    sums = np.arange(-9 * STEPS, 9 * STEPS + 1, dtype=np.int32)[:, None]
    found = hidden(sums, np.array([1 / STEPS]), np.zeros(1))[:, 0]
    exact = nn.functional.gelu(torch.from_numpy(sums[:, 0] / STEPS)).numpy() * STEPS
    np.testing.assert_allclose(found, exact, rtol=0, atol=0.501 + 3e-6 * STEPS)


def test_a_vector_that_is_not_finite_has_no_score_and_no_neighbour(tmp_path):
    head = load(tmp_path, tensors_of((6, 5, 3)))
    vectors = np.random.default_rng(0).normal(0, 1, (9, 6)).astype(np.float32)
    whole = head.scores(vectors)
    vectors[4] = np.nan
    found = head.scores(vectors)
    assert np.isnan(found[4]).all()
    assert np.array_equal(np.delete(found, 4, 0), np.delete(whole, 4, 0))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda t: t.update({"output.weight": torch.zeros(3, 4)}), "has 3 classes"),
        (lambda t: t.update({"output.weight": torch.zeros(2, 5)}), "of different models"),
        (lambda t: t.update({"hidden.0.norm.weight": torch.ones(4).int()}), "has the type I32"),
        (lambda t: t.update({"output.bias": torch.tensor([0, math.nan])}), "'output.bias'.*NaN"),
        (lambda t: t["hidden.0.norm.running_var"].fill_(math.inf), "running_var'.*NaN"),
        (lambda t: t.pop("hidden.0.norm.running_var"), "missing: .*running_var"),
        (lambda t: t.pop("output.weight"), "is not a classifier"),
        (lambda t: t.clear() or t.update({"a": torch.zeros(2, 2)}), "is not a classifier"),
    ],
)
def test_an_invalid_published_head_is_refused(change, told, tmp_path):
    _, tensors = published((6, 4, 2))
    change(tensors)
    with pytest.raises(BundleError, match=rf"head\.safetensors.*{told}"):
        load(tmp_path, tensors)


def test_a_truncated_file_is_refused(tmp_path):
    load(tmp_path, published((6, 4, 2))[1])
    path = tmp_path / "head.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BundleError, match="cannot be read as safetensors"):
        load_head(path)


@pytest.mark.parametrize("sizes", [(6, 2), (6, 5, 2), (6, 5, 4, 2)])
def test_layer_sizes_are_read_from_the_tensors(tmp_path, sizes):
    shapes = {name: tuple(tensor.shape) for name, tensor in published(sizes)[1].items()}
    assert head_shapes(sizes) == shapes
    assert layer_sizes(shapes, tmp_path) == sizes
    assert head_sizes(shapes, tmp_path) == (6, 2)


def tensors_of(sizes, viral=None, seed=0):
    """Random tensors of a head with the given sizes; by default the last class is viral."""
    dice = torch.Generator().manual_seed(seed)

    def random(*shape):
        return torch.randn(*shape, generator=dice)

    tensors = {"input.mean": random(sizes[0]), "input.scale": random(sizes[0]).abs() + 0.1}
    names = [*(f"hidden.{number}" for number in range(len(sizes) - 2)), "output"]
    for name, wide, narrow in zip(names, sizes, sizes[1:], strict=False):
        tensors[f"{name}.weight"] = random(narrow, wide) / math.sqrt(wide)
        tensors[f"{name}.bias"] = random(narrow)
    if viral is None:
        viral = [0.0] * (sizes[-1] - 1) + [1.0]
    tensors["output.viral"] = torch.tensor(viral)
    return tensors


def scores_by_numpy(tensors, vectors):
    """Return probabilities of others, virus and each class by loops over layers and classes."""
    values = {name: one.double().numpy() for name, one in tensors.items()}
    gelu = np.vectorize(lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2)
    hidden = np.clip((vectors - values["input.mean"]) / values["input.scale"], -6, 6)
    number = 0
    while f"hidden.{number}.weight" in values:
        weight, bias = values[f"hidden.{number}.weight"], values[f"hidden.{number}.bias"]
        hidden = gelu(hidden @ weight.T + bias)
        number += 1
    logits = hidden @ values["output.weight"].T + values["output.bias"]
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    pairs = np.zeros((len(vectors), 2))
    for kind, viral in enumerate(values["output.viral"]):
        pairs[:, int(viral > 0)] += shares[:, kind]
    return pairs if shares.shape[1] == 2 else np.concatenate([pairs, shares], axis=1)


@pytest.mark.parametrize(
    ("sizes", "viral"),
    [
        ((5, 2), [0.0, 1.0]),
        ((5, 2), [1.0, 0.0]),
        ((7, 4, 2), [0.0, 1.0]),
        ((7, 6, 5, 5), [0.0, 1.0, 0.0, 1.0, 1.0]),
        ((7, 6, 5, 4, 3), [1.0, 0.0, 0.0]),
    ],
)
def test_scores_equal_those_of_numpy_with_classes_summed(sizes, viral, tmp_path):
    tensors = tensors_of(sizes, viral)
    vectors = np.random.default_rng(1).normal(0, 3, (40, sizes[0]))
    found = load(tmp_path, tensors).scores(vectors)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, scores_by_numpy(tensors, vectors), atol=ROUNDING)


def test_far_values_are_clipped(tmp_path):
    head = load(tmp_path, tensors_of((4, 3, 2)))
    mean, scale = (tensors_of((4, 3, 2))[f"input.{name}"].numpy() for name in ("mean", "scale"))
    edge, far = mean + 6 * scale, mean + 1e6 * scale
    inside = mean + 5 * scale
    scores = head.scores(np.stack([edge, far, inside]))
    np.testing.assert_array_equal(scores[0], scores[1])
    assert np.abs(scores[0] - scores[2]).max() > 1e-3


def test_extreme_logits_give_finite_scores(tmp_path):
    tensors = tensors_of((3, 4), [1.0, 1.0, 0.0, 0.0])
    tensors["output.bias"] = torch.tensor([1e4, -1e4, -2e4, 0.0])
    scores = load(tmp_path, tensors).scores(np.zeros((2, 3)))
    assert scores.tolist() == [[0.0, 1.0, 1.0, 0.0, 0.0, 0.0]] * 2


@pytest.mark.parametrize("rows", [1, 31, 128, 129, 700])
@pytest.mark.parametrize("threads", [1, 2])
def test_scores_are_equal_to_the_last_bit_in_any_unit_with_any_threads(tmp_path, rows, threads):
    head = load(tmp_path, tensors_of((903, 128, 128, 11)))
    vectors = np.random.default_rng(3).normal(0, 1, (700, 903)).astype(np.float32)
    whole = head.scores(vectors)
    with threadpool_limits(threads):
        assert np.array_equal(head.scores(vectors[-rows:]), whole[-rows:])
    assert head.scores(vectors[:0]).shape == (0, 13)


def test_networks_side_by_side_have_the_scores_of_the_full_matrices(tmp_path):
    tensors = tensors_of((5, 48, 48, 48, 2))
    inside = torch.block_diag(*[torch.ones(16, 16)] * 3) > 0
    for layer in ("hidden.1", "hidden.2"):
        tensors[f"{layer}.weight"] = torch.where(inside, tensors[f"{layer}.weight"], 0.0)
    head = load(tmp_path, tensors)
    assert [len(layer.weight) for layer in head.network.layers] == [1, 3, 3, 1]
    vectors = np.random.default_rng(2).normal(0, 2, (300, 5))
    np.testing.assert_allclose(
        head.scores(vectors), scores_by_numpy(tensors, vectors), atol=ROUNDING
    )


USUAL = tensors_of((3, 4, 2))
NO_CLASSIFIER = "is not a classifier"


@pytest.mark.parametrize(
    ("tensors", "told"),
    [
        (USUAL | {"input.scale": torch.tensor([1.0, 0.0, 1.0])}, "a scale is not positive"),
        (USUAL | {"input.scale": torch.tensor([1.0, -1.0, 1.0])}, "a scale is not positive"),
        (USUAL | {"input.mean": torch.tensor([1.0, math.nan, 1.0])}, "'input.mean' contains"),
        (USUAL | {"output.bias": torch.tensor([1.0, math.inf])}, "'output.bias' contains NaN"),
        (USUAL | {"output.viral": torch.ones(2)}, "all classes are viral, or none is"),
        (USUAL | {"output.viral": torch.zeros(2)}, "all classes are viral, or none is"),
        (USUAL | {"output.viral": torch.ones(3)}, NO_CLASSIFIER),
        (USUAL | {"input.scale": torch.ones(4)}, NO_CLASSIFIER),
        (USUAL | {"hidden.0.weight": torch.ones(4, 4)}, NO_CLASSIFIER),
        (USUAL | {"hidden.0.bias": torch.ones(4, 1)}, NO_CLASSIFIER),
        (USUAL | {"more": torch.ones(1)}, NO_CLASSIFIER),
        (tensors_of((3, 1), [1.0]), NO_CLASSIFIER),
        *(  # input.mean tells the kinds apart
            ({name: one for name, one in USUAL.items() if name != left_out}, NO_CLASSIFIER)
            for left_out in [*USUAL][1:]
        ),
    ],
)
def test_an_invalid_standardised_head_is_refused(tensors, told, tmp_path):
    with pytest.raises(BundleError, match=rf"head\.safetensors.*{told}.*Get the bundle again"):
        load(tmp_path, tensors)


def test_the_shape_is_read_from_the_tensors(tmp_path):
    shapes = {name: tuple(one.shape) for name, one in tensors_of((9, 5, 4, 3)).items()}
    assert standardised_sizes(shapes, tmp_path) == (9, 5, 4, 3)
    assert head_sizes(shapes, tmp_path) == (9, 3)
    del shapes["input.mean"]
    assert standardised_sizes(shapes, tmp_path) is None
