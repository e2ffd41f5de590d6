"""Models in Hugging Face folders, compared with transformers itself."""

import itertools
import json
import os
import shutil
import sys
from dataclasses import replace
from functools import cache

import h5py
import numpy as np
import pytest
import torch
from batchings import vectors_of
from esm_models import SMALL, make_esm2, save_esm_tokenizer
from safetensors.torch import load_file, save_file
from samples import write_fasta

from virnucpro.bundles.bundle import open_bundle
from virnucpro.classifier.head import VIRAL
from virnucpro.encoders.esm2.config import TOKENS
from virnucpro.encoders.pooling import Pooling
from virnucpro.encoders.registry import load_encoder, open_spec, pooled_spec
from virnucpro.errors import BundleError, UsageError
from virnucpro.lab.training.fit import Fitted
from virnucpro.lab.training.model import Training, choose_model
from virnucpro.lab.training.network import Examples, train
from virnucpro.lab.training.new_bundle import write_bundle
from virnucpro.lab.training.settings import NetworkSettings

TOLERANCE = 2e-5
"""Largest difference of a number to that of transformers, for one sequence without padding."""


def make_kmers(folder):
    """Nucleotide Transformer: 3-mers, absolute positions, <cls> only."""
    import transformers

    kmers = ["".join(one) for one in itertools.product("ACGT", repeat=3)]
    tokens = ["<unk>", "<pad>", "<mask>", "<cls>", *kmers, *"ATCGN"]
    save_esm_tokenizer(folder, tokens, eos_token=None)
    config = transformers.EsmConfig(
        **SMALL,
        vocab_size=len(tokens),
        intermediate_size=64,
        pad_token_id=1,
        mask_token_id=2,
        position_embedding_type="absolute",
        max_position_embeddings=102,
        token_dropout=True,
    )
    return transformers.EsmModel(config, add_pooling_layer=False)


def make_bert(folder, small_tokenizer):
    import transformers

    small_tokenizer.save(str(folder / "tokenizer.json"))
    options = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]"}
    transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), sep_token="[SEP]", **options
    ).save_pretrained(folder)
    config = transformers.BertConfig(
        **SMALL, vocab_size=64, intermediate_size=64, max_position_embeddings=300
    )
    return transformers.BertModel(config, add_pooling_layer=False)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, roughen, small_tokenizer, t5):
    """Return a function that saves a model once: name -> folder, model."""
    pytest.importorskip("transformers")
    makers = {
        "t5": t5,
        "kmers": make_kmers,
        "bert": lambda folder: make_bert(folder, small_tokenizer),
        "esm2": make_esm2,
        "other base": lambda folder: make_esm2(folder, rope_theta=100.0),
    }

    @cache
    def make(name):
        folder = tmp_path_factory.mktemp("model")
        with torch.random.fork_rng():
            torch.manual_seed(1)
            model = roughen(makers[name](folder))
        model.save_pretrained(folder)
        return folder, model

    return make


def folder_of(saved, tmp_path, name):
    """Copy a saved model, which a test may change: -> folder, model."""
    folder, model = saved(name)
    return shutil.copytree(folder, tmp_path / name), model


