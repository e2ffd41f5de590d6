from pathlib import Path

import pytest

from virnucpro.encoders.config import flag, positive_integer, positive_number
from virnucpro.encoders.dnabert_s.config import DnabertSConfig
from virnucpro.encoders.esm2.config import Esm2Config
from virnucpro.errors import BundleError

SOURCE = Path("some/config.json")
ESM2 = {"num_layers": 6, "embed_dim": 320, "attention_heads": 20, "token_dropout": True}
DNABERT = {
    "vocab_size": 4096,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}


@pytest.mark.parametrize(
    ("read", "value"), [(positive_integer, 3), (positive_number, 1e-12), (flag, False)]
)
def test_a_good_setting_is_read(read, value):
    assert read({"key": value}, "key", SOURCE) == value


@pytest.mark.parametrize(
    ("read", "values"),
    [
        (positive_integer, [0, -1, 1.0, "3", True, None]),
        (positive_number, [0, -0.5, float("nan"), float("inf"), 10**400, "1", True, None]),
        (flag, [0, 1, "true", None]),
    ],
)
def test_a_bad_setting_is_refused_with_key_value_and_file(read, values):
    for value in values:
        with pytest.raises(BundleError, match=r"config\.json.*'key' is .*Get") as caught:
            read({"key": value}, "key", SOURCE)
        assert repr(value) in str(caught.value)


@pytest.mark.parametrize(("config", "good"), [(Esm2Config, ESM2), (DnabertSConfig, DNABERT)])
def test_every_setting_is_needed_and_read_under_its_own_name(config, good):
    assert {key: getattr(config.read(good, SOURCE), key) for key in good} == good
    for key in good:
        rest = {other: value for other, value in good.items() if other != key}
        with pytest.raises(BundleError, match=f"config.json.*lack '{key}'"):
            config.read(rest, SOURCE)


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        (Esm2Config, ESM2 | {"attention_heads": 19}),
        (Esm2Config, ESM2 | {"embed_dim": 60}),  # 20 heads of 3 channels: none to rotate in pairs
        (DnabertSConfig, DNABERT | {"num_attention_heads": 7}),
    ],
)
def test_heads_that_do_not_fit_are_refused(config, settings):
    with pytest.raises(BundleError, match="channels do not divide"):
        config.read(settings, SOURCE)
