import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors.numpy import load_file

from virnucpro.encoders.dnabert_s.config import DnabertSConfig
from virnucpro.encoders.esm2.config import Esm2Config
from virnucpro.encoders.memory import bytes_of
from virnucpro.encoders.registry import PUBLISHED, load_encoder, shapes_of
from virnucpro.encoders.weights import random_weights
from virnucpro.encoders.weights.random_weights import write_random_encoder
from virnucpro.errors import UsageError

TINY = {
    "tiny_esm2": Esm2Config(2, 32, 4),
    "tiny_dnabert": DnabertSConfig(512, 24, 2, 3, 48),
}


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    for name, size in TINY.items():
        monkeypatch.setitem(PUBLISHED, name, size)


@pytest.mark.parametrize("name", TINY)
def test_a_written_encoder_can_be_loaded(name, tmp_path, proteins, bases):
    encoder = load_encoder(write_random_encoder(tmp_path, name))
    draw = {"protein": proteins, "nucleotide": bases}[encoder.view]
    vectors = encoder.encode(encoder.collate(encoder.tokenise(draw([5, 90, 40]))))
    assert vectors.shape == (3, encoder.dim)
    assert bool(vectors.isfinite().all())
    assert 0.1 < float(vectors.std()) < 10


def test_the_file_has_two_bytes_for_each_weight(tmp_path):
    spec = write_random_encoder(tmp_path, "esm2_t6_8M_UR50D")
    size = spec.file("weights").stat().st_size
    assert size == pytest.approx(bytes_of(shapes_of(spec), "fp16"), rel=0.01)
    assert load_encoder(spec).dim == 320


def test_weights_differ_between_tensors_and_are_reproducible(tmp_path, monkeypatch):
    monkeypatch.setattr(random_weights, "_BLOCK", 1_009)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    one, other = (
        load_file(write_random_encoder(tmp_path / folder, "tiny_esm2").file("weights"))
        for folder in ("a", "b")
    )
    assert all(np.array_equal(values, other[name]) for name, values in one.items())
    layer = "layers.0.self_attn"
    assert not np.array_equal(one[f"{layer}.q_proj.weight"], one[f"{layer}.k_proj.weight"])
    assert (one["layers.1.final_layer_norm.weight"] == 1).all()
    assert (one["layers.1.fc2.bias"] == 0).all()


def test_500_bases_have_about_as_many_tokens_as_published(tmp_path, bases):
    PUBLISHED["tiny_dnabert"] = replace(TINY["tiny_dnabert"], vocab_size=4096)
    encoder = load_encoder(write_random_encoder(tmp_path, "tiny_dnabert"))
    tokens = [len(ids) for ids in encoder.tokenise(bases([500] * 20))]
    assert 100 <= np.mean(tokens) <= 118


def test_a_full_disk_is_reported_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000))
    with pytest.raises(UsageError, match="TMPDIR"):
        write_random_encoder(tmp_path, "esm2_t36_3B_UR50D")
    assert list(tmp_path.iterdir()) == []
