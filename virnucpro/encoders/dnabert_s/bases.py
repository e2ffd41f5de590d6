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

__all__ = ["BaseTokeniser"]

_ANY_BASE: Final = ord("N")


def _letters() -> bytes:
    table = bytearray([_ANY_BASE]) * 256
    for letter in string.ascii_uppercase.encode():
        table[letter] = table[letter | 0x20] = letter
    return bytes(table)


_LETTERS: Final = _letters()
"""Upper case of a letter; N for any other byte, so that none can spell a special token."""

_FIRST, _LAST = "[CLS]", "[SEP]"


class BaseTokeniser:
    """Applies a tokenizer.json to bases, whole and unpadded.

    The published file has truncation and padding to 2,000 tokens built in: both are switched off.

    One thread does the work, which is a small part of the encoder's on the same core: the library's
    pool would take every core of a machine whose other ranks need them, and warns at each fork.
    ``TOKENIZERS_PARALLELISM`` in the environment says otherwise where it is set.

    Parameters
    ----------
    path
        A tokenizer.json of the `tokenizers` library that puts [CLS] and [SEP] around a sequence.

    Raises
    ------
    BundleError
        When the file cannot be read, is no tokeniser, or puts other tokens around a sequence.
    """

    def __init__(self, path: Path) -> None:
        os.environ.setdefault(
            "TOKENIZERS_PARALLELISM", "false"
        )  # read by every call of the library
        try:
            self._tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
            enclosed = _puts_between_ends(self._tokenizer)
        except Exception as error:
            # the library raises bare Exception for a malformed file
            raise BundleError(
                f"{path}: cannot be read as a tokenizer.json ({error}). Get the file again."
            ) from error
        if not enclosed:
            raise BundleError(
                f"{path}: does not put a sequence between {_FIRST} and {_LAST}, with which the "
                "model was trained: its vectors would be others. Get the file again, from its "
                "publisher."
            )

    @property
    def vocabulary_size(self) -> int:
        """Number of ids; every id is below it."""
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values()) + 1

    def __call__(self, sequences: Sequence[bytes]) -> list[IntArray]:
        """Turn bases into token ids between [CLS] and [SEP].

        One byte is one letter. Lower case counts as upper case (the vocabulary has none), and what
        is no letter as N. A letter that is not in the vocabulary, N among them, becomes [UNK], one
        for each. No sequence can spell a special token: ``[SEP]`` is read as five letters.
        """
        texts = [sequence.translate(_LETTERS).decode("ascii") for sequence in sequences]
        encodings = self._tokenizer.encode_batch_fast(texts)
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]


def _puts_between_ends(tokenizer: Tokenizer) -> bool:
    ends = tokenizer.token_to_id(_FIRST), tokenizer.token_to_id(_LAST)
    inside = tokenizer.encode("ACGT", add_special_tokens=False).ids
    return None not in ends and tokenizer.encode("ACGT").ids == [ends[0], *inside, ends[1]]
