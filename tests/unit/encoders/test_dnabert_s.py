import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from virnucpro.encoders.dnabert_s.config import DnabertSConfig
from virnucpro.encoders.registry import load_encoder, open_spec
from virnucpro.errors import BundleError


def test_the_prefix_of_published_names_is_optional(dnabert, bases):
    with_prefix, without = (
        load_encoder(open_spec(dnabert(prefix=prefix, name=f"named {prefix}")[0]))
        for prefix in ("bert.", "")
    )
    batch = without.tokenise(bases([50]))
    assert np.array_equal(with_prefix.vectors(batch), without.vectors(batch))


def test_a_spec_describes_the_folder(dnabert):
    folder, _ = dnabert(name="mine")
    files = {"weights": "model.safetensors", "tokenizer": "tokenizer.json"}
    assert open_spec(folder) == DnabertSConfig(64, 24, 2, 3, 48).spec("mine", folder, files)


@pytest.mark.shared
def test_the_published_config_gives_the_published_names_and_size(shared):
    path = shared / "reference" / "dnabert-s" / "config.json"
    config = DnabertSConfig.read(json.loads(path.read_text()), path)
    shapes = config.tensor_shapes()
    pooler = 768 * 768 + 768
    assert len(shapes) + 2 == 138
    assert sum(map(math.prod, shapes.values())) + pooler == 117_068_544
    layer = {
        name.removeprefix("encoder.layer.11."): shape
        for name, shape in shapes.items()
        if name.startswith("encoder.layer.11.")
    }
    assert layer == {
        "attention.self.Wqkv.weight": (2304, 768),
        "attention.self.Wqkv.bias": (2304,),
        "attention.output.dense.weight": (768, 768),
        "attention.output.dense.bias": (768,),
        "attention.output.LayerNorm.weight": (768,),
        "attention.output.LayerNorm.bias": (768,),
        "mlp.gated_layers.weight": (6144, 768),
        "mlp.wo.weight": (768, 3072),
        "mlp.wo.bias": (768,),
        "mlp.layernorm.weight": (768,),
        "mlp.layernorm.bias": (768,),
    }


WQKV = "encoder.layer.1.attention.self.Wqkv.weight"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda tensors: tensors.pop(WQKV), f"1 of 26 .*missing: '{WQKV}'"),
        (lambda tensors: tensors.update({"more": torch.zeros(1)}), "not part.*'more'"),
        (
            lambda tensors: tensors.update({WQKV: torch.zeros(3, 24)}),
            r"Wqkv.*\(3, 24\).*\(72, 24\)",
        ),
        (lambda tensors: tensors.update({WQKV: torch.zeros(72, 24).char()}), "int8"),
        (lambda tensors: tensors[WQKV].fill_(-torch.inf), f"'{WQKV}'.*infinite"),
    ],
    ids=["missing", "surplus", "shape", "type", "infinite"],
)
def test_wrong_tensors_are_named_with_their_file(dnabert, damage, message):
    folder, _ = dnabert()
    path = folder / "model.safetensors"
    tensors = load_file(path)
    damage(tensors)
    save_file(tensors, path)
    with pytest.raises(BundleError, match=message) as caught:
        load_encoder(open_spec(folder))
    assert str(path) in str(caught.value)


def test_a_tokenizer_of_a_larger_model_is_refused(dnabert):
    folder, _ = dnabert()
    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = "embeddings.word_embeddings.weight"
    tensors[name] = tensors[name][:50].clone()
    save_file(tensors, path)
    settings = json.loads((folder / "config.json").read_text()) | {"vocab_size": 50}
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(BundleError, match=r"tokenizer\.json.*63.*50 tokens.*same model"):
        load_encoder(open_spec(folder))


def first_bytes(keep):
    return lambda content: content[: min(keep, len(content) // 2)]


AGAIN = ".*Get the file again"


@pytest.mark.parametrize(
    ("name", "change", "advice"),
    [
        *(("config.json", first_bytes(keep), AGAIN) for keep in (0, 5, 1000)),
        *(("model.safetensors", first_bytes(keep), AGAIN) for keep in (0, 5, 1000)),
        ("config.json", lambda _: b"[]", ""),
        ("config.json", lambda _: b'{"vocab_size": 64}', ""),
    ],
    ids=[
        *("config of no bytes", "config of 5 bytes", "half a config"),
        *("weights of no bytes", "weights of 5 bytes", "weights cut"),
        *("config is a list", "config of one setting"),
    ],
)
def test_a_damaged_file_is_refused_by_name(dnabert, name, change, advice):
    folder, _ = dnabert()
    path = folder / name
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(BundleError, match=name + advice):
        load_encoder(open_spec(folder))
