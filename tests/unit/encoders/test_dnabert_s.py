import json
import math

import pytest
import torch
from safetensors.torch import load_file, save_file

from virnucpro.encoders.dnabert_s import DnabertS, DnabertSConfig
from virnucpro.encoders.packed import pack
from virnucpro.encoders.registry import EncoderSpec, load_encoder, open_spec
from virnucpro.errors import BundleError

MIXED = [1, 3, 30, 31, 200, 700, 2000]


def straight_line(weights, heads, ids):
    """Compute one sequence's vector from the named tensors alone: plain softmax, explicit bias."""

    def norm(x, name):
        centred = x - x.mean(1, keepdim=True)
        scale = torch.sqrt(centred.square().mean(1, keepdim=True) + 1e-12)
        return centred / scale * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", torch.zeros(()))

    def attend(x, name):
        joined = linear(x, f"{name}.self.Wqkv")
        width = x.shape[1] // heads
        columns = []
        for head in range(heads):
            q, k, v = (
                joined[:, part * x.shape[1] :][:, head * width :][:, :width] for part in range(3)
            )
            scores = q @ k.T / math.sqrt(width) - SLOPES[heads][head] * distance
            columns.append(torch.softmax(scores, 1) @ v)
        return torch.cat(columns, 1)

    place = torch.arange(len(ids), dtype=torch.float64)
    distance = (place[:, None] - place[None]).abs()
    x = weights["embeddings.word_embeddings.weight"][ids]
    x = x + weights["embeddings.token_type_embeddings.weight"][0]
    x = norm(x, "embeddings.LayerNorm")
    for number in range(sum(name.endswith("Wqkv.weight") for name in weights)):
        layer = f"encoder.layer.{number}"
        mixed = linear(attend(x, f"{layer}.attention"), f"{layer}.attention.output.dense")
        x = norm(mixed + x, f"{layer}.attention.output.LayerNorm")
        wide = linear(x, f"{layer}.mlp.gated_layers")
        gate, value = wide[:, : wide.shape[1] // 2], wide[:, wide.shape[1] // 2 :]
        gated = gate * 0.5 * (1 + torch.erf(gate / math.sqrt(2))) * value
        x = norm(linear(gated, f"{layer}.mlp.wo") + x, f"{layer}.mlp.layernorm")
    return x.mean(0)


# by hand from the paper: 2^(-8k/n), and for 3 and 6 heads every other slope of 4 and of 8
SLOPES = {
    2: [2**-4, 2**-8],
    3: [2**-4, 2**-8, 2**-2],
    6: [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3],
}


def expected_vectors(module, heads, batch):
    weights = {name: tensor.double() for name, tensor in module.state_dict().items()}
    return torch.stack([straight_line(weights, heads, ids) for ids in batch]).float()


@pytest.mark.parametrize(("heads", "hidden", "layers"), [(2, 16, 1), (3, 24, 3), (6, 48, 2)])
def test_vectors_are_those_of_a_straight_line_computation(dnabert, bases, heads, hidden, layers):
    folder, module = dnabert(heads, hidden, layers)
    encoder = load_encoder(open_spec(folder))
    batch = encoder.tokenise(bases(MIXED))
    expected = expected_vectors(module, heads, batch)
    torch.testing.assert_close(encoder.encode(batch), expected, rtol=0, atol=1e-5)
    backwards = encoder.encode(batch[::-1])
    torch.testing.assert_close(backwards, expected.flip(0), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("precision", "least"), [("bf16", 0.999), ("fp16", 0.9999)])
def test_half_precision_stays_close_in_fp32_vectors(dnabert, bases, precision, least):
    folder, module = dnabert()
    encoder = load_encoder(open_spec(folder), precision=precision)
    batch = encoder.tokenise(bases(MIXED))
    vectors = encoder.encode(batch)
    assert vectors.dtype == torch.float32
    assert torch.cosine_similarity(vectors, expected_vectors(module, 3, batch)).min() >= least


def test_ids_that_look_like_padding_count_inside_a_sequence(dnabert):
    folder, module = dnabert()
    encoder = load_encoder(open_spec(folder))
    batch = encoder.tokenise([b"ANNNNA", b"AA", b"ACGTACGTACGTACGT"])
    assert (batch[0] == 0).sum() == 4
    torch.testing.assert_close(
        encoder.encode(batch), expected_vectors(module, 3, batch), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize("prefix", ["", "bert."])
def test_the_prefix_of_published_names_is_optional(dnabert, bases, prefix):
    folder, module = dnabert(prefix=prefix)
    encoder = load_encoder(open_spec(folder))
    batch = encoder.tokenise(bases([50]))
    torch.testing.assert_close(
        encoder.encode(batch), expected_vectors(module, 3, batch), rtol=0, atol=1e-5
    )


def test_a_spec_says_what_the_folder_is(dnabert):
    folder, _ = dnabert(name="mine")
    assert open_spec(folder) == EncoderSpec(
        name="mine",
        architecture="dnabert_s",
        view="nucleotide",
        dim=24,
        folder=folder,
        files={"weights": "model.safetensors", "tokenizer": "tokenizer.json"},
        config={
            "vocab_size": 64,
            "hidden_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "intermediate_size": 48,
            "type_vocab_size": 2,
            "layer_norm_eps": 1e-12,
        },
    )


@pytest.mark.shared
def test_the_published_config_gives_the_published_names_and_size(shared):
    path = shared / "reference" / "dnabert-s" / "config.json"
    config = DnabertSConfig.read(json.loads(path.read_text()), path)
    with torch.device("meta"):
        tensors = DnabertS(config).state_dict()
    pooler = 768 * 768 + 768
    assert len(tensors) + 2 == 138
    assert sum(tensor.numel() for tensor in tensors.values()) + pooler == 117_068_544
    layer = {
        name.removeprefix("encoder.layer.11."): tuple(tensor.shape)
        for name, tensor in tensors.items()
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


def test_training_reaches_every_parameter(dnabert, bases):
    folder, module = dnabert()
    batch = load_encoder(open_spec(folder)).tokenise(bases([4, 30]))
    module(pack(batch)).square().sum().backward()
    assert {name for name, p in module.named_parameters() if p.grad is None} == set()


WQKV = "encoder.layer.1.attention.self.Wqkv.weight"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda tensors: tensors.pop(WQKV), f"1 of 26 .*missing: '{WQKV}'"),
        (lambda tensors: tensors.update({"more": torch.zeros(1)}), "no part.*'more'"),
        (
            lambda tensors: tensors.update({WQKV: torch.zeros(3, 24)}),
            r"Wqkv.*\(3, 24\).*\(72, 24\)",
        ),
        (lambda tensors: tensors.update({WQKV: torch.zeros(72, 24).char()}), "int8"),
    ],
    ids=["missing", "surplus", "shape", "type"],
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


@pytest.mark.parametrize("keep", [0, 5, 1000])
def test_truncated_weights_are_refused_by_name(dnabert, keep):
    folder, _ = dnabert()
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(BundleError, match=r"model\.safetensors.*Get the file again"):
        load_encoder(open_spec(folder))


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


@pytest.mark.parametrize("content", ["", "[]", "{", '{"vocab_size": 64}'])
def test_a_damaged_config_is_refused_by_name(dnabert, content):
    folder, _ = dnabert()
    (folder / "config.json").write_text(content)
    with pytest.raises(BundleError, match=r"config\.json"):
        open_spec(folder)
