"""Token ids of bases, by the byte-pair encoding of a tokenizer.json."""

import os
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from tokenizers import Tokenizer

from virnucpro.encoders.base import IntArray
from virnucpro.errors import BundleError

__all__ = ["BpeTokeniser"]

_LETTERS: Final = bytes(
    ord(chr(byte).upper() if chr(byte) in string.ascii_letters else "N") for byte in range(256)
)
"""Upper case of a letter; N for any other byte, so that no sequence can spell a special token."""

_FIRST, _LAST = "[CLS]", "[SEP]"


class BpeTokeniser:
    """Applies a tokenizer.json to bases, without truncation and padding.

    The published file sets truncation and padding to 2,000 tokens: both are switched off.

    The library uses one thread: tokenising is a small part of the encoder's time on the same core,
    and a pool would compete with other ranks. The environment variable ``TOKENIZERS_PARALLELISM``
    has priority.

    Parameters
    ----------
    path
        A tokenizer.json of the `tokenizers` library that adds [CLS] and [SEP] to a sequence.

    Raises
    ------
    BundleError
        If the file cannot be read, is not a tokeniser, or adds other tokens to a sequence.
    """

    def __init__(self, path: Path) -> None:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the library reads it each call
        try:
            self._tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
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
                f"{path}: does not add {_FIRST} and {_LAST} to a sequence, which the model needs. "
                "Get the file again from its publisher."
            )

    @property
    def vocabulary_size(self) -> int:
        """Number of ids; every id is smaller."""
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values()) + 1

    def __call__(self, sequences: Sequence[bytes]) -> list[IntArray]:
        """Convert bases to token ids between [CLS] and [SEP].

        One byte is one letter. Lower case becomes upper case, which the vocabulary has, and a byte
        that is not a letter becomes N. Each letter outside the vocabulary, such as N, becomes
        [UNK]. No sequence can spell a special token: ``[SEP]`` is read as five letters.
        """
        texts = [sequence.translate(_LETTERS).decode("ascii") for sequence in sequences]
        encodings = self._tokenizer.encode_batch_fast(texts)
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]

    def _encloses(self) -> bool:
        """Return whether [CLS] and [SEP] are added to a sequence."""
        first, last = map(self._tokenizer.token_to_id, (_FIRST, _LAST))
        inside = self._tokenizer.encode("ACGT", add_special_tokens=False).ids
        enclosed = self._tokenizer.encode("ACGT").ids == [first, *inside, last]
        return enclosed and None not in (first, last)
