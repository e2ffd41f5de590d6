import math

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from virnucpro.classifier.head import load_head, scores_of
from virnucpro.classifier.head_tensors import head_sizes, standardised_shape
from virnucpro.classifier.standardised_head import StandardisedHead
from virnucpro.errors import BundleError, DeviceError


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


@pytest.fixture
def load(tmp_path):
    """Return a function that saves tensors as a file and loads the file as a head."""

    def save_and_load(tensors):
        save_file(tensors, tmp_path / "head.safetensors")
        return load_head(tmp_path / "head.safetensors")

    return save_and_load


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
def test_scores_equal_those_of_numpy_with_classes_summed(sizes, viral, load):
    tensors = tensors_of(sizes, viral)
    vectors = np.random.default_rng(1).normal(0, 3, (40, sizes[0]))
    head = load(tensors)
    assert isinstance(head, StandardisedHead)
    found = head.scores(torch.from_numpy(vectors))
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), scores_by_numpy(tensors, vectors), atol=2e-6)


def test_far_values_are_clipped(load):
    head = load(tensors_of((4, 3, 2)))
    mean, scale = (tensors_of((4, 3, 2))[f"input.{name}"] for name in ("mean", "scale"))
    edge, far = mean + 6 * scale, mean + 1e6 * scale
    inside = mean + 5 * scale
    scores = head.scores(torch.stack([edge, far, inside]))
    torch.testing.assert_close(scores[0], scores[1])
    assert (scores[0] - scores[2]).abs().max() > 1e-3


def test_extreme_logits_give_finite_scores(load):
    tensors = tensors_of((3, 4), [1.0, 1.0, 0.0, 0.0])
    tensors["output.bias"] = torch.tensor([1e4, -1e4, -2e4, 0.0])
    scores = load(tensors).scores(torch.zeros(2, 3))
    assert scores.tolist() == [[0.0, 1.0, 1.0, 0.0, 0.0, 0.0]] * 2


def test_a_row_does_not_depend_on_the_other_rows(load):
    head = load(tensors_of((6, 5, 3), [0.0, 0.0, 1.0]))
    vectors = torch.randn(9, 6, generator=torch.Generator().manual_seed(2))
    alone = torch.cat([head.scores(row[None]) for row in vectors])
    torch.testing.assert_close(head.scores(vectors), alone)
    assert head.scores(vectors[:0]).shape == (0, 5)
    assert head.logits(vectors).shape == (9, 3)


@pytest.mark.parametrize("rows", [1, 31, 128, 129, 700])
def test_scores_in_blocks_are_equal_to_the_last_bit_in_any_unit(load, rows):
    head = load(tensors_of((903, 128, 128, 11)))
    vectors = torch.randn(700, 903, generator=torch.Generator().manual_seed(3))
    whole = scores_of(head, vectors)
    assert torch.equal(scores_of(head, vectors[-rows:]), whole[-rows:])
    torch.testing.assert_close(whole, head.scores(vectors))
    assert scores_of(head, vectors[:0]).shape == (0, 13)


def without(name):
    def change(tensors):
        del tensors[name]

    return change


def with_tensor(name, tensor):
    def change(tensors):
        tensors[name] = tensor

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (with_tensor("input.scale", torch.tensor([1.0, 0.0, 1.0])), "a scale is not positive"),
        (with_tensor("input.scale", torch.tensor([1.0, -1.0, 1.0])), "a scale is not positive"),
        (with_tensor("input.mean", torch.tensor([1.0, math.nan, 1.0])), "'input.mean' contains"),
        (with_tensor("output.bias", torch.tensor([1.0, math.inf])), "'output.bias' contains NaN"),
        (with_tensor("output.viral", torch.ones(2)), "all classes are viral, or none is"),
        (with_tensor("output.viral", torch.zeros(2)), "all classes are viral, or none is"),
        (with_tensor("output.viral", torch.ones(3)), "is not a classifier"),
        (with_tensor("input.scale", torch.ones(4)), "is not a classifier"),
        (with_tensor("hidden.0.weight", torch.ones(4, 4)), "is not a classifier"),
        (with_tensor("hidden.0.bias", torch.ones(4, 1)), "is not a classifier"),
        (with_tensor("more", torch.ones(1)), "is not a classifier"),
        (without("output.viral"), "is not a classifier"),
        (without("output.weight"), "is not a classifier"),
        (without("output.bias"), "is not a classifier"),
        (without("hidden.0.bias"), "is not a classifier"),
        (without("hidden.0.weight"), "is not a classifier"),
        (without("input.scale"), "is not a classifier"),
    ],
)
def test_an_invalid_file_is_refused(change, told, load):
    tensors = tensors_of((3, 4, 2))
    change(tensors)
    with pytest.raises(BundleError, match=rf"head\.safetensors.*{told}.*Get the bundle again"):
        load(tensors)


def test_a_head_of_one_class_is_refused(load):
    with pytest.raises(BundleError, match="is not a classifier"):
        load(tensors_of((3, 1), [1.0]))


def test_an_unknown_device_is_refused(tmp_path):
    save_file(tensors_of((3, 2)), tmp_path / "head.safetensors")
    with pytest.raises(DeviceError, match="nowhere"):
        load_head(tmp_path / "head.safetensors", "nowhere")


def test_the_shape_is_read_from_the_tensors(tmp_path):
    shapes = {name: tuple(one.shape) for name, one in tensors_of((9, 5, 4, 3)).items()}
    assert standardised_shape(shapes, tmp_path).sizes == (9, 5, 4, 3)
    assert head_sizes(shapes, tmp_path)[0] == 9
    del shapes["input.mean"]
    assert standardised_shape(shapes, tmp_path) is None
