"""Genetic codes, and the open frames of windows without a translation.

Each position of a sequence starts one codon. A frame of a window is the sequence of codons whose
positions have the same remainder modulo 3, from the start of the window to three bases before its
end. In the window ``start:end``, frame ``F(f+1)`` has the remainder of ``start + f``; frame
``R(f+1)``, on the other strand, has the remainder of ``end - f``. So each codon is classified once
for both strands (stop, stop on the other strand, not only A, C, G, T). For each remainder, the
bitwise or of these classes shows which frames of the window contain a stop or another letter.

The rules are the rules of the published tool: frames are F1, F2, F3 of the window, then
R1, R2, R3 of its reverse complement, in which only A, C, G, T are complemented. Codons with another
letter are dropped from the peptide. A frame is open if it has no stop and is not empty. The bases
of a frame with offset ``f`` are ``s[f : f + 3 * residues + 1]``.

Source of the codes: NCBI, "The Genetic Codes" (``gc.prt``). Codes 27, 28 and 31 are not supported:
there one codon is a stop or a residue, depending on its position. Start codons are not listed,
because whole frames are translated; so codes 1 and 11 are equal here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from virnucpro.arrays import BoolArray, ByteArray, Int32Array, IntArray
from virnucpro.errors import UsageError

CODON_LETTERS = b"TCAG"
"""Order of bases in a code: codon ``xyz`` is entry ``16 x + 4 y + z``."""


GeneticCode: TypeAlias = bytes
"""64 residues in the order of `CODON_LETTERS`, ``*`` for a stop."""

_STANDARD = b"FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG"

GENETIC_CODES = {
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
"""All supported codes, by number."""


def genetic_code(number: int) -> GeneticCode:
    """Return the genetic code with this NCBI number: one residue or ``*`` (stop) for each codon.

    Raises
    ------
    UsageError
        When the number is unknown, or the code has no fixed table (27, 28, 31).
    """
    if number not in GENETIC_CODES:
        known = ", ".join(map(str, GENETIC_CODES))
        raise UsageError(f"unknown genetic code {number}: choose one of {known}")
    return GENETIC_CODES[number]


FRAMES = ("F1", "F2", "F3", "R1", "R2", "R3")
"""Names of frames 0 to 5."""

_COMPLEMENT = bytes.maketrans(b"ACGT", b"TGCA")

# Bit 6 of a codon's number is set if one of its letters is not a base. 0x54, shifted by 0, 2 or 4
# within eight bits, has bit 6 set, so the or of three shifted letters keeps it.
_NO_BASE = 0x54
_LETTERS = bytes(
    CODON_LETTERS.index(letter) if letter in CODON_LETTERS else _NO_BASE for letter in range(256)
)
_N_CODONS = 64

STOP, STOP_REVERSED, UNKNOWN = np.uint8(1), np.uint8(2), np.uint8(4)
"""Flags of a codon: a stop, a stop on the other strand, not only A, C, G, T."""


@dataclass(frozen=True, slots=True)
class OpenFrames:
    """The open frames of several windows, sorted by window, then by frame (the order of items).

    Attributes
    ----------
    window
        ``(n_items,)`` int64: position of the frame's window in the given windows.
    frame
        ``(n_items,)`` uint8, 0 to 5, see `FRAMES`.
    residues
        ``(n_items,)`` int32: length of the peptide, without dropped codons.
    translatable
        ``(n_windows,)`` bool: whether any frame of the window has a codon of only A, C, G, T.
    """

    window: IntArray
    frame: ByteArray
    residues: Int32Array
    translatable: BoolArray


def reverse_complement(bases: bytes) -> bytes:
    """Return the reverse complement; letters other than A, C, G, T are unchanged."""
    return bases.translate(_COMPLEMENT)[::-1]


def reverse_complements(sequences: Sequence[bytes]) -> list[bytes]:
    """Return the reverse complement of each sequence; faster for many than one by one."""
    joined = reverse_complement(b"\n".join(sequences))
    return joined.split(b"\n")[::-1] if sequences else []


def peptide(bases: bytes, code: GeneticCode) -> bytes:
    """Translate one frame.

    Parameters
    ----------
    bases
        Upper-case bases from the frame's first codon; one or two extra bases are ignored.
    code
        The genetic code.

    Returns
    -------
    bytes
        Residues, ``*`` for a stop; codons with other letters than A, C, G, T are dropped.
    """
    return residues_by_codon(bases[: len(bases) // 3 * 3], code).replace(b"-", b"")


def residues_by_codon(bases: bytes, code: GeneticCode) -> bytes:
    """Translate each codon; a codon with other letters than A, C, G, T gives ``-``.

    Parameters
    ----------
    bases
        Upper-case bases, a multiple of three; may be several joined frames.
    code
        The genetic code.

    Returns
    -------
    bytes
        ``len(bases) // 3`` residues, ``*`` for a stop, ``-`` for a codon with other letters than
        A, C, G, T.
    """
    letters = np.frombuffer(bases.translate(_LETTERS), dtype=np.uint8)
    codons = _codons(letters[0::3], letters[1::3], letters[2::3])
    return codons.tobytes().translate(code + b"-" * (256 - _N_CODONS))


def open_frames(sequence: bytes, starts: IntArray, ends: IntArray, code: GeneticCode) -> OpenFrames:
    """Return the open frames of windows of a sequence.

    Parameters
    ----------
    sequence
        Upper-case bases of one record, or of several joined records if no window crosses from one
        record to the next.
    starts, ends
        ``(n_windows,)`` int64, bases, half open.
    code
        The genetic code.
    """
    n_windows = len(starts)
    classes = codon_classes(sequence, code)
    flags = np.zeros((n_windows, 3), dtype=np.uint8)
    known = np.zeros((n_windows, 3), dtype=np.int32)
    for remainder in range(3):
        low, high = (starts - remainder + 2) // 3, (ends - remainder) // 3
        run = np.ascontiguousarray(classes[remainder::3])
        flags[:, remainder] = over_runs(np.bitwise_or, run, low, high)
        known[:, remainder] = np.maximum(high - low, 0)
        unsure = np.flatnonzero(flags[:, remainder] & UNKNOWN)
        if unsure.size:
            sure = (run < UNKNOWN).astype(np.int32)
            known[unsure, remainder] = over_runs(np.add, sure, low[unsure], high[unsure])
    return _pick_open(starts, ends, flags, known)


def _pick_open(starts: IntArray, ends: IntArray, flags: ByteArray, known: Int32Array) -> OpenFrames:
    offsets = np.arange(3)
    remainder = np.concatenate(
        ((starts[:, None] + offsets) % 3, (ends[:, None] - offsets) % 3), axis=1
    )
    stop = np.repeat(np.array([STOP, STOP_REVERSED]), 3)
    residues = np.take_along_axis(known, remainder, axis=1)
    stopped = np.take_along_axis(flags, remainder, axis=1) & stop
    is_open = (stopped == 0) & (residues > 0)
    window, frame = np.nonzero(is_open)
    translatable = known.max(axis=1, initial=0) > 0
    return OpenFrames(window, frame.astype(np.uint8), residues[is_open], translatable)


def over_runs(
    reduce: np.ufunc, values: npt.NDArray[np.generic], low: IntArray, high: IntArray
) -> npt.NDArray[np.generic]:
    """Return `reduce` over ``values[low[i]:high[i]]`` for each ``i``; 0 for an empty range."""
    if not low.size:
        return values[:0]
    padded = np.append(values, values.dtype.type(0))
    edges = np.stack((low, np.maximum(high, low)), axis=1).ravel()
    # An empty range may start after the end: the last codon starts two letters before it.
    reduced: npt.NDArray[np.generic] = reduce.reduceat(padded, np.minimum(edges, len(values)))[::2]
    reduced[high <= low] = 0
    return reduced


def codon_classes(sequence: bytes, code: GeneticCode) -> ByteArray:
    """Return flags of the codon at each position: `STOP`, `STOP_REVERSED`, `UNKNOWN`."""
    letters = np.frombuffer(sequence.translate(_LETTERS), dtype=np.uint8)
    codons = _codons(letters[:-2], letters[1:-1], letters[2:])
    return np.frombuffer(codons.tobytes().translate(_classes(code)), dtype=np.uint8)


def _codons(first: ByteArray, second: ByteArray, third: ByteArray) -> ByteArray:
    """Return a number for each codon, from its encoded letters; below 64 if all are A, C, G, T."""
    codons = first << np.uint8(4)
    codons |= second << np.uint8(2)
    codons |= third
    return codons


@lru_cache
def _classes(code: GeneticCode) -> bytes:
    """Return 256 bytes: the flags (stop, stop on other strand, unknown) of each codon number."""
    known = []
    for codon in range(_N_CODONS):
        # Entries 0 to 3 are T, C, A, G: the complement of x is x ^ 2.
        first, second, third = codon >> 4, codon >> 2 & 3, codon & 3
        reverse = (third ^ 2) << 4 | (second ^ 2) << 2 | first ^ 2
        stop = STOP if code[codon] == ord("*") else 0
        known.append(stop | (STOP_REVERSED if code[reverse] == ord("*") else 0))
    return bytes(known) + bytes([UNKNOWN]) * (256 - _N_CODONS)
