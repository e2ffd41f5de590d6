"""scripts/gpu_check writes encoders with random weights."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from virnucpro.encoders.dnabert_s.config import DnabertSConfig
from virnucpro.encoders.esm2.config import Esm2Config
from virnucpro.encoders.registry import PUBLISHED, load_encoder

TINY = {
    "tiny_esm2": Esm2Config(2, 32, 4),
    "tiny_dnabert": DnabertSConfig(4096, 24, 2, 3, 48),
}


@pytest.mark.parametrize("name", TINY)
def test_a_written_encoder_can_be_loaded(name, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "scripts")
    monkeypatch.setitem(PUBLISHED, name, TINY[name])
    spec = importlib.import_module("gpu_check.random_weights").write_random_encoder(tmp_path, name)
    for module in [name for name in sys.modules if name.partition(".")[0] == "gpu_check"]:
        del sys.modules[module]
    encoder = load_encoder(spec)
    letters = {"protein": b"MKLV", "nucleotide": b"ACGTTGCATG"}[encoder.view]
    vectors = encoder.vectors(encoder.tokenise([letters * 9, letters * 20]))
    assert vectors.shape == (2, encoder.dim)
    assert np.isfinite(vectors).all()
    assert 0.1 < vectors.std() < 10
