"""Tests of every registered architecture."""

import numpy as np
import pytest
import torch
from cases import slow

from virnucpro.encoders.registry import architectures, load_encoder
from virnucpro.errors import DeviceError, InputError, UsageError

WITH_TORCH = [name for name in architectures() if name not in {"composition", "genes", "plugin"}]
LETTERS = {"protein": b"LAGVSERTIDPKQNFYMHWC", "nucleotide": b"ACGT"}
LENGTHS = [40, 1, 333, 7, 40, 120, 2]
LONGER = [60, 61, 333, 70, 60, 120, 90]
"""Lengths for encoders without torch: very short sequences have equal vectors."""


@pytest.fixture(scope="module", params=architectures())
def spec(request, spec_of):
    return spec_of(request.param)


@pytest.fixture(scope="module")
def encoder(spec):
    return load_encoder(spec)


@pytest.fixture(scope="module")
def draw(spec, random_sequences):
    return lambda lengths: random_sequences(LETTERS[spec.view], lengths)


@pytest.fixture(scope="module")
def lengths(spec):
    return LENGTHS if spec.architecture in WITH_TORCH else LONGER


def test_an_encoder_has_the_attributes_of_its_spec(encoder, spec):
    assert (encoder.name, encoder.dim, encoder.view) == (spec.name, spec.dim, spec.view)


def test_tokens_are_one_array_of_integers_per_sequence_in_order(encoder, draw, lengths):
    sequences = draw(lengths)
    together = encoder.tokenise(sequences)
    alone = [encoder.tokenise([sequence])[0] for sequence in sequences]
    assert [ids.tolist() for ids in together] == [ids.tolist() for ids in alone]
    assert all(ids.ndim == 1 and np.issubdtype(ids.dtype, np.integer) for ids in together)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_vectors_are_fp32_at_any_precision(spec, draw, lengths, precision):
    encoder = load_encoder(spec, "cpu", precision)
    vectors = encoder.vectors(encoder.tokenise(draw(lengths)))
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(lengths), encoder.dim)
    assert np.isfinite(vectors).all()


def test_other_sequences_and_order_change_only_rounding(encoder, draw, lengths):
    tokens = encoder.tokenise(draw(lengths))
    alone = np.concatenate([encoder.vectors([ids]) for ids in tokens])
    assert torch.pdist(torch.from_numpy(alone)).min() > 1e-2
    generator = np.random.default_rng(5)
    for _ in range(3):
        order = generator.permutation(len(tokens))
        mixed = encoder.vectors([tokens[k] for k in order])
        np.testing.assert_allclose(mixed, alone[order], rtol=0, atol=1e-5)


@pytest.mark.parametrize("precision", ["fp32", slow("fp16"), slow("bf16")])
def test_the_same_batch_gives_the_same_bits(spec, draw, lengths, precision):
    first, second = (load_encoder(spec, precision=precision) for _ in range(2))
    tokens = first.tokenise(draw(lengths))
    vectors = first.vectors(tokens)
    first.vectors(tokens[:3])
    assert np.array_equal(first.vectors(tokens), vectors)
    assert np.array_equal(second.vectors(tokens), vectors)


def test_an_empty_batch_gives_no_vectors(encoder):
    vectors = encoder.vectors(encoder.tokenise([]))
    assert vectors.shape == (0, encoder.dim)
    assert vectors.dtype == np.float32


def test_a_very_long_sequence_is_not_truncated(encoder, draw):
    (sequence,) = draw([1300])
    other = sequence[:1100] + sequence[:200]
    vectors = encoder.vectors(encoder.tokenise([sequence, other]))
    assert np.isfinite(vectors).all()
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-4


def test_lower_case_gives_the_same_vector(encoder, draw):
    sequences = draw([80])
    vectors = encoder.vectors(encoder.tokenise([*sequences, sequences[0].lower()]))
    np.testing.assert_allclose(vectors[0], vectors[1], rtol=1e-6, atol=1e-5)


def test_unknown_letters_change_the_vector(encoder, draw):
    letters = [b"J", b"*", b"1", b"\xff"]
    (sequence,) = draw([80])
    odd = [sequence[:40] + letter + sequence[41:] for letter in letters]
    vectors = encoder.vectors(encoder.tokenise([sequence, *odd, *letters]))
    assert np.isfinite(vectors).all()
    assert (np.abs(vectors[1 : 1 + len(odd)] - vectors[0]).max(axis=1) > 1e-4).all()


def test_an_empty_sequence_is_refused_with_its_position(encoder, draw):
    with pytest.raises(InputError, match="sequence 1 of 3 is empty"):
        encoder.tokenise([*draw([5]), b"", b"A"])


@pytest.mark.parametrize("spec", WITH_TORCH, indirect=True)
def test_vectors_on_the_device_have_no_gradients(encoder, draw):
    vectors = encoder.encode(encoder.collate(encoder.tokenise(draw(LENGTHS))))
    assert vectors.device.type == "cpu"
    assert vectors.is_inference()


@pytest.mark.parametrize("spec", WITH_TORCH, indirect=True)
@pytest.mark.parametrize(
    ("device", "precision", "error"),
    [("cpu", "fp64", UsageError), ("quantum", "fp32", DeviceError)],
)
def test_an_unknown_precision_or_device_is_refused(spec, device, precision, error):
    with pytest.raises(error, match=r"fp64|quantum"):
        load_encoder(spec, device, precision)
