"""Tests of every registered architecture."""

import numpy as np
import pytest
import torch

from virnucpro.encoders.registry import architectures, load_encoder
from virnucpro.errors import DeviceError, InputError, UsageError

LETTERS = {"protein": b"LAGVSERTIDPKQNFYMHWC", "nucleotide": b"ACGT"}
LENGTHS = [40, 1, 333, 7, 40, 120, 2]
LONGER = [60, 61, 333, 70, 60, 120, 90]
"""Lengths for `composition`: sequences without a word of three letters have equal vectors."""


@pytest.fixture(params=architectures())
def spec(request, spec_of):
    return spec_of(request.param)


@pytest.fixture
def encoder(spec):
    return load_encoder(spec)


@pytest.fixture
def draw(spec, random_sequences):
    return lambda lengths: random_sequences(LETTERS[spec.view], lengths)


@pytest.fixture
def lengths(spec):
    return LONGER if spec.architecture == "composition" else LENGTHS


def test_an_encoder_has_the_attributes_of_its_spec(encoder, spec):
    assert (encoder.name, encoder.dim, encoder.view) == (spec.name, spec.dim, spec.view)


def test_tokens_are_one_int64_array_per_sequence_in_order(encoder, draw, lengths):
    sequences = draw(lengths)
    together = encoder.tokenise(sequences)
    alone = [encoder.tokenise([sequence])[0] for sequence in sequences]
    assert [ids.tolist() for ids in together] == [ids.tolist() for ids in alone]
    assert {(ids.dtype, ids.ndim) for ids in together} == {(np.dtype(np.int64), 1)}


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_vectors_are_fp32_on_the_device_without_gradients(spec, draw, lengths, precision):
    encoder = load_encoder(spec, "cpu", precision)
    vectors = encoder.encode(encoder.collate(encoder.tokenise(draw(lengths))))
    assert (vectors.dtype, vectors.device.type) == (torch.float32, "cpu")
    assert vectors.shape == (len(lengths), encoder.dim)
    assert vectors.isfinite().all()
    assert vectors.is_inference()


def test_other_sequences_and_order_change_only_rounding(encoder, draw, lengths):
    tokens = encoder.tokenise(draw(lengths))
    alone = torch.cat([encoder.encode(encoder.collate([ids])) for ids in tokens])
    assert torch.pdist(alone).min() > 1e-2
    generator = np.random.default_rng(5)
    for _ in range(3):
        order = generator.permutation(len(tokens))
        mixed = encoder.encode(encoder.collate([tokens[k] for k in order]))
        torch.testing.assert_close(mixed, alone[torch.from_numpy(order)], rtol=0, atol=1e-5)


def test_the_same_batch_gives_the_same_bits(encoder, draw, lengths):
    tokens = encoder.tokenise(draw(lengths))
    assert torch.equal(
        encoder.encode(encoder.collate(tokens)), encoder.encode(encoder.collate(tokens))
    )


def test_an_empty_batch_gives_no_vectors(encoder):
    vectors = encoder.encode(encoder.collate(encoder.tokenise([])))
    assert vectors.shape == (0, encoder.dim)
    assert vectors.dtype == torch.float32


def test_a_very_long_sequence_is_not_truncated(encoder, draw):
    (sequence,) = draw([6000])
    other = sequence[:-3000] + sequence[-3000:][::-1]
    vectors = encoder.encode(encoder.collate(encoder.tokenise([sequence, other])))
    assert vectors.isfinite().all()
    assert (vectors[0] - vectors[1]).abs().max() > 1e-4


def test_lower_case_gives_the_same_vector(encoder, draw):
    sequences = draw([80])
    vectors = encoder.encode(encoder.collate(encoder.tokenise([*sequences, sequences[0].lower()])))
    torch.testing.assert_close(vectors[0], vectors[1])


@pytest.mark.parametrize("letter", [b"J", b"*", b"1", b"\xff"])
def test_unknown_letters_change_the_vector(encoder, draw, letter):
    (sequence,) = draw([80])
    odd = sequence[:40] + letter + sequence[41:]
    vectors = encoder.encode(encoder.collate(encoder.tokenise([sequence, odd, letter])))
    assert vectors.isfinite().all()
    assert (vectors[0] - vectors[1]).abs().max() > 1e-4


def test_an_empty_sequence_is_refused_with_its_position(encoder, draw):
    with pytest.raises(InputError, match="sequence 1 of 3 is empty"):
        encoder.tokenise([*draw([5]), b"", b"A"])


def test_an_unknown_precision_is_refused(spec):
    with pytest.raises(UsageError, match="fp64"):
        load_encoder(spec, "cpu", "fp64")


def test_an_unknown_device_is_refused(spec):
    with pytest.raises(DeviceError, match="quantum"):
        load_encoder(spec, "quantum")
