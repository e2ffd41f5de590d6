"""Small files in the formats of the published ones, and their recipe."""

import json
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from esm.model.esm2 import ESM2
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from torch import nn

from virnucpro.bundles.checksums import digest_of
from virnucpro.bundles.published import EncoderSource, PublishedFile, Recipe
from virnucpro.encoders.dnabert_s.config import DnabertSConfig
from virnucpro.encoders.esm2.config import Esm2Config

ESM2_WIDTH, DNABERT_WIDTH, HIDDEN = 32, 24, 16
SPECIALS = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]


class MLPClassifier(nn.Module):
    """A small published classifier; its pickled class is __main__.MLPClassifier."""

    def __init__(self, wide: int = ESM2_WIDTH + DNABERT_WIDTH) -> None:
        super().__init__()
        self.hidden_layer = nn.Linear(wide, HIDDEN)
        self.bn1 = nn.BatchNorm1d(HIDDEN)
        self.output_layer = nn.Linear(HIDDEN, 2)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        return self.output_layer(self.dropout(torch.relu(self.bn1(self.hidden_layer(x)))))


def roughen(module: nn.Module) -> nn.Module:
    """Give all parameters and running means values other than 0 and 1."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.add_(0.3 * torch.rand(tensor.shape, generator=generator))
    return module.eval()


def save_as_published(module: nn.Module, path: Path) -> None:
    """Pickle a whole module with the class __main__.MLPClassifier, as the published script."""
    main = sys.modules["__main__"]
    MLPClassifier.__module__, MLPClassifier.__qualname__ = "__main__", "MLPClassifier"
    main.MLPClassifier = MLPClassifier
    try:
        torch.save(module, path)
    finally:
        del main.MLPClassifier


def write_classifier(path: Path, wide: int = ESM2_WIDTH + DNABERT_WIDTH) -> MLPClassifier:
    torch.manual_seed(11)
    module = roughen(MLPClassifier(wide))
    save_as_published(module, path)
    return module


def save_checkpoint(path: Path, config: Esm2Config, tensors: Mapping[str, torch.Tensor]) -> None:
    """Save a checkpoint of ESM-2 that fair-esm's loader accepts."""
    settings = Namespace(
        arch="esm2",
        encoder_layers=config.num_layers,
        encoder_embed_dim=config.embed_dim,
        encoder_attention_heads=config.attention_heads,
        token_dropout=config.token_dropout,
    )
    torch.save({"cfg": {"model": settings}, "model": dict(tensors)}, path)


def save_esm2(path: Path, model: ESM2) -> None:
    """Save fair-esm's module as published: with prefixes and language model, without contacts."""
    state = {
        ("encoder." if key.startswith("lm_head") else "encoder.sentence_encoder.") + key: tensor
        for key, tensor in model.state_dict().items()
        if not key.startswith("contact_head")
    }
    sizes = model.num_layers, model.embed_dim, model.attention_heads
    save_checkpoint(path, Esm2Config(*sizes, model.token_dropout), state)


def write_esm2(path: Path) -> ESM2:
    """A fair-esm checkpoint, in half precision as the published 3B is."""
    torch.manual_seed(7)
    model = roughen(ESM2(2, ESM2_WIDTH, 4)).half()
    save_esm2(path, model)
    return model


def small_tokenizer() -> Tokenizer:
    """Byte-pair encoding of bases with 64 tokens; truncation and padding as published."""
    letters = np.random.default_rng(7).choice(np.frombuffer(b"ACGT", dtype=np.uint8), (40, 200))
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.BpeTrainer(vocab_size=64, special_tokens=SPECIALS, show_progress=False)
    tokenizer.train_from_iterator((row.tobytes().decode() for row in letters), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.enable_truncation(max_length=12)
    tokenizer.enable_padding(length=12, pad_id=3, pad_token="[PAD]")
    return tokenizer


def dnabert_tensors(config: DnabertSConfig, seed: int = 5) -> dict[str, torch.Tensor]:
    """Random tensors: weights of norms around 1, all others around 0."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: 0.1 * torch.randn(shape, generator=generator)
        + (len(shape) == 1 and name.endswith("weight"))
        for name, shape in config.tensor_shapes().items()
    }


def write_dnabert_s(folder: Path) -> None:
    """Write config.json, tokenizer.json and pytorch_model.bin."""
    small_tokenizer().save(str(folder / "tokenizer.json"))
    config = DnabertSConfig(64, DNABERT_WIDTH, 2, 3, 2 * DNABERT_WIDTH)
    (folder / "config.json").write_text(json.dumps(asdict(config) | {"pad_token_id": 0}))
    pooler = {"pooler.dense.weight": torch.zeros(DNABERT_WIDTH, DNABERT_WIDTH)}
    tensors = dnabert_tensors(config) | pooler
    torch.save(
        {f"bert.{key}": value for key, value in tensors.items()}, folder / "pytorch_model.bin"
    )


def publish(folder: Path) -> None:
    """Write all files of a published bundle into a folder."""
    write_dnabert_s(folder)
    write_esm2(folder / "esm2_tiny.pt")
    write_classifier(folder / "500_model.pth")


def recipe_of_files(folder: Path, name: str = "virnucpro-500", window: int = 500) -> Recipe:
    """Return the recipe of the files that `publish` wrote."""

    def file(home: str, path: str, kind: str) -> PublishedFile:
        local = folder / Path(path).name
        digest = digest_of(kind, local)
        return PublishedFile(home, path, local.name, digest, 2 * local.stat().st_size)

    nucleotide = tuple(
        file("hub", f"zhihan1996/DNABERT-S/resolve/abc/{one}", "sha256")
        for one in ("config.json", "tokenizer.json", "pytorch_model.bin")
    )
    return Recipe(
        name,
        "stand-in",
        (
            EncoderSource("DNABERT-S", "dnabert_s", nucleotide),
            EncoderSource("esm2_tiny", "esm2", (file("esm2", "esm2_tiny.pt", "md5"),)),
        ),
        file("heads", "Li-Jing-1997/VirNucPro/main/500_model.pth", "git-blob"),
        window,
    )
