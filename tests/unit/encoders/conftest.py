"""Small encoders with random weights, in the formats of the published ones."""

import importlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from esm.model.esm2 import ESM2
from own_packages import install_example
from safetensors.numpy import save_file as save_numpy
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.composition.config import FEATURES_VERSION, CompositionConfig
from virnucpro.encoders.dnabert_s.config import DnabertSConfig
from virnucpro.encoders.genes import config as genes
from virnucpro.encoders.genes.config import GenesConfig
from virnucpro.encoders.plugin.config import open_plugin
from virnucpro.encoders.registry import open_spec

RESIDUES = b"LAGVSERTIDPKQNFYMHWC"


@pytest.fixture(scope="session", autouse=True)
def one_thread(one_torch_thread):
    pass


@pytest.fixture(scope="session")
def random_sequences():
    """Return a function: alphabet, lengths, seed -> random sequences."""

    def draw(alphabet, lengths, seed=0):
        generator = np.random.default_rng(seed)
        letters = np.frombuffer(alphabet, dtype=np.uint8)
        return [generator.choice(letters, length).tobytes() for length in lengths]

    return draw


@pytest.fixture(scope="session")
def proteins(random_sequences):
    return lambda lengths, seed=0: random_sequences(RESIDUES, lengths, seed)


@pytest.fixture(scope="session")
def bases(random_sequences):
    return lambda lengths, seed=0: random_sequences(b"ACGT", lengths, seed)


@pytest.fixture(scope="session")
def roughen():
    """Return a function that sets random values in all parameters of a module."""

    def apply(module, seed=0):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        return module.eval()

    return apply


@pytest.fixture(scope="session")
def fair_esm(tmp_path_factory, roughen, stand_ins):
    """Return a function that saves a fair-esm checkpoint: -> path, fair-esm's model."""

    def make(num_layers=2, embed_dim=32, heads=4, *, token_dropout=True, name="esm2_tiny"):
        with torch.random.fork_rng():
            torch.manual_seed(embed_dim)
            model = ESM2(num_layers, embed_dim, heads, token_dropout=token_dropout)
        roughen(model)
        path = tmp_path_factory.mktemp("esm2") / f"{name}.pt"
        stand_ins.save_esm2(path, model)
        return path, model

    return make


@pytest.fixture(scope="session")
def small_tokenizer(stand_ins):
    return stand_ins.small_tokenizer()


@pytest.fixture(scope="session")
def dnabert(tmp_path_factory, small_tokenizer, stand_ins):
    """Return a function that saves a DNABERT-S folder: -> folder, its tensors."""

    def make(heads=3, hidden=24, layers=2, prefix="", name="DNABERT-S"):
        config = DnabertSConfig(64, hidden, layers, heads, 2 * hidden)
        folder = tmp_path_factory.mktemp("dnabert") / name
        folder.mkdir()
        settings = asdict(config) | {"pad_token_id": 0, "hidden_act": "gelu"}
        (folder / "config.json").write_text(json.dumps(settings))
        small_tokenizer.save(str(folder / "tokenizer.json"))
        tensors = stand_ins.dnabert_tensors(config, seed=hidden)
        stored = tensors | {"pooler.dense.weight": torch.zeros(hidden, hidden)}
        save_file({prefix + key: one for key, one in stored.items()}, folder / "model.safetensors")
        return folder, tensors

    return make


@pytest.fixture(scope="session")
def t5():
    """Return a function that makes ProstT5's kind of model: folder for its tokenizer -> model."""
    transformers = pytest.importorskip("transformers")

    def make(folder):
        vocabulary = [
            "<pad>",
            "</s>",
            "<unk>",
            *(f"▁{letter}" for letter in RESIDUES.decode() + "X"),
            "<AA2fold>",
        ]
        made = Tokenizer(models.Unigram([(token, -1.0) for token in vocabulary], unk_id=2))
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        made.add_special_tokens(["<AA2fold>"])
        made.post_processor = processors.TemplateProcessing(
            single="$A </s>", special_tokens=[("</s>", 1)]
        )
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=made, unk_token="<unk>", pad_token="<pad>", eos_token="</s>"
        ).save_pretrained(folder)
        config = transformers.T5Config(
            vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4
        )
        return transformers.T5EncoderModel(config)

    return make


@pytest.fixture(scope="session")
def prost_t5(t5, tmp_path_factory, roughen):
    """Return a function that saves such a model: -> folder, model."""

    def make():
        folder = tmp_path_factory.mktemp("prost_t5")
        with torch.random.fork_rng():
            torch.manual_seed(1)
            model = roughen(t5(folder))
        model.save_pretrained(folder)
        return folder, model

    return make


def genes_spec(folder):
    """Return the spec of an encoder of genes whose codon scores are random."""
    rng = np.random.default_rng(1)
    shapes = GenesConfig(genes.FEATURES_VERSION).tensor_shapes()
    scores = rng.integers(-16, 17, shapes["scores"]).astype(np.int16)
    scores[:, 64:] = 0  # of unknown codons
    tensors = {
        "scores": scores,
        "means": rng.random(shapes["means"], np.float32),
        "keys": np.array([1], np.uint32),
        "values": np.array([0], np.uint8),
    }
    save_numpy(tensors, folder / "genes.safetensors")
    return GenesConfig(genes.FEATURES_VERSION).spec(
        "genes", folder, {"weights": "genes.safetensors"}
    )


@pytest.fixture(scope="module")
def spec_of(fair_esm, dnabert, prost_t5, tmp_path_factory):
    """Return a function that makes a small encoder: architecture -> spec."""
    makers = {"esm2": fair_esm, "dnabert_s": dnabert, "huggingface": prost_t5}

    def make(architecture) -> EncoderSpec:
        folder = tmp_path_factory.mktemp(architecture)
        if architecture == "composition":
            return CompositionConfig(FEATURES_VERSION, genetic_code=11).spec("c", folder, {})
        if architecture == "genes":
            return genes_spec(folder)
        if architecture == "plugin":
            config, _ = open_plugin("residue-properties")
            return config.spec(config.title, folder, {})
        path, _ = makers[architecture]()
        return open_spec(Path(path))

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(install_example(tmp_path_factory.mktemp("site"))))
        yield make


@pytest.fixture
def scripts(monkeypatch):
    """Import scripts/bench/ceiling.py."""
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "scripts/bench")
    return importlib.import_module("ceiling")
