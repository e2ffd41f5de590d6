import re
from types import SimpleNamespace

import pytest
import torch
from batchings import vectors_of
from torch.nn.functional import gelu, linear

from virnucpro.encoders import kernels
from virnucpro.encoders.kernels import PrepackedLinear, has_kernels, on_cache_lines
from virnucpro.encoders.registry import open_spec

CPU = torch.device("cpu")
SHAPES = [(24, 72), (768, 768), (480, 96)]
PRECISIONS = [torch.float32, torch.bfloat16]


def drawn(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def skip_without_kernels(dtype):
    if not has_kernels(CPU, dtype):
        pytest.skip(f"this machine has no matrix kernels for {dtype}")


@pytest.mark.parametrize(("width", "columns"), SHAPES)
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_a_product_equals_a_linear_layer(width, columns, biased, dtype, most):
    skip_without_kernels(dtype)
    weight = drawn(columns, width, dtype=dtype) / width**0.5
    bias = drawn(columns, dtype=dtype, seed=1) if biased else None
    rows = drawn(50, width, dtype=dtype, seed=2)
    expected = linear(rows.double(), weight.double(), None if bias is None else bias.double())
    with torch.inference_mode():
        result = PrepackedLinear(weight, bias)(rows)
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), expected, rtol=most, atol=most)


def onednn_version():
    found = re.search(r"MKL-DNN v(\d+)\.(\d+)", torch.__config__.show())
    return tuple(map(int, found.groups())) if found else (0, 0)


@pytest.mark.skipif(onednn_version() < (3, 12), reason="older oneDNN rounds by the row count")
@pytest.mark.parametrize(("width", "columns"), SHAPES)
def test_an_fp32_row_has_the_same_bits_for_any_number_of_rows(width, columns):
    skip_without_kernels(torch.float32)
    product = PrepackedLinear(drawn(columns, width), drawn(columns, seed=1))
    rows = drawn(700, width, seed=2)
    with torch.inference_mode():
        whole = product(rows)
        for n in (2, 3, 4, 5, 7, 8, 15, 16, 17, 33, 64, 109, 255, 512):
            for first in (0, 37):
                assert torch.equal(product(rows[first : first + n]), whole[first : first + n]), n


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_gelu_of_a_product_uses_the_error_function(dtype):
    skip_without_kernels(dtype)
    weight, rows = drawn(96, 48, dtype=dtype), drawn(300, 48, dtype=dtype, seed=2)
    expected = gelu(rows.double() @ weight.double().T)
    product = PrepackedLinear(weight, None, gelu=True)
    with torch.inference_mode():
        result = product(rows)
        assert all(torch.equal(product(rows[5 : 5 + n]), result[5 : 5 + n]) for n in (2, 3, 17))
    most = 1e-5 if dtype == torch.float32 else 4e-3
    torch.testing.assert_close(result.double(), expected, rtol=most, atol=most)


def test_a_gpu_has_no_kernels_of_onednn():
    assert not has_kernels(torch.device("cuda"), torch.float32)


@pytest.mark.parametrize(
    "name", ["_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported"]
)
def test_without_a_private_operator_public_functions_are_used(
    fair_esm, dnabert, proteins, bases, monkeypatch, name
):
    """The operators are private: a later torch may remove them."""
    skip_without_kernels(torch.float32)
    (esm2, _), (folder, _) = fair_esm(), dnabert()
    works = [(open_spec(esm2), proteins([40, 3])), (open_spec(folder), bases([40, 3]))]
    before = [vectors_of(*work) for work in works]
    left = {other: getattr(torch.ops.mkldnn, other) for other in kernels._USED if other != name}
    monkeypatch.setattr(kernels, "_KERNELS", SimpleNamespace(**left))
    assert not has_kernels(CPU, torch.float32)
    for work, vectors in zip(works, before, strict=True):
        torch.testing.assert_close(vectors_of(*work), vectors)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("columns", [1, 16, 32, 33, 198, 390])
def test_rows_are_aligned_to_cache_lines_with_equal_numbers(columns, dtype):
    rows = torch.randn(5, columns).to(dtype)
    aligned = on_cache_lines(rows)
    assert [row.data_ptr() % 64 for row in aligned] == [0] * 5
    assert torch.equal(aligned, rows)
    assert on_cache_lines(aligned.new_empty(5, 480)).stride() == (480, 1)
