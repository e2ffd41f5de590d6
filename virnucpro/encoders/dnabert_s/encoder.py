"""DNABERT-S: tokenise bases, load an encoder, and recognise published files."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from tokenizers import Tokenizer

from virnucpro.arrays import IntegerArray
from virnucpro.encoders.base import EncoderSpec, Tokeniser
from virnucpro.encoders.config import MOST_TOKENIZER_BYTES, letter_table, read_json
from virnucpro.encoders.dnabert_s.config import (
    PREFIX,
    UNUSED,
    DnabertSConfig,
    DnabertSFiles,
    find_published,
)
from virnucpro.encoders.dnabert_s.model import DnabertS
from virnucpro.encoders.weights.check import check_tensors
from virnucpro.encoders.weights.pickles import read_state_dict, require_intact, shapes_in
from virnucpro.encoders.weights.shapes import without
from virnucpro.errors import BundleError

_LETTERS: Final = letter_table("N")

_FIRST, _LAST = "[CLS]", "[SEP]"

_LINEAR: Final = (".Wqkv.", ".dense.", ".gated_layers.", ".wo.")
"""Name fragments of the tensors that `DnabertS` converts to the precision of the arithmetic."""


class BpeTokeniser:
    """Tokeniser of bases by byte pair encoding (BPE), without truncation and padding.

    The published tokenizer.json sets truncation and padding to 2,000 tokens: this class switches
    both off.

    The `tokenizers` library uses one thread by default: tokenising is a small part of the encoder's
    time on the same core, and more threads would slow other ranks. The environment variable
    ``TOKENIZERS_PARALLELISM`` overrides this default.

    Parameters
    ----------
    path
        A tokenizer.json of the `tokenizers` library that adds [CLS] and [SEP] to a sequence.

    Raises
    ------
    BundleError
        If the file is larger than 64 MiB, cannot be read, is not a tokeniser, changes letters of a
        sequence, or adds other tokens.
    """

    def __init__(self, path: Path) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # read by the library at each call
        try:
            self._tokenizer = _read_tokenizer(path)
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
            encloses = self._encloses()
        except Exception as error:
            # the library raises a bare Exception for a malformed file
            raise BundleError(
                f"{path}: cannot be read as a tokenizer.json ({error}). Get the file again."
            ) from error
        if not encloses:
            raise BundleError(
                f"{path}: does not add {_FIRST} and {_LAST} to a sequence, but the model needs "
                "both. Get the file again from its publisher."
            )

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids: the largest id plus 1."""
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values()) + 1

    def __call__(self, sequences: Sequence[bytes]) -> list[IntegerArray]:
        """Return the token ids of each sequence, from [CLS] to [SEP]: (n_tokens,) int64 arrays.

        One byte is one letter. Lower case becomes upper case. A byte that is not a letter becomes
        N. Each letter outside the vocabulary, such as N, becomes [UNK]. A sequence cannot contain
        a special token: ``[SEP]`` is read as five letters.
        """
        texts = [sequence.translate(_LETTERS).decode("ascii") for sequence in sequences]
        encodings = self._tokenizer.encode_batch_fast(texts)
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]

    def _encloses(self) -> bool:
        """Return whether the tokeniser adds [CLS] before and [SEP] after a sequence."""
        first, last = map(self._tokenizer.token_to_id, (_FIRST, _LAST))
        inside = self._tokenizer.encode("ACGT", add_special_tokens=False).ids
        enclosed = self._tokenizer.encode("ACGT").ids == [first, *inside, last]
        return enclosed and None not in (first, last)


def _read_tokenizer(path: Path) -> Tokenizer:
    if path.stat().st_size > MOST_TOKENIZER_BYTES:
        raise ValueError(f"larger than {MOST_TOKENIZER_BYTES >> 20} MiB")
    tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
    if tokenizer.normalizer is not None:  # one letter could become a thousand
        raise ValueError("it has a normalizer, which changes letters")
    return tokenizer


def build(
    spec: EncoderSpec, config: DnabertSConfig, device: torch.device, dtype: torch.dtype
) -> tuple[Tokeniser, DnabertS]:
    """Return tokeniser and model of a DNABERT-S encoder.

    The spec's files are ``weights`` (safetensors, or a state dict by ``torch.save``; published
    parameter names, with or without the prefix ``bert.``) and ``tokenizer``.

    Raises
    ------
    BundleError
        If a file cannot be read, its tensors are not those of this model, or the tokeniser has
        more ids than the model.
    """
    path, tokeniser = spec.file("weights"), _tokeniser(spec.file("tokenizer"), config)
    tensors = needed_tensors(path)
    check_tensors(config.tensor_shapes(), tensors, path, _LINEAR, dtype)
    return tokeniser, DnabertS(config, tensors, device, dtype)


def recognise(path: Path) -> EncoderSpec | None:
    """Return the `EncoderSpec` of a DNABERT-S folder; None if one of the three files is missing.

    Weights that ``torch.save`` wrote are read completely, to detect damage before a run starts.

    Raises
    ------
    BundleError
        If config.json cannot be read or lacks a setting, the weights are damaged or of another
        size, or tokenizer.json belongs to another model.
    """
    found = find_published(path)
    if found is None:
        return None
    if found.weights.suffix == ".bin":
        require_intact(found.weights)
    if _is_plain_bert(found):
        return None
    config = DnabertSConfig.read(read_json(found.settings), found.settings)
    config.require_weights(shapes_in(found.weights), found.weights)
    _tokeniser(found.tokenizer, config)
    files = {"weights": found.weights.name, "tokenizer": found.tokenizer.name}
    return config.spec(path.resolve().name, path, files)


def _is_plain_bert(found: DnabertSFiles) -> bool:
    """Return whether a folder has another model of a Hugging Face type, without joined weights."""
    if "model_type" not in read_json(found.settings):
        return False
    return not any(".Wqkv." in name for name in shapes_in(found.weights))


def needed_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Return the tensors in a published weights file that the model uses, by name.

    The prefix ``bert.`` is removed from the names.

    Raises
    ------
    BundleError
        If the file cannot be read, or contains anything but tensors. Code in the file is not
        executed.
    """
    tensors = {name.removeprefix(PREFIX): t for name, t in read_state_dict(path).items()}
    return without(tensors, UNUSED)


def _tokeniser(path: Path, config: DnabertSConfig) -> BpeTokeniser:
    """Open a tokeniser; raise BundleError if it has more token ids than the model."""
    tokeniser = BpeTokeniser(path)
    if tokeniser.vocabulary_size > config.vocab_size:
        raise BundleError(
            f"{path}: the token ids go up to {tokeniser.vocabulary_size - 1}, but the model has "
            f"only {config.vocab_size} tokens. Use tokenizer and settings of the same model."
        )
    return tokeniser