def reference(folder, model, text, first, last):
    """Return the states of transformers: all layers, without `first` and `last` tokens."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    with torch.inference_mode():
        states = model(ids, output_hidden_states=True).hidden_states
    return [state[0, first : ids.shape[1] - last] for state in states]


CASES = {
    "t5": ("huggingface", "protein", (1, 1), lambda s: "<AA2fold> " + " ".join(s)),
    "kmers": ("huggingface", "nucleotide", (1, 0), lambda s: s),
    "bert": ("huggingface", "nucleotide", (1, 1), lambda s: s),
    "esm2": ("esm2", "protein", (1, 1), lambda s: s),
    "other base": ("huggingface", "protein", (1, 1), lambda s: s),
}
LENGTHS = [7, 90, 91, 23, 90, 200]


@pytest.mark.parametrize("name", CASES)
def test_vectors_equal_those_of_transformers(name, saved, tmp_path, proteins, bases):
    folder, model = folder_of(saved, tmp_path, name)
    architecture, view, (first, last), prepared = CASES[name]
    spec = open_spec(folder)
    assert (spec.architecture, spec.view, spec.dim) == (architecture, view, 32)
    sequences = (proteins if view == "protein" else bases)(LENGTHS)
    expected = [reference(folder, model, prepared(s.decode()), first, last) for s in sequences]
    methods = {"mean": lambda v: v.mean(0), "max": lambda v: v.amax(0), "none": lambda v: v}
    for method, layers in [("mean", ()), ("mean", (0, 1)), ("max", (2, 1)), ("none", ())]:
        found = vectors_of(pooled_spec(spec, Pooling(method, layers)), sequences)
        wanted = [
            torch.cat([torch.atleast_2d(methods[method](one[n])) for n in layers or (2,)], 1)
            for one in expected
        ]
        torch.testing.assert_close(found, torch.cat(wanted), rtol=0, atol=TOLERANCE)


def test_esm2_through_our_engine_equals_transformers_in_other_names(saved, tmp_path, proteins):
    folder, _ = folder_of(saved, tmp_path, "esm2")
    path = folder / "model.safetensors"
    before, tensors = vectors_of(open_spec(folder), proteins(LENGTHS)), load_file(path)
    published = {"gamma": "weight", "beta": "bias"}
    renamed = {}
    for name, tensor in tensors.items():
        stem, _, end = name.rpartition(".")
        if "layer.*" not in name:
            renamed[f"{stem}.{published.get(end, end)}"] = tensor
    renamed["esm.embeddings.position_embeddings.weight"] = torch.zeros(9, 32)
    save_file(renamed, path)
    assert torch.equal(vectors_of(open_spec(folder), proteins(LENGTHS)), before)


def changed(folder, name, **values):
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_base_is_used_without_stored_frequencies(saved, tmp_path, proteins):
    folder, model = folder_of(saved, tmp_path, "other base")
    path, (sequence,) = folder / "model.safetensors", proteins([90])
    tensors = {name: one for name, one in load_file(path).items() if "inv_freq" not in name}
    save_file(tensors, path, metadata={"format": "pt"})
    found = vectors_of(open_spec(folder), [sequence])
    wanted = reference(folder, model, sequence.decode(), 1, 1)[-1].mean(0)[None]
    torch.testing.assert_close(found, wanted, rtol=0, atol=TOLERANCE)


def test_a_base_that_the_frequencies_do_not_have_is_refused(saved, tmp_path):
    folder, _ = folder_of(saved, tmp_path, "esm2")
    for values in ({"rope_theta": 100.0}, {"rope_parameters": {"rope_theta": 100.0}}):
        changed(folder, "config.json", **{"rope_theta": 1e4, **values})
        with pytest.raises(BundleError, match=r"rope_theta 100\.0 of config.json is not the base"):
            load_encoder(open_spec(folder))
    changed(folder, "config.json", rope_parameters={"rope_theta": "100"})
    with pytest.raises(BundleError, match="invalid rope_theta '100'"):
        open_spec(folder)


def test_letters_of_another_order_in_tokenizer_json_are_used(saved, tmp_path, proteins):
    folder, _ = folder_of(saved, tmp_path, "esm2")
    sequences = proteins([90])
    tokens = [*TOKENS[:4], *reversed(TOKENS[4:24]), *TOKENS[24:]]
    (folder / "vocab.txt").unlink()
    for order, architecture in ((TOKENS, "esm2"), (tokens, "huggingface")):
        save_tokenizer_json(folder, order)
        spec = open_spec(folder)
        assert spec.architecture == architecture
        encoder = load_encoder(spec)
        (ids,) = encoder.tokenise(sequences)
        letters = [order.index(one) for one in sequences[0].decode()]
        assert ids.tolist() == [0, *letters, 2]


def save_tokenizer_json(folder, order):
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    ids = {token: number for number, token in enumerate(order)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<cls> $A <eos>", special_tokens=[("<cls>", 0), ("<eos>", 2)]
    )
    tokenizer.add_special_tokens(["<cls>", "<pad>", "<eos>", "<unk>", "<mask>"])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>"
    ).save_pretrained(folder)


def settings(**values):
    return lambda folder: changed(folder, "config.json", **values)


def normalized_by(*normalizers):
    both = {"type": "Sequence", "normalizers": [*normalizers]}
    return lambda folder: changed(folder, "tokenizer.json", normalizer=both)


def with_overlapping_kmers(folder):
    names = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "ACGTAC")
    vocabulary = {name: number for number, name in enumerate(names)}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    changed(folder, "tokenizer.json", model=model, pre_tokenizer={"type": "Whitespace"})


def without_a_weight(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["encoder.layer.1.output.dense.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def with_a_quantised_weight(folder):
    tensors = load_file(folder / "model.safetensors")
    name = "encoder.layer.1.output.dense.weight"
    tensors[name] = tensors[name].to(torch.int8)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def with_weights_as_pickle(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


REPLACE = {"type": "Replace", "pattern": {"String": "AC"}, "content": "ACACAC"}
SPACES = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"}  # as in T5
MORE = "replaces letters by more letters"
OTHER_SIZE = "weights are missing or of another size, such as"


@pytest.mark.parametrize(
    ("name", "change", "problem"),
    [
        ("bert", settings(num_hidden_layers=1), "is 1, but the weights have 2 layers"),
        ("t5", settings(num_layers=10**9), "is 1000000000, but the weights have 2 layers"),
        ("bert", settings(num_attention_heads=0), "num_attention_heads is 0, not a number from 1"),
        ("bert", settings(vocab_size=10**12), "vocab_size is 1000000000000, not a number from 1"),
        ("kmers", settings(hidden_size="9" * 999), "hidden_size is '999.*not a number from 1"),
        ("kmers", settings(quantization_config={"quant_method": "gptq"}), "quantised weights are"),
        ("esm2", settings(intermediate_size=96), OTHER_SIZE),
        ("kmers", settings(intermediate_size=96), OTHER_SIZE),
        ("bert", lambda folder: os.mkfifo(folder / "x.json.tmp"), "is not a regular file"),
        ("bert", lambda folder: os.truncate(folder / "tokenizer.json", 8 << 30), "than 64 MiB"),
        ("bert", normalized_by(REPLACE), MORE),
        ("bert", normalized_by(SPACES, REPLACE), MORE),
        ("bert", normalized_by({"type": "Prepend", "prepend": "A" * 9}), MORE),
        ("bert", with_overlapping_kmers, "overlapping k-mers are not supported"),
        ("bert", without_a_weight, "1 weights are missing"),
        ("bert", with_a_quantised_weight, "has the type I8: quantised weights"),
        ("bert", with_weights_as_pickle, "has no weights as safetensors"),
    ],
)
def test_a_folder_that_is_no_encoder_is_refused(name, change, problem, saved, tmp_path):
    folder, _ = folder_of(saved, tmp_path, name)
    change(folder)
    with pytest.raises(BundleError, match=problem):
        load_encoder(open_spec(folder))


def test_a_normalizer_that_makes_no_letters_more_is_accepted(saved, tmp_path):
    folder, _ = folder_of(saved, tmp_path, "bert")
    normalized_by({"type": "NFC"}, SPACES)(folder)
    assert open_spec(folder)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00" * 9, b"A\nA\nA\n"])
def test_a_damaged_vocabulary_is_named(content, saved, tmp_path):
    for name in ("kmers", "esm2"):
        folder, _ = folder_of(saved, tmp_path, name)
        for path in folder.glob("tokenizer.json"):
            path.unlink()
        (folder / "vocab.txt").write_bytes(content)
        with pytest.raises(BundleError, match=r"the tokenizer .* vocab[.]txt|reads neither plain"):
            open_spec(folder)


@pytest.mark.parametrize("name", ["bert", "t5"])
def test_code_for_attention_is_not_loaded(name, saved, tmp_path, proteins):
    folder, _ = folder_of(saved, tmp_path, name)
    expected = load_encoder(open_spec(folder))
    changed(folder, "config.json", _attn_implementation="kernels-community/flash-attn")
    found = load_encoder(open_spec(folder))
    ids = expected.tokenise([b"ACGTACGT"])
    assert (found.vectors(ids) == expected.vectors(ids)).all()


def test_unusual_letters_are_replaced_as_the_authors_of_prott5_do(saved, tmp_path):
    folder, _ = folder_of(saved, tmp_path, "t5")
    encoder = load_encoder(open_spec(folder))
    with_rare, with_x, lower = encoder.tokenise([b"MUKZOB-", b"MXKXXXX", b"mxkxxxx"])
    np.testing.assert_array_equal(with_rare, with_x)
    np.testing.assert_array_equal(lower, with_x)
    with pytest.raises(UsageError, match="no first token"):
        pooled_spec(open_spec(folder), Pooling("cls"))


@pytest.mark.parametrize(("name", "longest"), [("bert", 298), ("kmers", 99), ("t5", 0)])
def test_the_limit_of_a_model_is_known(saved, tmp_path, name, longest):
    folder, _ = folder_of(saved, tmp_path, name)
    spec = open_spec(folder)
    assert spec.config["longest"] == longest
    plan = load_encoder(spec).plan
    assert bool(plan.refusal(5000)) == bool(longest)


def test_the_longest_sequence_of_a_model_is_encoded(saved, tmp_path, bases):
    folder, _ = folder_of(saved, tmp_path, "kmers")
    encoder = load_encoder(open_spec(folder))
    (ids,) = encoder.tokenise(bases([3 * 99]))
    assert not encoder.plan.refusal(len(ids))
    assert encoder.encode(encoder.collate([ids])).isfinite().all()


@pytest.mark.usefixtures("one_process", "reading_here")
def test_a_folder_is_an_encoder_of_the_command_embed(saved, bases, tmp_path, called):
    import transformers

    folder, model = folder_of(saved, tmp_path, "kmers")
    sequences = bases([30, 297, 301, 31])
    fasta = write_fasta(tmp_path / "in.fa", sequences)
    options = ("--embeddings", "fp32", "--devices", "cpu:1", "--long", "truncate")
    called("embed", fasta, "-e", folder, "-o", tmp_path / "run", *options, code=0)
    with h5py.File(tmp_path / "run" / "embeddings.h5") as file:
        vectors = torch.from_numpy(file["embeddings"][:])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for sequence, vector in zip(sequences, vectors, strict=True):
        ids = torch.tensor([tokenizer(sequence.decode())["input_ids"][:100]])
        with torch.inference_mode():
            states = model(ids).last_hidden_state[0, 1:]
        torch.testing.assert_close(vector, states.mean(0), rtol=0, atol=TOLERANCE)


def test_code_in_the_folder_is_not_executed(saved, tmp_path):
    folder, _ = folder_of(saved, tmp_path, "bert")
    settings = json.loads((folder / "config.json").read_text())
    settings["auto_map"] = {"AutoModel": "own.Own", "AutoTokenizer": ["own.Own", None]}
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    load_encoder(open_spec(folder))
    assert not (tmp_path / "executed").exists()


def test_without_transformers_the_message_names_the_package(saved, tmp_path, monkeypatch):
    folder, _ = folder_of(saved, tmp_path, "kmers")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(BundleError, match=r"pip install 'virnucpro\[transformers\]'"):
        open_spec(folder)


@pytest.mark.usefixtures("reading_here")
@pytest.mark.parametrize(
    ("name", "others", "shards"), [("t5", ("mini/nucleotide",), "20KB"), ("kmers", (), "1GB")]
)
def test_a_folder_becomes_the_encoder_of_a_new_bundle(
    name, others, shards, saved, proteins, bases, tmp_path
):
    folder, model = folder_of(saved, tmp_path, name)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size=shards)
    chosen = choose_model([*others, str(folder)], None, None)
    assert (chosen.window, chosen.genetic_code) == (500, 11)
    made = tmp_path / "bundle"
    made.mkdir()
    width = sum(one.spec.dim for one in chosen.encoders)
    bundle = write_bundle(made, training(), chosen, (), fitted(width))
    opened = open_bundle(str(made))
    assert [one.dim for one in opened.encoders] == [one.spec.dim for one in chosen.encoders]
    copied = opened.encoders[-1]
    assert sum(role.startswith("weights") for role in copied.files) > (shards == "20KB")
    folder.rename(tmp_path / "elsewhere")
    sequences = (proteins if copied.view == "protein" else bases)(LENGTHS)
    moved = replace(copied, folder=tmp_path / "elsewhere")
    found, wanted = (vectors_of(one, sequences) for one in (copied, moved))
    assert torch.equal(found, wanted)
    assert bundle.items == ("window" if copied.view == "nucleotide" else "longest_stretch")


def training():
    texts = {"name": "new", "version": "1", "description": "a test"}
    about = {"sources": (), "held_out": (), "excluded": {}, "encoders": (), "seed": 1}
    return Training(**texts, **about, network=NetworkSettings())


def fitted(width):
    """A network that was trained for a step, with the calibration of mini."""
    features = np.zeros((4, width), np.float32)
    viral = np.array([False, True])
    numbers = np.arange(4)
    examples = Examples(features, numbers % 2, viral, numbers, np.full(4, 0.25))
    network = train(examples, NetworkSettings(hidden=(4,), members=1, draws=1), 1, abs)
    tensors = network.tensors() | {VIRAL: network.viral.float()}
    calibration = dict(open_bundle("mini").calibration)
    del calibration["records"]
    figures = {"cross_validation": {}, "relatives": {}, "families": {}}
    return Fitted(tensors, (), calibration, figures, {}, {}, {})


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("esm2",), "run virnucpro bundle fetch first"),
        (("t5", "kmers"), "at most one Hugging Face"),
    ],
)
@pytest.mark.usefixtures("reading_here")
def test_folders_that_a_bundle_cannot_contain_are_refused(names, reason, saved, tmp_path):
    folders = [str(folder_of(saved, tmp_path, name)[0]) for name in names]
    with pytest.raises(UsageError, match=reason):
        choose_model(folders, None, None)
