import math
from collections import Counter

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from virnucpro.encoders.dnabert_s import model as alibi
from virnucpro.encoders.dnabert_s.model import AlignedBias, MirroredBias, head_slopes
from virnucpro.encoders.encoder import EqualLengths

HEADS, HEAD_DIM = 6, 8
GROUPS = [
    EqualLengths(0, 2, 70),
    EqualLengths(140, 1, 33),
    EqualLengths(173, 3, 32),
    EqualLengths(269, 4, 1),
]
ROWS = 280  # the last seven are filler


def test_slopes_are_halved_in_turn_and_those_of_more_heads_lie_between():
    halved = [2.0**-k for k in range(1, 9)]
    assert head_slopes(8) == pytest.approx(halved)
    assert head_slopes(12) == pytest.approx(halved + [2.0 ** -(k + 0.5) for k in range(4)])


@pytest.mark.parametrize("heads", range(1, 34))
def test_each_head_has_a_distinct_slope_between_zero_and_one(heads):
    slopes = head_slopes(heads)
    assert len(set(slopes)) == heads
    assert all(0 < slope < 1 for slope in slopes)


def straight_line(joined, groups):
    """Compute attention per sequence and head in fp64: softmax of scores minus slope * distance."""
    q, k, v = joined.double().view(len(joined), 3, HEADS, HEAD_DIM).unbind(1)
    mixed = torch.zeros_like(q)
    for group in groups:
        for first in range(group.start, group.stop, group.length):
            place = torch.arange(group.length)
            distance = (place[:, None] - place).abs()
            for head, slope in enumerate(head_slopes(HEADS)):
                rows = slice(first, first + group.length)
                scores = q[rows, head] @ k[rows, head].T / math.sqrt(HEAD_DIM) - slope * distance
                mixed[rows, head] = torch.softmax(scores, 1) @ v[rows, head]
    return mixed.flatten(1)


@pytest.fixture
def joined():
    generator = torch.Generator().manual_seed(3)
    return 2 * torch.randn(ROWS, 3 * HEADS * HEAD_DIM, generator=generator)


@pytest.mark.parametrize("layout", [MirroredBias, AlignedBias])
@pytest.mark.parametrize(
    ("dtype", "most"), [(torch.float32, 5e-6), (torch.float16, 5e-3), (torch.bfloat16, 5e-2)]
)
def test_both_layouts_equal_a_simple_implementation(joined, layout, dtype, most):
    mixed = layout(HEADS)(joined.to(dtype), GROUPS)
    assert mixed.dtype == dtype
    expected = straight_line(joined.to(dtype), GROUPS)
    torch.testing.assert_close(mixed.double(), expected, rtol=0, atol=most)


def test_a_mirrored_bias_is_a_view_of_one_ramp(joined):
    bias = MirroredBias(HEADS)
    bias(joined, GROUPS)
    held = bias.table(70).untyped_storage()
    for length in (1, 2, 33, 70, 128):
        table = bias.table(length)
        assert table.untyped_storage().data_ptr() == held.data_ptr()
        place = torch.arange(length)
        distance = (place[:, None] - place.flip(0)).abs()
        slopes = torch.tensor(head_slopes(HEADS))
        assert torch.equal(table[0], -slopes[:, None, None] * distance)
    assert held.nbytes() <= 4 * HEADS * 2 * 128


def test_the_ramp_grows_only_for_longer_sequences(joined):
    bias = MirroredBias(HEADS)
    bias(joined[:4], [EqualLengths(0, 1, 4)])
    short = bias.table(4).untyped_storage().nbytes()
    long = bias(joined, [EqualLengths(0, 1, ROWS)])
    assert bias.table(4).untyped_storage().nbytes() > short
    expected = straight_line(joined, [EqualLengths(0, 1, ROWS)])
    torch.testing.assert_close(long.double(), expected, rtol=0, atol=5e-6)


