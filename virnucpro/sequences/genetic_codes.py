"""Genetic codes by number, as NCBI counts them.

Source: NCBI, "The Genetic Codes" (``gc.prt``). Codes 27, 28 and 31 read one codon both as a stop
and as a residue, depending on its place, which a table cannot say: they are not here. Start codons
are not here either, since frames are read through, not searched for genes; so 1 and 11 read alike.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from virnucpro.errors import UsageError

__all__ = ["CODON_LETTERS", "GENETIC_CODES", "GeneticCode", "genetic_code"]

CODON_LETTERS = b"TCAG"
"""The order of bases in a code's table: codon ``xyz`` is entry ``16 x + 4 y + z``."""


@dataclass(frozen=True, slots=True)
class GeneticCode:
    """One genetic code.

    Attributes
    ----------
    number
        As NCBI counts.
    residues
        64 letters in the order of `CODON_LETTERS`, ``*`` for a stop.
    """

    number: int
    residues: bytes


_STANDARD = b"FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG"

_TABLES = {
    1: _STANDARD,
    2: b"FFLLSSSSYY**CCWWLLLLPPPPHHQQRRRRIIMMTTTTNNKKSS**VVVVAAAADDEEGGGG",
    3: b"FFLLSSSSYY**CCWWTTTTPPPPHHQQRRRRIIMMTTTTNNKKSSRRVVVVAAAADDEEGGGG",
    4: b"FFLLSSSSYY**CCWWLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG",
    5: b"FFLLSSSSYY**CCWWLLLLPPPPHHQQRRRRIIMMTTTTNNKKSSSSVVVVAAAADDEEGGGG",
    6: b"FFLLSSSSYYQQCC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG",
    9: b"FFLLSSSSYY**CCWWLLLLPPPPHHQQRRRRIIIMTTTTNNNKSSSSVVVVAAAADDEEGGGG",
    10: b"FFLLSSSSYY**CCCWLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG",
    11: _STANDARD,
    12: b"FFLLSSSSYY**CC*WLLLSPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG",
    13: b"FFLLSSSSYY**CCWWLLLLPPPPHHQQRRRRIIMMTTTTNNKKSSGGVVVVAAAADDEEGGGG",
    14: b"FFLLSSSSYYY*CCWWLLLLPPPPHHQQRRRRIIIMTTTTNNNKSSSSVVVVAAAADDEEGGGG",
    15: b"FFLLSSSSYY*QCC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG",
    16: b"FFLLSSSSYY*LCC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG",
    21: b"FFLLSSSSYY**CCWWLLLLPPPPHHQQRRRRIIMMTTTTNNNKSSSSVVVVAAAADDEEGGGG",
    22: b"FFLLSS*SYY*LCC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG",
    23: b"FF*LSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG",
    24: b"FFLLSSSSYY**CCWWLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSSKVVVVAAAADDEEGGGG",
    25: b"FFLLSSSSYY**CCGWLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG",
    26: b"FFLLSSSSYY**CC*WLLLAPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG",
    29: b"FFLLSSSSYYYYCC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG",
    30: b"FFLLSSSSYYEECC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG",
    32: b"FFLLSSSSYY*WCC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG",
    33: b"FFLLSSSSYYY*CCWWLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSSKVVVVAAAADDEEGGGG",
}

GENETIC_CODES: Mapping[int, GeneticCode] = MappingProxyType(
    {number: GeneticCode(number, residues) for number, residues in _TABLES.items()}
)
"""All codes that are known here, by number."""


def genetic_code(number: int) -> GeneticCode:
    """Look up a genetic code.

    Raises
    ------
    UsageError
        When the number is not NCBI's, or is of a code without a fixed table (27, 28, 31).
    """
    if number not in GENETIC_CODES:
        known = ", ".join(map(str, GENETIC_CODES))
        raise UsageError(f"unknown genetic code {number}: choose one of {known}")
    return GENETIC_CODES[number]
