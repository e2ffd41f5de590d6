"""The composition encoder as an encoder: features of each window, whatever the batch."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.composition.config import FEATURES_VERSION
from virnucpro.encoders.composition.features import DIM, features
from virnucpro.encoders.registry import load_encoder
from virnucpro.errors import BundleError
from virnucpro.sequences.translation import genetic_code

SETTINGS = {"features": FEATURES_VERSION, "genetic_code": 11}


def spec_with(folder, config, **changes):
    spec = EncoderSpec("c", "composition", "nucleotide", DIM, folder, {}, config)
    return dataclasses.replace(spec, **changes)


@pytest.fixture
def spec(tmp_path):
    return spec_with(tmp_path, SETTINGS)


def encoded(encoder, windows):
    return encoder.vectors(encoder.tokenise(windows))


windows = st.lists(st.text("ACGTN", min_size=1, max_size=300).map(str.encode), max_size=12)


@given(windows, st.sampled_from([1, 4, 11]), st.randoms(use_true_random=False))
def test_vectors_are_the_features_in_the_order_of_the_batch(
    tmp_path_factory, windows, code, shuffle
):
    spec = spec_with(tmp_path_factory.getbasetemp(), SETTINGS | {"genetic_code": code})
    encoder = load_encoder(spec)
    shuffle.shuffle(windows)
    vectors = encoded(encoder, windows)
    expected = features(windows, genetic_code(code))
    assert vectors.dtype == np.float32
    assert np.array_equal(vectors, expected)
    alone = [encoded(encoder, [window])[0] for window in windows]
    assert np.array_equal(np.array(alone).reshape(-1, DIM), expected)


def test_the_genetic_code_changes_the_vectors(tmp_path):
    window = [b"TGA" + b"GCC" * 30 + b"TGA" + b"GCC" * 30]  # TGA is no stop in code 4
    codes = [encoded(load_encoder(spec_with(tmp_path, SETTINGS | {"genetic_code": code})), window)
             for code in (4, 11)]  # fmt: skip
    assert np.abs(codes[0] - codes[1]).max() > 0.1


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