@pytest.fixture
def biases(monkeypatch):
    """Record each bias passed to the attention."""
    given = []

    def spy(q, k, v, attn_mask):
        given.append(attn_mask)
        return scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)

    monkeypatch.setattr(alibi, "scaled_dot_product_attention", spy)
    return given


def test_an_aligned_bias_is_broadcast_in_the_type_of_the_keys_and_padded_to_16(joined, biases):
    AlignedBias(HEADS)(joined.half(), GROUPS)
    assert [tuple(bias.shape) for bias in biases] == [
        (2, HEADS, 70, 80),
        (1, HEADS, 33, 48),
        (3, HEADS, 32, 32),
        (4, HEADS, 1, 16),
    ]
    for bias in biases:
        assert bias.dtype == torch.float16
        assert bias.stride(0) == 0 or len(bias) == 1
        assert all(step % 16 == 0 for step in bias.stride()[1:3])


def test_tables_are_shared_by_layers_and_their_memory_is_bounded(joined, biases, monkeypatch):
    bias = AlignedBias(HEADS)
    for _ in range(2):
        bias(joined, GROUPS)
    assert [one.data_ptr() for one in biases[:4]] == [one.data_ptr() for one in biases[4:]]
    monkeypatch.setattr(alibi, "_MOST_HELD", HEADS * 70 * 80)
    bounded = AlignedBias(HEADS)
    expected = straight_line(joined, GROUPS)
    for _ in range(2):
        torch.testing.assert_close(bounded(joined, GROUPS).double(), expected, rtol=0, atol=5e-6)
        assert sum(table.numel() for table in bounded._held.values()) <= HEADS * 70 * 80


def test_a_table_too_large_for_the_cache_is_computed_in_blocks(joined, biases, monkeypatch):
    monkeypatch.setattr(alibi, "_MOST_HELD", 20_000)
    monkeypatch.setattr(alibi, "_BLOCK", 5_000)
    mixed = AlignedBias(HEADS)(joined, GROUPS)
    assert len(biases) > 8
    assert max(bias[0].numel() for bias in biases) <= 20_000
    torch.testing.assert_close(mixed.double(), straight_line(joined, GROUPS), rtol=0, atol=5e-6)


class Kernels(TorchDispatchMode):
    """Counts operators by name for which a GPU starts a kernel: all but views and allocations."""

    def __init__(self):
        super().__init__()
        self.names = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if not (function.is_view or "empty" in str(function)):
            self.names[str(function)] += 1
        return function(*args, **(kwargs or {}))


def test_a_layer_starts_one_kernel_per_run_and_per_padding_and_two_more(joined, monkeypatch):
    def as_a_gpu(q, k, v, attn_mask):
        n, heads, length, width = q.shape
        return q.new_empty(n, length, heads, width).transpose(
            1, 2
        )  # the layout of torch's kernel on a GPU

    monkeypatch.setattr(alibi, "scaled_dot_product_attention", as_a_gpu)
    bias, rows = AlignedBias(HEADS), joined[: GROUPS[-1].stop]
    with Kernels() as first:
        bias(rows, GROUPS)
    assert first.names["aten.arange.start"] + first.names["aten.arange.default"] == 2 * len(GROUPS)
    with Kernels() as later:
        bias(rows, GROUPS)
    filled = sum(group.length % 16 != 0 for group in GROUPS)
    assert later.names == {"aten.new_zeros.default": 1, "aten.cat.default": filled + 1}


def test_keys_of_a_multiple_of_16_are_not_copied(joined, monkeypatch):
    seen = []

    def spy(q, k, v, attn_mask):
        seen.extend([q, k, v])
        return scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)

    monkeypatch.setattr(alibi, "scaled_dot_product_attention", spy)
    AlignedBias(HEADS)(joined, [EqualLengths(0, 2, 48)])
    assert {one.untyped_storage().data_ptr() for one in seen} == {joined.data_ptr()}
