"""Encoders of any published size without a download: files of the bundles' format, made up."""

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from tokenizers import Tokenizer, models, processors, trainers

from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.config import EncoderConfig
from virnucpro.encoders.dnabert_s.config import DnabertSConfig
from virnucpro.encoders.registry import n_parameters, size_named
from virnucpro.errors import UsageError

__all__ = ["file_bytes", "write_random_encoder"]

_DEVIATION: Final = 0.02
"""Of the weights. Layer norms keep the numbers of every layer near one, so it tells nothing."""

_BLOCK: Final = 4_194_301
"""Random numbers drawn, and used again and again. A prime: no two rows of a matrix are alike."""

_BYTES: Final = 2
"""A number is kept in half precision, whatever it will be computed in."""

_SPECIAL: Final = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")


def file_bytes(size: EncoderConfig) -> int:
    """Say how large the file of weights is going to be."""
    return n_parameters(size) * _BYTES


def write_random_encoder(folder: Path, name: str) -> EncoderSpec:
    """Write the files of an encoder of a published size, with random weights.

    Parameters
    ----------
    folder
        An empty one.
    name
        A key of `PUBLISHED`.

    Raises
    ------
    UsageError
        When there is no such size, or the folder's disk has no room for its file.
    OSError
        When a file cannot be written.
    """
    size = size_named(name)
    free, wanted = shutil.disk_usage(folder).free, file_bytes(size)
    if free < wanted:
        raise UsageError(
            f"{folder}: random weights of {name} are a file of {wanted / 1e9:.1f} GB, and the disk "
            f"has {free / 1e9:.1f} GB. Point TMPDIR to a folder with room, or take a smaller model."
        )
    weights = folder / "weights.safetensors"
    with weights.open("wb") as stream:
        _write_tensors(stream, size)
    files = {"weights": weights.name}
    if isinstance(size, DnabertSConfig):
        _write_tokeniser(folder / "tokenizer.json", size.vocab_size)
        files["tokenizer"] = "tokenizer.json"
    return EncoderSpec(name, size.architecture, size.view, size.dim, folder, files, asdict(size))


def _write_tensors(stream: IO[bytes], size: EncoderConfig) -> None:
    """Write safetensors' format: length of the header, header (JSON), numbers; tensor by tensor."""
    header: dict[str, dict[str, Any]] = {}
    end = 0
    shapes = size.tensor_shapes()
    for tensor, shape in shapes.items():
        start, end = end, end + _BYTES * math.prod(shape)
        header[tensor] = {"dtype": "F16", "shape": shape, "data_offsets": (start, end)}
    text = json.dumps(header).encode()
    stream.write(len(text).to_bytes(8, "little") + text)
    block = _random_block()
    for tensor, shape in shapes.items():
        first = header[tensor]["data_offsets"][0] // _BYTES
        for piece in _values(block, first, tensor, shape):
            stream.write(piece)


def _random_block() -> memoryview:
    numbers = np.random.default_rng(1).standard_normal(_BLOCK, np.float32) * _DEVIATION
    return memoryview(numbers.astype(np.float16).tobytes())


def _values(
    block: memoryview, first: int, tensor: str, shape: tuple[int, ...]
) -> Iterator[bytes | memoryview]:
    """Give a tensor's numbers: weights at random, layer norms at one, biases at zero.

    It begins with number `first` of the file, which says where in the block its numbers begin.
    """
    end = first + math.prod(shape)
    if len(shape) == 1:
        yield np.full(end - first, 1.0 if tensor.endswith("weight") else 0.0, np.float16).tobytes()
        return
    while first < end:
        start = first % _BLOCK
        n = min(end - first, _BLOCK - start)
        yield block[start * _BYTES : (start + n) * _BYTES]
        first += n


def _write_tokeniser(path: Path, vocabulary: int) -> None:
    """Learn byte-pair encoding from random bases: 500 bases are 106 tokens, published 109."""
    letters = np.random.default_rng(2).choice(np.frombuffer(b"ACGT", np.uint8), (400, 500))
    tokeniser = Tokenizer(models.BPE(unk_token=_SPECIAL[0]))
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=list(_SPECIAL), show_progress=False
    )
    tokeniser.train_from_iterator((row.tobytes().decode() for row in letters), trainer)
    tokeniser.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokeniser.save(str(path))
