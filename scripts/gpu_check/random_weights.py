"""Write encoders of published sizes with random weights, as files of a bundle."""

import json
import math
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, models, processors, trainers

from virnucpro.encoders.base import EncoderSpec
from virnucpro.encoders.config import EncoderConfig
from virnucpro.encoders.dnabert_s.config import DnabertSConfig
from virnucpro.encoders.registry import PUBLISHED

_DEVIATION: Final = 0.02
"""Standard deviation of the weights; layer norms keep the numbers of every layer near one."""

_BLOCK: Final = 4_194_301
"""Number of random values; the weights repeat them. A prime, so that all rows of a matrix differ.
"""

_BYTES: Final = 2
"""Bytes of a number in the file, which has half precision."""

_SPECIAL: Final = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")


def write_random_encoder(folder: Path, name: str) -> EncoderSpec:
    """Write an encoder of a published size with random weights; return its `EncoderSpec`.

    The files are ``weights.safetensors`` and, for DNABERT-S, ``tokenizer.json``.

    Parameters
    ----------
    folder
        An empty folder.
    name
        Name of a published encoder: a key of `virnucpro.encoders.registry.PUBLISHED`.
    """
    size = PUBLISHED[name]
    weights = folder / "weights.safetensors"
    with weights.open("wb") as stream:
        _write_tensors(stream, size)
    files = {"weights": weights.name}
    if isinstance(size, DnabertSConfig):
        _write_tokeniser(folder / "tokenizer.json", size.vocab_size)
        files["tokenizer"] = "tokenizer.json"
    return size.spec(name, folder, files)


def _write_tensors(stream: IO[bytes], size: EncoderConfig) -> None:
    """Write random tensors in the safetensors format: header length, JSON header, numbers."""
    header: dict[str, dict[str, Any]] = {}
    end = 0
    shapes = size.tensor_shapes()
    for tensor, shape in shapes.items():
        start, end = end, end + _BYTES * math.prod(shape)
        header[tensor] = {"dtype": "F16", "shape": shape, "data_offsets": (start, end)}
    text = json.dumps(header).encode()
    stream.write(len(text).to_bytes(8, "little") + text)
    block = np.random.default_rng(1).standard_normal(_BLOCK, np.float32) * _DEVIATION
    block = block.astype(np.float16)
    for tensor, shape in shapes.items():
        first = header[tensor]["data_offsets"][0] // _BYTES
        stream.write(_numbers(block, first, tensor, shape).data)


def _numbers(
    block: npt.NDArray[np.float16], first: int, tensor: str, shape: tuple[int, ...]
) -> npt.NDArray[np.float16]:
    """Return the random or constant values of one tensor.

    A matrix gets the random numbers of `block` from position `first` on, repeated if necessary.
    Weights of layer norms are 1, biases are 0.
    """
    if len(shape) == 1:
        return np.full(shape, 1.0 if tensor.endswith("weight") else 0.0, np.float16)
    return np.resize(np.roll(block, -(first % _BLOCK)), shape)


def _write_tokeniser(path: Path, vocabulary: int) -> None:
    """Write a tokeniser trained on random bases.

    This tokeniser converts 500 bases to 106 tokens; the published tokeniser, to 109.
    """
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
