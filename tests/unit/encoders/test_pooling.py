import math

import pytest
import torch

from virnucpro.encoders.pooling import masked_mean, positions_below


def test_positions_below_marks_each_rows_length():
    marks = positions_below(torch.tensor([0, 2, 3]), 3)
    assert marks.int().tolist() == [[0, 0, 0], [1, 1, 0], [1, 1, 1]]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_left_out_has_no_influence_even_when_it_is_no_number(bad):
    hidden = torch.tensor([[[bad], [2.0], [4.0], [bad]]])
    keep = torch.tensor([[False, True, True, False]])
    assert masked_mean(hidden, keep).tolist() == [[3.0]]


def test_what_is_kept_and_no_number_shows():
    hidden = torch.tensor([[[math.nan], [2.0]]])
    assert masked_mean(hidden, torch.tensor([[True, True]])).isnan().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_are_summed_in_fp32(dtype):
    hidden = torch.ones(1, 100_000, 1, dtype=dtype)
    mean = masked_mean(hidden, torch.ones(1, 100_000, dtype=torch.bool))
    assert mean.dtype == torch.float32
    assert mean.item() == 1.0


def test_gradients_pass():
    hidden = torch.ones(1, 4, 2, requires_grad=True)
    masked_mean(hidden, torch.tensor([[True, True, False, False]])).sum().backward()
    assert hidden.grad[0, :, 0].tolist() == [0.5, 0.5, 0, 0]
