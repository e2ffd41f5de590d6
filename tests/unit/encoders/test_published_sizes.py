import math
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from esm.model.esm2 import ESM2
from torch.utils.flop_counter import FlopCounterMode

from virnucpro.encoders.esm2.config import Esm2Config
from virnucpro.encoders.registry import PUBLISHED, config_of, shapes_of
from virnucpro.errors import BundleError

UNITS = {"M": 1e6, "B": 1e9}


def n_parameters(size):
    return sum(map(math.prod, size.tensor_shapes().values()))


def test_published_names_contain_the_number_of_parameters():
    for name in PUBLISHED:
        if match := re.fullmatch(r"esm2_t\d+_(\d+)([MB])_UR50D", name):
            assert n_parameters(PUBLISHED[name]) == pytest.approx(
                int(match[1]) * UNITS[match[2]], rel=0.08
            )
    pooler = 768 * 768 + 768
    assert n_parameters(PUBLISHED["dnabert_s"]) == 117_068_544 - pooler


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_settings_are_valid_and_restored_from_a_spec(name):
    size = PUBLISHED[name]
    assert type(size).read(asdict(size), Path(name)) == size
    spec = size.spec("x", Path(), {})
    assert config_of(spec) == size
    assert shapes_of(spec) == list(size.tensor_shapes().values())


def test_esm2_3b_has_the_known_number_of_operations(scripts):
    work = scripts.work_of(PUBLISHED["esm2_t36_3B_UR50D"])
    assert work.operations([168]) / 168 / 1e9 == pytest.approx(5.72, abs=0.01)


@pytest.mark.parametrize("name", PUBLISHED)
def test_operations_count_every_matrix_of_every_layer(scripts, name):
    size = PUBLISHED[name]
    matrices = [
        math.prod(shape)
        for tensor, shape in size.tensor_shapes().items()
        if "layer" in tensor and len(shape) == 2
    ]
    assert scripts.work_of(size).linear == 2 * sum(matrices)


def test_operations_equal_those_that_torch_counts_for_fair_esm(scripts):
    layers, width, heads, n, length = 2, 24, 3, 3, 60
    module = ESM2(layers, width, heads)
    tokens = torch.full((n, length), 5)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(tokens)
    counted = counter.get_flop_counts()["Global"]
    lm_head = 2 * n * length * (width * width + width * 33)
    work = scripts.work_of(Esm2Config(layers, width, heads))
    assert counted[torch.ops.aten.bmm] == work.attention([length] * n)
    assert counter.get_total_flops() - lm_head == work.operations([length] * n)


def test_shapes_of_several_encoders_are_concatenated():
    names = ("dnabert_s", "esm2_t6_8M_UR50D")
    one, other = (PUBLISHED[name].spec("x", Path(), {}) for name in names)
    assert shapes_of(one, other, one) == shapes_of(one) + shapes_of(other) + shapes_of(one)
    assert shapes_of() == []


@pytest.mark.parametrize("ask", [config_of, shapes_of])
def test_a_spec_without_a_known_size_is_refused(ask):
    spec = PUBLISHED["esm2_t6_8M_UR50D"].spec("x", Path(), {})
    with pytest.raises(BundleError, match="unknown architecture 'mamba'"):
        ask(replace(spec, architecture="mamba"))
    with pytest.raises(BundleError, match="lack 'num_layers'"):
        ask(replace(spec, config={}))
