import dataclasses
import io
import os
from argparse import Namespace

import pytest
import torch
from esm.model.esm2 import ESM2
from safetensors.torch import save_file

from virnucpro.encoders import esm2
from virnucpro.encoders.esm2 import Esm2Config
from virnucpro.encoders.module_encoder import pad
from virnucpro.encoders.registry import EncoderSpec, load_encoder, open_spec
from virnucpro.encoders.residues import tokenise_residues
from virnucpro.errors import BundleError

MIXED = [1, 2, 17, 64, 65, 130, 400, 1022]


def reference(model, sequences):
    """Give fair-esm's own answer: its model, its converter, one sequence at a time."""
    convert = model.alphabet.get_batch_converter()
    vectors = []
    with torch.no_grad():
        for sequence in sequences:
            _, _, tokens = convert([("", sequence.decode())])
            states = model(tokens, repr_layers=[model.num_layers])["representations"]
            vectors.append(states[model.num_layers][0, 1 : len(sequence) + 1].mean(0))
    return torch.stack(vectors)


def cosines(first, second):
    return torch.cosine_similarity(first, second)


@pytest.mark.parametrize("shape", [(1, 16, 2), (3, 40, 4), (2, 96, 4)])
@pytest.mark.parametrize("token_dropout", [True, False])
def test_vectors_are_fair_esms_own_in_any_order(fair_esm, proteins, shape, token_dropout):
    path, model = fair_esm(*shape, token_dropout=token_dropout)
    encoder = load_encoder(open_spec(path))
    sequences = proteins(MIXED)
    expected = reference(model, sequences)
    tokens = encoder.tokenise(sequences)
    order = torch.randperm(len(MIXED), generator=torch.Generator().manual_seed(1))
    for permutation in (torch.arange(len(MIXED)), order):
        vectors = encoder.encode([tokens[k] for k in permutation])
        torch.testing.assert_close(vectors, expected[permutation], rtol=0, atol=1e-5)


def test_padding_with_another_id_would_be_noticed(fair_esm, proteins):
    _, model = fair_esm()
    tokens, lengths = pad(tokenise_residues(proteins([5, 300])), padding=0)
    with torch.no_grad():
        states = model(tokens, repr_layers=[2])["representations"][2]
    wrong = states[0, 1:6].mean(0, keepdim=True)
    assert cosines(wrong, reference(model, proteins([5]))).item() < 0.99
    own = esm2.Esm2(Esm2Config(2, 32, 4))
    own.load_state_dict(model.state_dict(), strict=False)
    with torch.no_grad():
        vectors = own(tokens, lengths)
    torch.testing.assert_close(vectors[:1], reference(model, proteins([5])), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("precision", "least"), [("bf16", 0.999), ("fp16", 0.99999)])
def test_half_precision_stays_close_in_fp32_vectors(fair_esm, proteins, precision, least):
    path, model = fair_esm(3, 96, 4)
    encoder = load_encoder(open_spec(path), precision=precision)
    vectors = encoder.encode(encoder.tokenise(proteins(MIXED)))
    assert vectors.dtype == torch.float32
    assert cosines(vectors, reference(model, proteins(MIXED))).min() >= least


def test_rotary_tables_stay_fp32_where_attention_is_peaky(fair_esm, proteins):
    path, model = fair_esm(2, 96, 4)
    content = torch.load(path, weights_only=False)
    for name, tensor in content["model"].items():
        if "q_proj.weight" in name:
            tensor.mul_(8)
    torch.save(content, path)
    model.load_state_dict({esm2._bare(k): t for k, t in content["model"].items()}, strict=False)
    encoder = load_encoder(open_spec(path), precision="bf16")
    tables = [b for name, b in encoder.module.named_buffers() if name.endswith("inv_freq")]
    assert [table.dtype for table in tables] == [torch.float32] * 2
    sequences = proteins([1000])
    own = encoder.encode(encoder.tokenise(sequences))
    for layer in encoder.module.layers:
        layer.self_attn.rot_emb.inv_freq = layer.self_attn.rot_emb.inv_freq.bfloat16().float()
    spoilt = encoder.encode(encoder.tokenise(sequences))
    expected = reference(model, sequences)
    assert (1 - cosines(own, expected)) < 0.5 * (1 - cosines(spoilt, expected))


def test_a_spec_says_what_the_checkpoint_is(fair_esm):
    path, _ = fair_esm(3, 40, 4, token_dropout=False, name="esm2_t3_x")
    assert open_spec(path) == EncoderSpec(
        name="esm2_t3_x",
        architecture="esm2",
        view="protein",
        dim=40,
        folder=path.parent,
        files={"weights": "esm2_t3_x.pt"},
        config={
            "num_layers": 3,
            "embed_dim": 40,
            "attention_heads": 4,
            "token_dropout": False,
        },
    )


@pytest.mark.parametrize("heads_included", [True, False])
@pytest.mark.parametrize("tables_included", [True, False])
def test_safetensors_give_the_vectors_of_the_checkpoint(
    fair_esm, proteins, heads_included, tables_included
):
    path, model = fair_esm()
    spec = open_spec(path)
    tensors = {
        name: tensor.clone()
        for name, tensor in model.state_dict().items()
        if (heads_included or not name.startswith(("lm_head", "contact_head")))
        and (tables_included or not name.endswith("inv_freq"))
    }
    save_file(tensors, path.with_suffix(".safetensors"))
    bundled = dataclasses.replace(spec, files={"weights": path.with_suffix(".safetensors").name})
    first, second = load_encoder(spec), load_encoder(bundled)
    tokens = first.tokenise(proteins([3, 50]))
    assert torch.equal(first.encode(tokens), second.encode(tokens))


