"""Encoders on a GPU: the same numbers as on a CPU, without waits for the device.

All tests use the fixture ``gpu`` for the device, so that they can run on a CPU, too.
"""

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend

from virnucpro.encoders.dnabert_s import model as alibi
from virnucpro.encoders.dnabert_s.model import AlignedBias, MirroredBias
from virnucpro.encoders.encoder import mean_of_sequences, means_by_groups, means_by_segments, pack
from virnucpro.encoders.kernels import attention_on, by_groups
from virnucpro.encoders.registry import load_encoder, open_spec

pytestmark = pytest.mark.gpu

LENGTHS = [70, 16, 33, 70, 1, 129, 33, 48, 2, 70]
LETTERS = [3, 40, 1, 333, 7, 40, 120, 2, 1300, 64]
HEADS, WIDTH = 6, 8
CLOSE = {torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 5e-2}
LEAST = {"fp32": 0.999999, "fp16": 0.9999, "bf16": 0.999}
"""Cosines with fp32 on a CPU."""


def packed_of(lengths):
    return pack([np.full(length, number) for number, length in enumerate(lengths)])


def drawn(*shape, seed=3):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=["esm2", "dnabert_s"])
def spec(request, fair_esm, dnabert):
    """Return a small encoder with heads that are wide enough for the kernels of a GPU."""
    if request.param == "esm2":
        path, _ = fair_esm(3, 64, 4)
    else:
        path, _ = dnabert(4, 64, 3)
    return open_spec(path)


@pytest.fixture
def draw(spec, proteins, bases):
    return proteins if spec.view == "protein" else bases


def test_a_batch_is_copied_to_the_gpu_without_a_wait(gpu, nothing_waits):
    packed = packed_of(LENGTHS)
    with nothing_waits():
        moved = packed.to(gpu)
    assert moved.groups == packed.groups
    for name in ("tokens", "offsets", "positions", "places"):
        there, here = getattr(moved, name), getattr(packed, name)
        assert there.device.type == gpu.type
        assert there.dtype == here.dtype
        assert torch.equal(there.cpu(), here)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize(("first", "last"), [(0, 0), (1, 1)])
def test_means_by_segments_equal_means_by_groups_on_a_gpu(gpu, nothing_waits, dtype, first, last):
    packed = packed_of([length + 2 for length in LENGTHS])
    hidden = drawn(len(packed.tokens), 40).to(dtype)
    hidden[packed.total :] = torch.nan
    there, moved = hidden.to(gpu), packed.to(gpu)
    expected = means_by_groups(hidden, packed, first, last)
    with nothing_waits():
        means = means_by_segments(there, moved, first, last)
        ordered = mean_of_sequences(there, moved, first=first, last=last)
    torch.testing.assert_close(means.cpu(), expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(ordered.cpu(), expected[packed.places], rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("most", [1 << 27, 20_000], ids=["tables", "blocks"])
def test_an_aligned_bias_agrees_with_the_cpu_layout(gpu, nothing_waits, monkeypatch, dtype, most):
    monkeypatch.setattr(alibi, "_MOST_HELD", most)
    monkeypatch.setattr(alibi, "_BLOCK", most // 4)
    packed = packed_of(LENGTHS)
    rows = (2 * drawn(len(packed.tokens), 3 * HEADS * WIDTH)).to(dtype)
    expected = MirroredBias(HEADS)(rows.float(), packed.groups)
    bias, there = AlignedBias(HEADS), rows.to(gpu)
    with nothing_waits():
        made, held = bias(there, packed.groups), bias(there, packed.groups)
    assert made.dtype == dtype
    assert torch.equal(made, held)
    torch.testing.assert_close(made.cpu().float(), expected, rtol=0, atol=CLOSE[dtype])


@pytest.mark.parametrize(("heads", "width"), [(6, 8), (12, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_bias_uses_the_memory_efficient_kernel(gpu, monkeypatch, dtype, heads, width):
    """Otherwise plain products would need a table per sequence."""
    only = [SDPBackend.EFFICIENT_ATTENTION] if gpu.type == "cuda" else [SDPBackend.MATH]
    monkeypatch.setattr(alibi, "_KERNELS", only)
    packed = packed_of(LENGTHS)
    rows = drawn(len(packed.tokens), 3 * heads * width).to(gpu, dtype)
    assert AlignedBias(heads)(rows, packed.groups).isfinite().all()


@pytest.mark.parametrize("dtype", CLOSE)
def test_attention_agrees_with_the_cpu_for_all_gpu_kernels(gpu, nothing_waits, dtype):
    packed = packed_of(LENGTHS)
    heads = drawn(len(packed.tokens), 3, HEADS, WIDTH).to(dtype)
    there, moved = heads.to(gpu), packed.to(gpu)
    attend = attention_on(gpu, dtype, WIDTH)
    with nothing_waits():
        mixed = attend(there, moved)
    expected = by_groups(heads.float(), packed)
    torch.testing.assert_close(mixed.cpu().float(), expected, rtol=0, atol=CLOSE[dtype])


@pytest.mark.parametrize("precision", LEAST)
def test_vectors_agree_with_the_cpu(gpu, spec, draw, precision):
    ours, cpus = load_encoder(spec, gpu.type, precision), load_encoder(spec)
    tokens = cpus.tokenise(draw(LETTERS))
    expected = cpus.encode(cpus.collate(tokens))
    vectors = ours.encode(ours.collate(tokens))
    assert (vectors.device.type, vectors.dtype) == (gpu.type, torch.float32)
    vectors = vectors.cpu()
    assert torch.cosine_similarity(expected[:, None], expected, dim=2).min() < 0.99
    assert torch.cosine_similarity(vectors, expected).min() >= LEAST[precision]
    if precision == "fp32":
        torch.testing.assert_close(vectors, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("precision", LEAST)
def test_other_sequences_change_only_rounding_and_a_repeat_nothing(gpu, spec, draw, precision):
    encoder = load_encoder(spec, gpu.type, precision)
    tokens = encoder.tokenise(draw(LETTERS))
    together = encoder.encode(encoder.collate(tokens)).cpu()
    alone = torch.cat([encoder.encode(encoder.collate([ids])).cpu() for ids in tokens])
    assert torch.cosine_similarity(together, alone).min() >= LEAST[precision]
    assert torch.equal(encoder.encode(encoder.collate(tokens)).cpu(), together)


@pytest.mark.parametrize("precision", LEAST)
def test_a_batch_is_queued_without_a_wait_for_the_device(gpu, nothing_waits, spec, draw, precision):
    """The lengths are new, so that tables of angles or biases are computed, too."""
    encoder = load_encoder(spec, gpu.type, precision)
    encoder.encode(encoder.collate(encoder.tokenise(draw([9, 4]))))  # loads the kernels
    batch = encoder.collate(encoder.tokenise(draw(LETTERS)))
    with nothing_waits():
        vectors = encoder.encode(batch)
    assert vectors.cpu().isfinite().all()


def test_an_empty_batch_gives_no_vectors(gpu, spec):
    encoder = load_encoder(spec, gpu.type)
    vectors = encoder.encode(encoder.collate([]))
    assert (vectors.shape, vectors.device.type) == ((0, encoder.dim), gpu.type)
