"""Token ids of residues, by one table look-up for all sequences."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from virnucpro.encoders.base import IntArray

__all__ = ["TOKENS", "tokenise_residues"]

TOKENS: Final = (
    *("<cls>", "<pad>", "<eos>", "<unk>"),
    *"LAGVSERTIDPKQNFYMHWCXBUZO.-",
    *("<null_1>", "<mask>"),
)
"""Alphabet of every ESM-2 model in the order of the ids. Source: fair-esm's ``ESM-1b``."""

_BEGIN: Final = TOKENS.index("<cls>")
_END: Final = TOKENS.index("<eos>")
_UNKNOWN: Final = TOKENS.index("<unk>")


def _table() -> IntArray:
    table = np.full(256, _UNKNOWN, dtype=np.int64)
    for index, token in enumerate(TOKENS):
        if len(token) == 1:
            table[[ord(token), ord(token.lower())]] = index
    return table


_IDS: Final = _table()


def tokenise_residues(sequences: Sequence[bytes]) -> list[IntArray]:
    """Convert residues to ESM-2's token ids, between <cls> and <eos>.

    One byte is one token. Lower case equals upper case. ``X B U Z O . -`` have their own tokens;
    any other byte (``J``, ``*``, ...) becomes <unk>, while fair-esm's converter raises KeyError. No
    sequence can spell a special token: ``<mask>`` is read as six letters.

    Returns
    -------
    list of (n_residues + 2,) int64
        Views of one array.
    """
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    ends = np.cumsum(lengths + 2)
    # the zero bytes reserve places for the special tokens
    letters = b"\0" + b"\0\0".join(sequences) + b"\0"
    ids = _IDS.take(np.frombuffer(letters, dtype=np.uint8))
    starts = ends - lengths - 2
    ids[starts] = _BEGIN
    ids[ends - 1] = _END
    spans = zip(starts.tolist(), ends.tolist(), strict=True)
    return [ids[start:stop] for start, stop in spans]
