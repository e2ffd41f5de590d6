import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.encoders.encoder import (
    CPU_STEP,
    LEAST_ROWS,
    EqualLengths,
    TorchEncoder,
    mean_of_sequences,
    means_by_groups,
    means_by_segments,
    pack,
)

LENGTHS = st.lists(st.integers(1, 12), max_size=30)


def ragged(lengths):
    """Return ids that encode sequence and position."""
    return [1000 * (i + 1) + np.arange(length) for i, length in enumerate(lengths)]


@given(LENGTHS)
def test_every_sequence_is_complete_at_its_offsets(lengths):
    batch = ragged(lengths)
    packed = pack(batch)
    offsets = packed.offsets.tolist()
    for ids, place in zip(batch, packed.places.tolist(), strict=True):
        assert packed.tokens[offsets[place] : offsets[place + 1]].tolist() == ids.tolist()
        positions = packed.positions[offsets[place] : offsets[place + 1]]
        assert positions.tolist() == list(range(len(ids)))
    assert packed.total == sum(lengths) == offsets[-1]
    assert len(packed.positions) == len(packed.tokens)
    assert not packed.positions[packed.total :].any()
    assert len(packed) == len(lengths)
    assert packed.longest == max(lengths, default=0)
    assert (packed.tokens.dtype, packed.offsets.dtype) == (torch.int64, torch.int32)


@given(LENGTHS)
def test_runs_cover_all_rows_longest_first_in_stable_order(lengths):
    packed = pack(ragged(lengths))
    start = 0
    for group in packed.groups:
        assert (group.start, group.n) == (start, lengths.count(group.length))
        numbers = group.of(packed.tokens)[:, 0]
        assert numbers.tolist() == sorted(numbers.tolist())
        start = group.stop
    assert start == packed.total
    sizes = [group.length for group in packed.groups]
    assert sizes == sorted(set(lengths), reverse=True)


@given(LENGTHS, st.integers(1, 64))
def test_batches_are_padded_to_a_multiple_of_the_step(lengths, step):
    rows = len(pack(ragged(lengths), step).tokens)
    assert rows >= LEAST_ROWS
    assert rows == LEAST_ROWS or (rows % step == 0 and rows - step < sum(lengths) <= rows)


def test_a_run_views_its_part_of_a_matrix():
    rows = torch.arange(40).view(20, 2)
    assert EqualLengths(2, 3, 4).of(rows).shape == (3, 4, 2)
    assert EqualLengths(2, 3, 4).of(rows)[1, 0].tolist() == [12, 13]
    group = EqualLengths(2, 3, 4)
    group.of(rows).zero_()
    assert rows[1:3].tolist() == [[2, 3], [0, 0]]


@given(LENGTHS.filter(bool), st.integers(0, 1), st.integers(0, 1))
def test_means_are_in_the_order_of_the_batch(lengths, first, last):
    batch = ragged([length + 2 for length in lengths])
    packed = pack(batch)
    hidden = torch.stack([packed.tokens, 2 * packed.tokens], 1).double()
    means = mean_of_sequences(hidden, packed, first=first, last=last)
    expected = [ids[first : len(ids) - last].mean() for ids in batch]
    np.testing.assert_allclose(means[:, 0].numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(means[:, 1].numpy(), 2 * np.array(expected), rtol=1e-6)


@given(LENGTHS.filter(bool), st.integers(0, 1), st.integers(0, 1))
def test_means_by_segments_equal_means_by_groups(lengths, first, last):
    packed = pack(ragged([length + 2 for length in lengths]))
    hidden = torch.randn(len(packed.tokens), 3)
    hidden[packed.total :] = torch.nan
    one, other = (way(hidden, packed, first, last) for way in (means_by_groups, means_by_segments))
    torch.testing.assert_close(other, one)


def test_omitted_tokens_and_filler_have_no_influence():
    packed = pack([np.arange(4)])
    hidden = torch.full((LEAST_ROWS, 1), torch.nan)
    hidden[1:3] = torch.tensor([[2.0], [4.0]])
    assert mean_of_sequences(hidden, packed, first=1, last=1).tolist() == [[3.0]]
    assert mean_of_sequences(hidden, packed).isnan().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_fp32(dtype):
    packed = pack([np.zeros(100_000, np.int64)])
    mean = mean_of_sequences(torch.ones(100_000, 1, dtype=dtype), packed)
    assert (mean.dtype, mean.item()) == (torch.float32, 1.0)


def test_means_have_gradients():
    hidden = torch.ones(LEAST_ROWS, 2, requires_grad=True)
    mean_of_sequences(hidden, pack([np.arange(4)]), first=1, last=1).sum().backward()
    assert hidden.grad[:5, 0].tolist() == [0, 0.5, 0.5, 0, 0]


def test_a_moved_batch_is_complete():
    packed = pack(ragged([3, 5]))
    moved = packed.to(torch.device("cpu"))
    assert torch.equal(moved.tokens, packed.tokens)
    assert torch.equal(moved.positions, packed.positions)
    assert moved.groups == packed.groups
    assert packed.to(torch.device("meta")).places.device.type == "meta"


def test_batches_on_a_cpu_have_a_multiple_of_the_step_as_rows():
    rows = []
    encoder = TorchEncoder(
        "x", 1, "protein", list, lambda packed: rows.append(len(packed.tokens)), torch.device("cpu")
    )
    for n in (1, CPU_STEP, CPU_STEP + 1, 5 * CPU_STEP - 1):
        encoder.encode(encoder.collate([np.zeros(n, np.int64)]))
    assert rows == [CPU_STEP, CPU_STEP, 2 * CPU_STEP, 5 * CPU_STEP]
