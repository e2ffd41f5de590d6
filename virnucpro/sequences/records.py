r"""Read the records of an input file: names unchanged, sequences normalised.

===============================  ==================================================================
in the file                      result
===============================  ==================================================================
lower case                       upper case
U (nucleotides)                  T
IUPAC letters                    kept
``*`` at the end of a protein    removed: it marks the end of the gene
any other letter, ``-``, ``*``   `InputError` with file, record and letter
white space, blank lines         removed
``\r\n``, and ``\r`` in FASTA      line ends
a byte order mark                removed
no final line end                accepted
repeated names                   kept
an empty record                  kept, of length 0
a header without a name          kept, the name is empty
a header that is not UTF-8       decoded as Latin-1
an empty file                    no records
neither ``>`` nor ``@`` first    `InputError`
===============================  ==================================================================
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import chain

from virnucpro.console import shortened
from virnucpro.errors import InputError
from virnucpro.sequences.entries import STANDARD_INPUT, read_blocks, split_fasta, split_fastq

__all__ = ["STANDARD_INPUT", "Alphabet", "Record", "read_records"]

_SPACE = b" \t\n\r\v\f"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Alphabet(Enum):
    """Allowed letters of nucleotide and of protein sequences.

    Source: IUPAC-IUB codes for nucleotides (Cornish-Bowden 1985, without the gap), and for amino
    acids with B, J, Z, X for uncertain amino acids, O and U for pyrrolysine and selenocysteine.
    """

    NUCLEOTIDE = "ACGTRYKMSWBDHVN"
    PROTEIN = "ACDEFGHIKLMNPQRSTVWYBJOUXZ"


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of an input file.

    Attributes
    ----------
    name
        The header up to the first white space, as given; may be empty or repeated.
    sequence
        Upper-case letters of the alphabet, T instead of U in nucleotides; may be empty.
    """

    name: str
    sequence: bytes


def _spelling(alphabet: Alphabet) -> bytes:
    """Return a ``bytes.translate`` table that normalises letters; invalid letters become NUL."""
    letters = alphabet.value.encode()
    table = bytearray(256)
    for letter in letters:
        table[letter] = table[letter | 0x20] = letter
    if alphabet is Alphabet.NUCLEOTIDE:
        table[ord("U")] = table[ord("u")] = ord("T")
    return bytes(table)


_SPELLING = {alphabet: _spelling(alphabet) for alphabet in Alphabet}


def read_records(path: str, alphabet: Alphabet = Alphabet.NUCLEOTIDE) -> Iterator[Record]:
    """Read the records of a FASTA or FASTQ file, plain or compressed, in the order of the file.

    Memory is limited by the longest record. Format and compression (gzip, bzip2, xz, zstandard)
    are detected by content.

    Parameters
    ----------
    path
        A file, a named pipe, or ``-`` for standard input.
    alphabet
        Allowed letters.

    Yields
    ------
    Record
        The name and the normalised sequence; see the table at the top of this module.

    Raises
    ------
    InputError
        When the file cannot be read or decompressed, is neither FASTA nor FASTQ, or a record
        contains a letter outside the alphabet.
    """
    spelling = _SPELLING[alphabet]
    for number, (header, body) in enumerate(_entries(path), 1):
        letters = _without_final_stop(body) if alphabet is Alphabet.PROTEIN else body
        sequence = letters.translate(spelling, _SPACE)
        name = _name(header)
        if b"\0" in sequence:
            raise _foreign_letter(path, number, name, body, alphabet)
        if b"\0" in header:
            raise InputError(
                f"{path}: record {number} ({shortened(name)}): the header contains a NUL byte; "
                "give a FASTA or FASTQ file"
            )
        yield Record(name, sequence)


def _entries(path: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield header and body of each entry of a file; its first byte selects FASTA or FASTQ."""
    blocks = read_blocks(path)
    start = b""
    for block in blocks:
        start = (start + block).removeprefix(_BYTE_ORDER_MARK).lstrip(_SPACE)
        if len(start) > len(_BYTE_ORDER_MARK):
            break
    content = chain([start], blocks)
    if start.startswith(b">"):
        yield from split_fasta(content, path)
    elif start.startswith(b"@"):
        yield from split_fastq(content, path)
    elif start:
        raise InputError(
            f"{path}: neither FASTA nor FASTQ: the file starts with {start[:20]!r} instead of > or "
            "@; give a file of sequences"
        )


def _without_final_stop(body: bytes) -> bytes:
    return body.rstrip(_SPACE).removesuffix(b"*")


def _name(header: bytes) -> str:
    words = header.split(maxsplit=1)
    if not words:
        return ""
    try:
        return words[0].decode()
    except UnicodeDecodeError:
        return words[0].decode("latin-1")


def _foreign_letter(
    path: str, number: int, name: str, body: bytes, alphabet: Alphabet
) -> InputError:
    spelled = body.translate(_SPELLING[alphabet])
    place = next(i for i, letter in enumerate(spelled) if not letter and body[i] not in _SPACE)
    letter, kind = chr(body[place]), alphabet.name.lower()
    if letter in "-.*":
        advice = "remove gaps and stops from the sequence"
    elif alphabet is Alphabet.NUCLEOTIDE and letter.upper() in Alphabet.PROTEIN.value:
        advice = "this looks like a protein; give its nucleotide sequence"
    else:
        advice = f"give a file of {kind} sequences"
    return InputError(
        f"{path}: record {number} ({shortened(name)}): {letter!r} is not a {kind} letter; {advice}"
    )