def test_a_trained_model_comes_back_from_its_own_state_dict(tmp_path, proteins):
    config = Esm2Config(2, 32, 4)
    model = esm2.build_model(config)
    save_file(model.state_dict(), tmp_path / "own.safetensors")
    spec = EncoderSpec(
        "own",
        "esm2",
        "protein",
        32,
        tmp_path,
        {"weights": "own.safetensors"},
        dataclasses.asdict(config),
    )
    encoder = load_encoder(spec)
    batch = encoder.tokenise(proteins([4, 30]))
    with torch.no_grad():
        torch.testing.assert_close(encoder.encode(batch), model(*pad(batch, 1)))


def test_training_reaches_every_parameter(proteins):
    model = esm2.build_model(Esm2Config(2, 32, 4))
    model(*pad(tokenise_residues(proteins([4, 30])), 1)).square().sum().backward()
    assert {name for name, p in model.named_parameters() if p.grad is None} == set()


def test_starting_values_are_fair_esms():
    config = Esm2Config(1, 16, 2)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        own = esm2.build_model(config).state_dict()
        torch.manual_seed(3)
        theirs = ESM2(1, 16, 2).state_dict()
    assert set(own) == {n for n in theirs if not n.startswith(("lm_head", "contact_head"))}
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in own.items())


def test_a_poisoned_pickle_is_refused_and_does_not_run(tmp_path):
    class Poison:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    path = tmp_path / "esm2_poison.pt"
    torch.save({"cfg": {"model": Namespace()}, "model": {"x": Poison()}}, path)
    with pytest.raises(BundleError, match=r"esm2_poison\.pt.*Get the file again"):
        open_spec(path)
    assert not (tmp_path / "ran").exists()
    torch.load(path, weights_only=False)
    assert (tmp_path / "ran").exists()


def saved(content):
    stream = io.BytesIO()
    torch.save(content, stream)
    return stream.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no zip at all",
        saved({"cfg": {"model": Namespace()}, "model": {}})[:-60],
        saved([1, 2]),
        saved({"args": Namespace(arch="roberta_large"), "model": {}}),
        saved({"cfg": {"model": {"encoder_layers": 1}}, "model": {}}),
    ],
    ids=["empty", "text", "truncated", "list", "esm1b", "no Namespace"],
)
def test_what_is_no_checkpoint_is_refused_by_name(tmp_path, content):
    path = tmp_path / "esm2_bad.pt"
    path.write_bytes(content)
    with pytest.raises(BundleError, match=r"esm2_bad\.pt.*(Get the file again|Give an esm2)"):
        open_spec(path)


def test_a_checkpoint_without_a_size_is_refused(tmp_path):
    path = tmp_path / "esm2_bad.pt"
    path.write_bytes(saved({"cfg": {"model": Namespace(encoder_layers=1)}, "model": {}}))
    with pytest.raises(BundleError, match=r"esm2_bad\.pt.*lack 'embed_dim'"):
        open_spec(path)


NORM = "encoder.sentence_encoder.emb_layer_norm_after.weight"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda model: model.pop(NORM), "1 of .* missing: 'emb_layer_norm_after.weight'"),
        (lambda model: model.update({"encoder.more": torch.zeros(1)}), "no part.*'more'"),
        (lambda model: model.update({NORM: torch.zeros(7)}), r"'emb_layer.*\(7,\).*\(32,\)"),
        (lambda model: model.update({NORM: torch.zeros(32, dtype=torch.int8)}), "int8"),
    ],
    ids=["missing", "surplus", "shape", "type"],
)
def test_wrong_tensors_are_named_with_their_file(fair_esm, damage, message):
    path, _ = fair_esm()
    content = torch.load(path, weights_only=False)
    damage(content["model"])
    torch.save(content, path)
    with pytest.raises(BundleError, match=message) as caught:
        load_encoder(open_spec(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("change", [{"attention_heads": 2}, {"token_dropout": False}])
def test_settings_that_shapes_cannot_show_are_compared(fair_esm, change):
    path, _ = fair_esm()
    spec = open_spec(path)
    other = dataclasses.replace(spec, config={**spec.config, **change})
    with pytest.raises(BundleError, match=r"esm2_tiny\.pt.*same model"):
        load_encoder(other)


def test_missing_weights_are_named(fair_esm):
    path, _ = fair_esm()
    spec = open_spec(path)
    path.unlink()
    with pytest.raises(BundleError, match=r"esm2_tiny\.pt.*Get the file again"):
        load_encoder(spec)


def test_stored_halves_are_computed_with_in_fp32(fair_esm, proteins):
    path, model = fair_esm()
    content = torch.load(path, weights_only=False)
    content["model"] = {name: tensor.half() for name, tensor in content["model"].items()}
    torch.save(content, path)
    model.load_state_dict({esm2._bare(k): t for k, t in content["model"].items()}, strict=False)
    encoder = load_encoder(open_spec(path))
    vectors = encoder.encode(encoder.tokenise(proteins([9, 200])))
    expected = reference(model, proteins([9, 200]))
    torch.testing.assert_close(vectors, expected, rtol=0, atol=1e-5)
