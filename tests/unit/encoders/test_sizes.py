import math
import re
from pathlib import Path

import pytest
import torch
from esm.data import Alphabet
from esm.model.esm2 import ESM2
from torch.utils.flop_counter import FlopCounterMode

from virnucpro.encoders.dnabert_s import DnabertS, DnabertSConfig
from virnucpro.encoders.registry import EncoderSpec
from virnucpro.encoders.sizes import PUBLISHED, PublishedSize, n_parameters, tensors_of, work_of
from virnucpro.encoders.unfilled import unfilled
from virnucpro.errors import UsageError

UNITS = {"M": 1e6, "B": 1e9}


def test_the_published_names_tell_the_number_of_parameters():
    for name in PUBLISHED:
        if match := re.fullmatch(r"esm2_t\d+_(\d+)([MB])_UR50D", name):
            assert n_parameters(PUBLISHED[name]) == pytest.approx(
                int(match[1]) * UNITS[match[2]], rel=0.08
            )
    pooler = 768 * 768 + 768
    assert n_parameters(PUBLISHED["dnabert_s"]) == 117_068_544 - pooler


def test_an_esm2_file_has_the_tensors_of_fair_esms_module():
    size = PublishedSize("esm2", {"num_layers": 2, "embed_dim": 24, "attention_heads": 3})
    with unfilled():
        module = ESM2(2, 24, 3, Alphabet.from_architecture("ESM-1b"))
    unused = ("lm_head.", "contact_head.")
    wanted = {
        name: tuple(tensor.shape)
        for name, tensor in module.state_dict().items()
        if not name.startswith(unused) and not name.endswith("inv_freq")
    }
    assert tensors_of(size) == wanted


def test_a_dnabert_s_file_has_the_tensors_of_its_module():
    config = {
        "vocab_size": 64,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "type_vocab_size": 2,
    }
    with unfilled():
        module = DnabertS(DnabertSConfig(**config))
    wanted = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    assert tensors_of(PublishedSize("dnabert_s", config)) == wanted


def test_esm2_3b_needs_the_operations_that_are_known_of_it():
    work = work_of(spec_of_size(PUBLISHED["esm2_t36_3B_UR50D"]))
    assert work.operations([168]) / 168 / 1e9 == pytest.approx(5.72, abs=0.01)


def spec_of_size(size, name="x"):
    return EncoderSpec(name, size.architecture, "protein", 8, Path(), {}, dict(size.config))


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_token_is_multiplied_with_every_matrix_of_every_layer(name):
    matrices = [
        math.prod(shape)
        for tensor, shape in tensors_of(PUBLISHED[name]).items()
        if "layer" in tensor and len(shape) == 2
    ]
    assert work_of(spec_of_size(PUBLISHED[name])).linear == 2 * sum(matrices)


def test_torch_counts_the_same_operations_in_fair_esms_forward():
    layers, width, heads, n, length = 2, 24, 3, 3, 60
    size = PublishedSize(
        "esm2", {"num_layers": layers, "embed_dim": width, "attention_heads": heads}
    )
    module = ESM2(layers, width, heads)
    tokens = torch.full((n, length), 5)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(tokens)
    counted = counter.get_flop_counts()["Global"]
    lm_head = 2 * n * length * (width * width + width * 33)
    work = work_of(spec_of_size(size))
    assert counted[torch.ops.aten.bmm] == work.attention([length] * n)
    assert counter.get_total_flops() - lm_head == work.operations([length] * n)


def test_an_unknown_architecture_is_refused():
    spec = EncoderSpec("new", "mamba", "protein", 8, Path(), {}, {})
    with pytest.raises(UsageError, match="mamba"):
        work_of(spec)
