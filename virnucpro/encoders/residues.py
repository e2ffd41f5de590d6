"""Token ids of residues, by one table look-up."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from esm.data import Alphabet

from virnucpro.encoders.base import IntArray

__all__ = ["ALPHABET", "tokenise_residues"]

ALPHABET: Final = Alphabet.from_architecture("ESM-1b")
"""The alphabet of every ESM-2 model: 33 tokens."""


def _table() -> IntArray:
    table = np.full(256, ALPHABET.unk_idx, dtype=np.int64)
    for token, index in ALPHABET.to_dict().items():
        if len(token) == 1:
            table[[ord(token), ord(token.lower())]] = index
    return table


_IDS: Final = _table()


def tokenise_residues(sequences: Sequence[bytes]) -> list[IntArray]:
    """Turn residues into ESM-2's token ids, between <cls> and <eos>.

    One byte is one token. Lower case counts as upper case. ``X B U Z O . -`` have tokens of their
    own; every other byte (``J``, ``*``, ...) becomes <unk>, where fair-esm's own converter raises
    KeyError. No sequence can spell a special token: ``<mask>`` is read as six letters.

    Returns
    -------
    list of (n_residues + 2,) int64
    """
    return [_tokenise(sequence) for sequence in sequences]


def _tokenise(sequence: bytes) -> IntArray:
    ids = np.empty(len(sequence) + 2, dtype=np.int64)
    ids[0] = ALPHABET.cls_idx
    ids[1:-1] = _IDS[np.frombuffer(sequence, dtype=np.uint8)]
    ids[-1] = ALPHABET.eos_idx
    return ids
