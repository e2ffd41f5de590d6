"""Tokenise sequences with the tokenizer of a Hugging Face folder."""

import string
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from virnucpro.encoders.base import IntArray, View
from virnucpro.errors import BundleError

__all__ = ["LetterTokeniser", "alphabet_of", "needs_spaces"]

_PREFIX: Final = "<AA2fold>"
"""Token by which ProstT5 reads amino acids; it also reads structures, as lower-case letters."""

_PROBE: Final[dict[View, str]] = {
    "nucleotide": "ACGTTGCAACGGTCTAACGTGGCA",
    "protein": "LAGVSERTIDPKQNFYMHWC",
}


def _letters(unknown: str, replaced: str = "") -> bytes:
    """Return a table of bytes: letters in upper case; `replaced` and other bytes as `unknown`."""
    upper = (chr(byte).upper() if chr(byte) in string.ascii_letters else "" for byte in range(256))
    return bytes(ord(one if one and one not in replaced else unknown) for one in upper)


_TABLES: Final = {
    ("nucleotide", False): _letters("N"),
    ("nucleotide", True): _letters("N"),
    ("protein", False): _letters("X"),
    ("protein", True): _letters("X", "UZOB"),  # as the authors of ProtT5 and ProtBERT do
}


def alphabet_of(tokenizer: Any) -> View:  # noqa: ANN401 - transformers has no common base with types
    """Return the kind of sequence that a tokenizer reads, from the letters in its vocabulary."""
    entries = (entry.strip("▁#Ġ") for entry in tokenizer.get_vocab())  # special ones have brackets
    letters = {letter for entry in entries if entry.isalpha() for letter in entry.upper()}
    return "protein" if set("LEFIPQ") <= letters else "nucleotide"


def needs_spaces(tokenizer: Any, alphabet: View, source: object) -> bool:  # noqa: ANN401 - as above
    """Return whether a tokenizer reads letters with spaces between them only.

    Raises
    ------
    BundleError
        If a common letter is unknown with and without spaces.
    """
    for spaced in (False, True):
        ids = LetterTokeniser(tokenizer, alphabet, spaced=spaced).inside(_PROBE[alphabet])
        if tokenizer.unk_token_id not in ids:
            return spaced
    raise BundleError(
        f"{source}: the tokenizer reads neither plain {alphabet} sequences nor letters with "
        "spaces. Models of overlapping k-mers are not supported."
    )


class LetterTokeniser:
    """Tokeniser of sequences with special tokens.

    Letters become upper case. Other bytes become X (proteins) or N, and with spaces, as the authors
    of ProtT5 do, U, Z, O and B become X. ProstT5's prefix is added if the vocabulary has it.
    """

    def __init__(self, tokenizer: Any, alphabet: View, *, spaced: bool) -> None:  # noqa: ANN401 - as above
        self._tokenizer = tokenizer
        self._table = _TABLES[alphabet, spaced]
        self._between = " " if spaced else ""
        self._prefix = f"{_PREFIX} " if _PREFIX in tokenizer.get_vocab() else ""
        self._probe = _PROBE[alphabet]

    def __call__(self, sequences: Sequence[bytes]) -> list[IntArray]:
        """Return the token ids of each sequence: (n_tokens,) int64 arrays."""
        if not sequences:
            return []
        texts = [self._prefix + self._text(one) for one in sequences]
        return [np.array(ids, np.int64) for ids in self._tokenizer(texts)["input_ids"]]

    def inside(self, letters: str) -> list[int]:
        """Return the token ids of a sequence without special tokens."""
        text = self._text(letters.encode())
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def special_tokens(self) -> tuple[int, int]:
        """Return the numbers of special tokens before and after a sequence."""
        inside, (all_ids,) = self.inside(self._probe), self([self._probe.encode()])
        extra = len(all_ids) - len(inside)
        for first in range(extra + 1):
            if all_ids[first : first + len(inside)].tolist() == inside:
                return first, extra - first
        raise BundleError("the tokenizer changes a sequence if it adds special tokens")

    def _text(self, sequence: bytes) -> str:
        return self._between.join(sequence.translate(self._table).decode("ascii"))
