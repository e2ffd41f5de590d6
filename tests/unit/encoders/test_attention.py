import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from virnucpro.encoders.encoder import pack
from virnucpro.encoders.kernels import all_at_once, attention_on, by_groups, has_varlen

LENGTHS = [1, 30, 7, 30, 30, 64, 7, 2]
HEADS, WIDTH = 3, 8
CLOSE = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def joined(lengths, dtype):
    packed = pack([np.zeros(length, np.int64) for length in lengths])
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(len(packed.tokens), 3, HEADS, WIDTH, generator=generator)
    return rows.to(dtype), packed


def straight_line(heads, packed):
    """Compute softmax attention of one sequence at a time in float64."""
    mixed = torch.zeros(len(heads), HEADS * WIDTH, dtype=torch.float64)
    ends = packed.offsets.tolist()
    for start, stop in pairwise(ends):
        q, k, v = heads[start:stop].double().permute(1, 2, 0, 3)
        weights = torch.softmax(q @ k.mT / math.sqrt(WIDTH), -1)
        mixed[start:stop] = (weights @ v).transpose(0, 1).flatten(1)
    return mixed


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("lengths", [LENGTHS, [5], [40]], ids=["many", "tiny", "one"])
def test_tokens_attend_only_to_their_own_sequence(dtype, lengths):
    heads, packed = joined(lengths, dtype)
    expected = straight_line(heads, packed)
    torch.testing.assert_close(
        by_groups(heads, packed).double(), expected, rtol=0, atol=CLOSE[dtype], check_dtype=False
    )


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_attention_over_offsets_agrees_on_a_gpu(cuda, dtype):
    if not has_varlen(torch.cuda.get_device_capability(cuda), dtype, WIDTH):
        pytest.skip("needs a CUDA device from Ampere on")
    heads, packed = joined(LENGTHS, dtype)
    mixed = all_at_once(heads.to(cuda), packed.to(cuda)).cpu().double()
    torch.testing.assert_close(mixed, straight_line(heads, packed), rtol=0, atol=CLOSE[dtype])


@pytest.mark.parametrize(
    ("capability", "dtype", "head_dim", "has"),
    [
        ((8, 0), torch.float16, 64, True),
        ((8, 9), torch.bfloat16, 24, True),
        ((12, 0), torch.bfloat16, 128, True),
        ((9, 0), torch.float16, 256, True),
        ((7, 5), torch.float16, 64, False),
        ((7, 0), torch.bfloat16, 64, False),
        ((9, 0), torch.float32, 64, False),
        ((9, 0), torch.float16, 20, False),
        ((9, 0), torch.float16, 264, False),
        (None, torch.bfloat16, 64, False),
    ],
)
def test_attention_over_offsets_needs_half_precision_and_ampere(capability, dtype, head_dim, has):
    assert has_varlen(capability, dtype, head_dim) is has


@pytest.mark.parametrize(("capability", "way"), [((7, 5), by_groups), ((8, 6), all_at_once)])
def test_the_capability_of_the_device_selects_the_attention(monkeypatch, capability, way):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: capability)
    assert attention_on(torch.device("cuda"), torch.float16, 64) is way
    assert attention_on(torch.device("cpu"), torch.float16, 64) is by_groups
