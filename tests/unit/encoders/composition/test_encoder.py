"""The composition encoder as an encoder: features of each window, whatever the batch."""

import random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.composition.config import FEATURES_VERSION
from virnucpro.encoders.composition.features import DIM, features
from virnucpro.encoders.registry import load_encoder
from virnucpro.errors import BundleError
from virnucpro.sequences.translation import genetic_code

SETTINGS = {"features": FEATURES_VERSION, "genetic_code": 11}


def spec_with(folder, config):
    return EncoderSpec("c", "composition", "nucleotide", DIM, folder, {}, config)


windows = st.lists(st.text("ACGTN", min_size=1, max_size=300).map(str.encode), max_size=12)


@given(windows, st.sampled_from([1, 4, 11]), st.randoms(use_true_random=False))
@example([b"TGA" + b"GCC" * 30 + b"TGA"], 4, random.Random(1))  # TGA is no stop in code 4
def test_vectors_are_the_features_in_batch_order(tmp_path_factory, windows, code, shuffle):
    spec = spec_with(tmp_path_factory.getbasetemp(), SETTINGS | {"genetic_code": code})
    encoder = load_encoder(spec)
    shuffle.shuffle(windows)
    vectors = encoder.vectors(encoder.tokenise(windows))
    expected = features(windows, genetic_code(code))
    assert vectors.dtype == np.float32
    assert np.array_equal(vectors, expected)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, "features"),
        ({"features": FEATURES_VERSION}, "genetic_code"),
        ({"genetic_code": 11}, "features"),
        ({"features": "1", "genetic_code": 11}, "features"),
        (SETTINGS | {"genetic_code": 11.5}, "genetic_code"),
        (SETTINGS | {"features": 99}, "version 99 of the composition features"),
        (SETTINGS | {"features": 0}, "features"),
        (SETTINGS | {"genetic_code": 7}, "genetic code 7.*Get the bundle again"),
    ],
)
def test_invalid_settings_are_refused(config, told, tmp_path):
    with pytest.raises(BundleError, match=rf"{tmp_path}.*{told}"):
        load_encoder(spec_with(tmp_path, config))
