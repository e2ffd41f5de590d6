import pytest
import torch

from virnucpro.encoders.kernels import on_cache_lines


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("columns", [1, 16, 32, 33, 198, 390])
def test_rows_are_aligned_to_cache_lines_with_equal_numbers(columns, dtype):
    rows = torch.randn(5, columns).to(dtype)
    aligned = on_cache_lines(rows)
    assert [row.data_ptr() % 64 for row in aligned] == [0] * 5
    assert torch.equal(aligned, rows)


def test_aligned_rows_are_not_copied():
    rows = torch.randn(5, 480)
    assert on_cache_lines(rows) is rows
