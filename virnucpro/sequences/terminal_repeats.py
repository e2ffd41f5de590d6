"""Repeats at both ends of a sequence, a sign of a complete genome of a virus."""

from typing import Final

from virnucpro.sequences.translation import reverse_complement

LEAST_REPEAT: Final = 20
"""Bases of the shortest repeat, as in CheckV."""
_WORD: Final = 4
_KINDS: Final = 9
"""Least number of different words of a repeat: ``ATATATAT...`` at both ends says nothing."""


def terminal_repeat(bases: bytes) -> str:
    """Return ``DTR`` for a direct, ``ITR`` for an inverted terminal repeat, else "".

    A direct repeat is at most half of the sequence. Repeats are exact, and of A, C, G and T.
    """
    half = len(bases) // 2
    place = bases.find(bases[:LEAST_REPEAT], half)
    while place >= 0:
        if bases.startswith(bases[place:]):
            # Positions behind this one have parts of the same repeat.
            return "DTR" if _is_complex(bases[place:]) else ""
        place = bases.find(bases[:LEAST_REPEAT], place + 1)
    inverted = bases[:LEAST_REPEAT] == reverse_complement(bases[-LEAST_REPEAT:])
    return "ITR" if inverted and _is_complex(bases[:LEAST_REPEAT]) else ""


def _is_complex(repeat: bytes) -> bool:
    words = {repeat[n : n + _WORD] for n in range(len(repeat) - _WORD + 1)}
    known = sum(map(repeat.count, b"ACGT")) == len(repeat)
    return len(repeat) >= LEAST_REPEAT and known and len(words) >= _KINDS
