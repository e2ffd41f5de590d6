import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from virnucpro.classifier.head import Head, load_head
from virnucpro.classifier.head_tensors import head_shapes, layer_sizes
from virnucpro.errors import BundleError


def write_head(head, path):
    save_file(head.state_dict(), path)
    return path


def trained_head(sizes):
    """A head whose batch norm has seen data: running figures other than 0 and 1."""
    torch.manual_seed(0)
    head = Head(sizes, dropout=0.5).train()
    for _ in range(5):
        head(torch.randn(32, sizes[0]) * 3 + 1)
    return head.eval()


@pytest.mark.parametrize("sizes", [(3328, 512, 2), (8, 2), (6, 5, 4, 2)])
def test_a_loaded_head_of_any_sizes_has_the_same_scores(sizes, tmp_path):
    head = trained_head(sizes)
    vectors = torch.randn(7, sizes[0])
    loaded = load_head(write_head(head, tmp_path / "head.safetensors"))
    assert torch.equal(loaded.scores(vectors), head.scores(vectors))
    assert not loaded.training


def test_scores_equal_those_of_torch_modules_in_the_published_order(tmp_path):
    head = trained_head((10, 4, 2))
    layer = head.hidden[0]
    norm = torch.nn.BatchNorm1d(4)
    norm.load_state_dict(layer.norm.state_dict(), strict=False)
    published = torch.nn.Sequential(
        layer.linear, norm, torch.nn.ReLU(), torch.nn.Dropout(0.5), head.output
    ).eval()
    vectors = torch.randn(9, 10)
    expected = torch.softmax(published(vectors), dim=1)
    assert torch.allclose(head.scores(vectors), expected, atol=1e-6)


def test_scores_are_float32_pairs_that_sum_to_one():
    scores = trained_head((10, 4, 2)).scores(torch.randn(5, 10).half())
    assert scores.dtype == torch.float32
    assert scores.shape == (5, 2)
    assert torch.allclose(scores.sum(dim=1), torch.ones(5))


@settings(deadline=None)
@given(n=st.integers(1, 40), seed=st.integers(0, 1000))
def test_a_row_does_not_depend_on_the_other_rows(n, seed):
    head = trained_head((12, 6, 2))
    vectors = torch.randn(n, 12, generator=torch.Generator().manual_seed(seed))
    alone = torch.cat([head.scores(row[None]) for row in vectors])
    assert torch.allclose(head.scores(vectors), alone, atol=1e-6)


def test_zero_rows_give_zero_scores():
    assert trained_head((12, 6, 2)).scores(torch.empty(0, 12)).shape == (0, 2)


def test_scores_are_refused_in_training_mode():
    with pytest.raises(RuntimeError, match="training mode"):
        Head((4, 2)).scores(torch.randn(3, 4))


def test_a_file_without_a_head_is_refused(tmp_path):
    path = tmp_path / "head.safetensors"
    save_file({"something.weight": torch.zeros(2, 2)}, path)
    with pytest.raises(BundleError, match=r"head\.safetensors is not a classifier"):
        load_head(path)


def test_a_head_for_three_classes_is_refused(tmp_path):
    with pytest.raises(BundleError, match="has 3 classes"):
        load_head(write_head(Head((4, 3)), tmp_path / "head.safetensors"))


def test_a_head_whose_layers_do_not_fit_is_refused(tmp_path):
    tensors = Head((6, 4, 2)).state_dict()
    tensors["output.weight"] = torch.zeros(2, 5)
    save_file(tensors, tmp_path / "head.safetensors")
    with pytest.raises(BundleError, match="of different models"):
        load_head(tmp_path / "head.safetensors")


def test_a_head_without_its_batch_norm_is_refused(tmp_path):
    tensors = Head((6, 4, 2)).state_dict()
    del tensors["hidden.0.norm.running_var"]
    save_file(tensors, tmp_path / "head.safetensors")
    with pytest.raises(BundleError, match="running_var"):
        load_head(tmp_path / "head.safetensors")


def test_a_truncated_file_is_refused(tmp_path):
    path = write_head(Head((6, 4, 2)), tmp_path / "head.safetensors")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BundleError, match="cannot be read as safetensors"):
        load_head(path)


@pytest.mark.parametrize("sizes", [(6, 2), (6, 5, 2), (6, 5, 4, 2)])
def test_layer_sizes_are_read_from_the_tensors(tmp_path, sizes):
    shapes = {name: tuple(tensor.shape) for name, tensor in Head(sizes).state_dict().items()}
    assert head_shapes(sizes) == shapes
    assert layer_sizes(shapes, tmp_path) == sizes


@pytest.mark.parametrize("name", ["output.bias", "hidden.0.norm.running_var"])
def test_a_weight_that_is_nan_is_named(tmp_path, name):
    head = trained_head((8, 4, 2))
    head.state_dict()[name][1] = torch.nan
    path = write_head(head, tmp_path / "head.safetensors")
    with pytest.raises(BundleError, match=rf"head\.safetensors.*'{name}'.*NaN"):
        load_head(path)
