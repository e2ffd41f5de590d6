"""Weights outside the range of a precision, in files of the published formats."""

from argparse import Namespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from virnucpro.encoders.registry import load_encoder
from virnucpro.errors import BundleError

LINEAR = {
    "esm2": "encoder.sentence_encoder.layers.1.fc2.weight",
    "dnabert_s": "encoder.layer.1.attention.self.Wqkv.weight",
}
EMBEDDING = {
    "esm2": "encoder.sentence_encoder.embed_tokens.weight",
    "dnabert_s": "embeddings.word_embeddings.weight",
}


@pytest.fixture(params=["esm2", "dnabert_s"])
def architecture(request):
    return request.param


def with_number(spec_of, architecture, names, number):
    """Write a number into one tensor of an encoder: -> spec."""
    spec = spec_of(architecture)
    path = spec.file("weights")
    if path.suffix == ".pt":
        with torch.serialization.safe_globals([Namespace]):
            content = torch.load(path)
        content["model"][names[architecture]][3, 2] = number
        torch.save(content, path)
    else:
        tensors = load_file(path)
        tensors[names[architecture]][3, 2] = number
        save_file(tensors, path)
    return spec


@pytest.mark.parametrize("number", [7e4, -7e4])
def test_weights_too_large_for_fp16_are_refused_only_at_fp16(spec_of, architecture, number):
    spec = with_number(spec_of, architecture, LINEAR, number)
    bare = LINEAR[architecture].removeprefix("encoder.sentence_encoder.")
    with pytest.raises(BundleError) as caught:
        load_encoder(spec, "cpu", "fp16")
    assert str(caught.value) == (
        f"{spec.file('weights')}: tensor {bare!r} contains numbers up to 7e+04; the maximum of "
        "fp16 is 6.55e+04. Use --precision bf16 or fp32."
    )
    for precision in ("bf16", "fp32"):
        load_encoder(spec, "cpu", precision)


def test_the_largest_numbers_of_bf16_and_of_tensors_kept_at_fp32(spec_of, architecture):
    spec = with_number(spec_of, architecture, LINEAR, 3.4e38)  # the maximum of bf16 is 3.39e38
    with pytest.raises(BundleError, match=r"maximum of bf16 is 3\.39e\+38. Use --precision fp32\."):
        load_encoder(spec, "cpu", "bf16")
    load_encoder(spec, "cpu", "fp32")
    load_encoder(with_number(spec_of, architecture, EMBEDDING, 7e4), "cpu", "fp16")
