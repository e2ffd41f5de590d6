from pathlib import Path

import pytest

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
    ("config", "good", "key", "values"),
    [
        (Esm2Config, ESM2, "num_layers", [0, -1, 1.0, "3", True, None]),
        (Esm2Config, ESM2, "token_dropout", [0, 1, "true", None]),
        (
            DnabertSConfig,
            DNABERT,
            "layer_norm_eps",
            [0, -0.5, float("nan"), float("inf"), 10**400, "1", True, None],
        ),
    ],
)
def test_an_invalid_setting_is_rejected_with_key_value_and_file(config, good, key, values):
    for value in values:
        with pytest.raises(BundleError, match=rf"config\.json.*'{key}' is .*Get") as caught:
            config.read(good | {key: value}, SOURCE)
        assert repr(value) in str(caught.value)


@pytest.mark.parametrize(("config", "good"), [(Esm2Config, ESM2), (DnabertSConfig, DNABERT)])
def test_every_setting_is_required_by_its_name(config, good):
    assert {key: getattr(config.read(good, SOURCE), key) for key in good} == good
    for key in good:
        rest = {other: value for other, value in good.items() if other != key}
        with pytest.raises(BundleError, match=f"config.json.*lack '{key}'"):
            config.read(rest, SOURCE)


@pytest.mark.parametrize(
    ("config", "settings"),
    [
        (Esm2Config, ESM2 | {"attention_heads": 19}),
        (Esm2Config, ESM2 | {"embed_dim": 60}),  # 20 heads of 3 channels, which cannot form pairs
        (DnabertSConfig, DNABERT | {"num_attention_heads": 7}),
    ],
)
def test_a_width_not_divisible_by_the_heads_is_rejected(config, settings):
    with pytest.raises(BundleError, match="channels cannot be divided"):
        config.read(settings, SOURCE)
