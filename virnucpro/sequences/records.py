r"""Read the records of an input file: names unchanged, sequences normalised.

===============================  ==================================================================
in the file                      result
===============================  ==================================================================
lower case                       upper case
U (nucleotides)                  T
IUPAC letters                    kept
``*`` at the end of a protein    removed: it marks the end of the gene
gaps (``-`` and ``.``)           removed and counted; strict: `InputError`
any other letter, ``*``          an invalid record; strict: `InputError`
white space, blank lines         removed
``\r\n``, and ``\r`` in FASTA      line ends
a byte order mark                removed
no final line end                accepted
repeated names                   kept
an empty record                  kept, of length 0
more letters than the maximum    a record without its letters; strict: `InputError`
a header without a name          the name is ``unnamed_N`` for record N of the file, from 1
a header that is not UTF-8       decoded as Latin-1
qualities of FASTQ               kept; those of removed letters are removed
an empty file                    no records
SAM, BAM, CRAM                   reads as sequenced: see `virnucpro.sequences.alignments`
neither ``>`` nor ``@`` first    `InputError`
===============================  ==================================================================
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import chain, compress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from virnucpro.console import are_plain, shortened
from virnucpro.errors import InputError
from virnucpro.sequences.alignments import is_alignment, split_alignments
from virnucpro.sequences.entries import (
    LINES,
    MAX_RECORD,
    WHITE_SPACE,
    BlockStream,
    Entries,
    Entry,
    Input,
    OpenInput,
    read_blocks,
    records_before,
    split_fasta,
    split_fastq,
    too_long,
)

T = TypeVar("T")

_WITHOUT_SPACE = str.maketrans("", "", " \t\n\v\f")


def line_of_letter(path: Input, record: int, letter: int) -> int | None:
    """Return the line that contains a letter of a record, from 1; None if `path` is not a file.

    Parameters
    ----------
    path
        A FASTA or FASTQ file, plain or compressed.
    record, letter
        Number of the record in the file, and of the letter in the record without white space, both
        from 1.

    Raises
    ------
    InputError
        If the file cannot be read again.
    """
    # a pipe, standard input or an open stream can be read only once
    name = str(path)
    if type(path) is OpenInput or not Path(name).is_file():
        return None
    blocks = io.BufferedReader(BlockStream(read_blocks(name)))
    # Universal line ends: \n, \r\n and \r, as in the reader of records.
    with io.TextIOWrapper(blocks, "latin-1") as stream:
        found = 0
        for number, line in enumerate(stream, 1):
            text = line if found else line.removeprefix(_BYTE_ORDER_MARK.decode("latin-1")).lstrip()
            if not found and text.startswith("@"):
                return number + LINES * (record - 1) + 1
            if text.startswith(">"):
                found += 1
            elif found == record:
                letter -= len(text.translate(_WITHOUT_SPACE))
                if letter <= 0:
                    return number
    return None


UNNAMED: Final = "unnamed_"
"""Start of the name of a record without a name; its number in the file follows."""

_GAPS = b"-."
_KEPT = bytes(letter not in WHITE_SPACE + _GAPS for letter in range(256))
"""A ``bytes.translate`` table: 0 for the letters that are removed, 1 for any other."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Alphabet(Enum):
    """Allowed letters of nucleotide and of protein sequences.

    Source: IUPAC-IUB codes for nucleotides (Cornish-Bowden 1985, without the gap), and for amino
    acids with B, J, Z, X for uncertain amino acids, O and U for pyrrolysine and selenocysteine.
    """

    NUCLEOTIDE = "ACGTRYKMSWBDHVN"
    PROTEIN = "ACDEFGHIKLMNPQRSTVWYBJOUXZ"


class Record(NamedTuple):
    """One entry of an input file.

    Attributes
    ----------
    name
        The header up to the first white space, as given; may be repeated.
    sequence
        Upper-case letters of the alphabet, T instead of U in nucleotides; may be empty. In an
        invalid record, other letters and ``*`` are kept, and any other byte is ``?``.
    gaps
        Number of removed gaps.
    problem
        The reason why the record is invalid, with its first invalid letter; "" for a valid record.
    qualities
        Qualities as in the FASTQ file, one for each letter of `sequence`; None in FASTA.
    mate
        Letters of the first mate, if the record is a pair; None for a single sequence.
    too_long
        Letters of a record that has more than the maximum, gaps included: it has no sequence. 0 for
        any other record.
    """

    name: str
    sequence: bytes
    gaps: int = 0
    problem: str = ""
    qualities: bytes | None = None
    mate: int | None = None
    too_long: int = 0


class Records(NamedTuple):
    """Several records in their order, in columns; see `Record`.

    They are valid and without gaps. Their names are ASCII, as given, and equal in all outputs.

    Attributes
    ----------
    names, sequences, qualities
        One for each record.
    mates
        Letters of the first mates, if the records are pairs.
    """

    names: list[bytes]
    sequences: list[bytes]
    qualities: list[bytes]
    mates: list[int]

    def part(self, first: int, last: int) -> "Records":
        """Return the records ``first:last``."""
        own = slice(first, last)
        return Records(self.names[own], self.sequences[own], self.qualities[own], self.mates[own])


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
_SPELLING_OF_LINES = {
    alphabet: table[:10] + b"\n" + table[11:] for alphabet, table in _SPELLING.items()
}
"""`_SPELLING` of joined lines: line feeds are kept."""
_INVALID_SPELLING = bytes(
    letter if letter == ord("*") or bytes([letter]).isalpha() else ord("?")
    for letter in bytes(range(256)).upper()
)
"""Letters of an invalid record, so that no output contains control characters or a ``>``."""


def read_records(
    path: Input,
    alphabet: Alphabet = Alphabet.NUCLEOTIDE,
    *,
    strict: bool = True,
    longest: int = MAX_RECORD,
) -> Iterator[Record]:
    """Read the records of a file one by one; see `read_groups`."""
    return one_by_one(read_groups(path, alphabet, strict=strict, longest=longest))


def one_by_one(groups: Iterable[T | Records]) -> Iterator[T | Record]:
    """Yield each record of the groups; other members are yielded as they are."""
    for group in groups:
        if isinstance(group, Records):
            mates: Sequence[int | None] = group.mates or [None] * len(group.names)
            for name, sequence, qualities, mate in zip(*group[:3], mates, strict=True):
                yield Record(name.decode(), sequence, qualities=qualities, mate=mate)
        else:
            yield group


def read_groups(
    path: Input, alphabet: Alphabet, *, strict: bool, longest: int
) -> Iterator[Record | Records]:
    """Read the records of a FASTA, FASTQ, SAM, BAM or CRAM file, in the order of the file.

    Memory is limited by the longest record. Format and compression (gzip, bzip2, xz, zstandard)
    are detected by content.

    Parameters
    ----------
    path
        A file, a named pipe, or ``-`` for standard input.
    alphabet
        Allowed letters.
    strict
        Refuse gaps, invalid letters and too long records; False: remove gaps, mark records with
        other letters as invalid, and do not keep the letters of too long records.
    longest
        Maximum letters of a record, gaps included.

    Yields
    ------
    Record, Records
        Names, normalised sequences and qualities; see the table at the top of this module.

    Raises
    ------
    InputError
        When the file cannot be read or decompressed, or is neither FASTA nor FASTQ. With `strict`,
        also when a record is too long, or contains a gap or a letter outside the alphabet.
    """
    number = records_before(path)
    for found in _entries(path, longest):
        if isinstance(found, Entry):
            entries: Iterable[Entry] = (found,)
        elif records := _plain_records(found, alphabet, longest):
            number += len(records.names)
            yield records
            continue
        else:
            entries = map(Entry, *found)
        for entry in entries:
            number += 1
            yield _record(path, number, entry, alphabet, strict=strict, longest=longest)


def _plain_records(entries: Entries, alphabet: Alphabet, longest: int) -> Records | None:
    """Return many records at once; None unless all are as in `Records` and short enough."""
    names = [word for header in entries.headers for word in header.split(None, 1)[:1]]
    lines = b"\n".join((b"", *names))
    letters = b"\n".join(entries.bodies).translate(_SPELLING_OF_LINES[alphabet])
    sequences = letters.split(b"\n")
    if (
        len(names) < len(entries.headers)
        or not are_plain(lines)
        or b"\n" + UNNAMED.encode() in lines
        or b"\0" in letters
        or max(map(len, sequences)) > longest
    ):
        return None
    return Records(names, sequences, entries.qualities, [])


def _record(
    path: Input, number: int, entry: Entry, alphabet: Alphabet, *, strict: bool, longest: int
) -> Record:
    header, body, qualities, dropped = entry
    letters = _without_final_stop(body) if alphabet is Alphabet.PROTEIN else body
    sequence = letters.translate(_SPELLING[alphabet], WHITE_SPACE)
    name = _name(header) or f"{UNNAMED}{number}"
    if b"\0" in header:
        raise InputError(
            f"{path}: record {number} ({shortened(name)}): the header contains a NUL byte; "
            "give a FASTA or FASTQ file"
        )
    if dropped or len(sequence) > longest:
        if strict:
            raise too_long(path, f"record {number} ({shortened(name)})", longest)
        kept = None if qualities is None else b""
        return Record(name, b"", qualities=kept, too_long=len(sequence) + dropped)
    if b"\0" not in sequence:
        if qualities is None:
            return Record(name, sequence)
        return Record(name, sequence, 0, "", _aligned(qualities, body, len(sequence)))
    if strict:
        letter = _first_invalid(body, alphabet)
        line = line_of_letter(path, number, letter)
        place = f"letter {letter:,}" if line is None else f"line {line:,}, letter {letter:,}"
        raise InputError(
            f"{path}: record {number} ({shortened(name)}): {_problem(body, alphabet, place)}"
        )
    record = _repaired(name, body, alphabet)
    if qualities is not None:
        kept = _aligned(qualities, body, len(record.sequence))
        record = record._replace(qualities=kept)
    return record


def _aligned(qualities: bytes, body: bytes, length: int) -> bytes:
    """Return the qualities of the `length` letters of a body that are kept."""
    if len(qualities) == length:
        return qualities
    return bytes(compress(qualities, body.translate(_KEPT)))[:length]


def _repaired(name: str, body: bytes, alphabet: Alphabet) -> Record:
    """Return a record without gaps; it is invalid if it has other letters outside the alphabet."""
    whole = body.translate(None, WHITE_SPACE)
    letters = whole.translate(None, _GAPS)
    gaps = len(whole) - len(letters)
    if alphabet is Alphabet.PROTEIN:
        letters = _without_final_stop(letters)
    sequence = letters.translate(_SPELLING[alphabet])
    if b"\0" not in sequence:
        return Record(name, sequence, gaps)
    place = f"letter {_first_invalid(letters, alphabet):,}"
    problem = _problem(letters, alphabet, place)
    return Record(name, letters.translate(_INVALID_SPELLING), gaps, problem)


def _entries(path: Input, longest: int) -> Iterator[Entry | Entries]:
    """Yield the entries of a file.

    The first bytes of the file select alignments, FASTA without qualities, or FASTQ.
    """
    blocks = read_blocks(path)
    start = content_start(blocks)
    if is_alignment(start, path):
        yield from split_alignments(path)
        return
    content = chain([start], blocks)
    if start.startswith(b">"):
        yield from split_fasta(content, path, longest)
    elif start.startswith(b"@"):
        yield from split_fastq(content, path, longest)
    else:
        require_sequences(start, path)


def content_start(blocks: Iterator[bytes]) -> bytes:
    """Return the first blocks, without a byte order mark and white space at the start."""
    start = b""
    for block in blocks:
        start = (start + block).removeprefix(_BYTE_ORDER_MARK).lstrip(WHITE_SPACE)
        if len(start) > len(_BYTE_ORDER_MARK):
            break
    return start


def require_sequences(start: bytes, path: Input) -> None:
    """Raise InputError if the content of a file is neither empty, nor FASTA, nor FASTQ."""
    if start and not start.startswith((b">", b"@")):
        raise InputError(
            f"{path}: neither FASTA nor FASTQ: the file starts with {start[:20]!r} instead of > or "
            "@; give a file of sequences, or SAM, BAM or CRAM"
        )


def _without_final_stop(body: bytes) -> bytes:
    return body.rstrip(WHITE_SPACE).removesuffix(b"*")


def _name(header: bytes) -> str:
    words = header.split(maxsplit=1)
    if not words:
        return ""
    try:
        return words[0].decode()
    except UnicodeDecodeError:
        return words[0].decode("latin-1")


def _first_invalid(body: bytes, alphabet: Alphabet) -> int:
    """Return the number of the first invalid letter of a body, from 1, without white space."""
    return body.translate(_SPELLING[alphabet], WHITE_SPACE).index(b"\0") + 1


def _letter_at(text: bytes, place: int) -> str:
    """Return the letter of UTF-8 text, or else of Latin-1, that begins at a byte."""
    for end in range(place + 1, place + 5):
        try:
            return text[place:end].decode()
        except UnicodeDecodeError:
            continue
    return chr(text[place])


def _problem(body: bytes, alphabet: Alphabet, place: str) -> str:
    """Return the first invalid letter of a body, its place, and advice."""
    whole = body.translate(None, WHITE_SPACE)
    place_of_letter = _first_invalid(body, alphabet) - 1
    letter, kind = _letter_at(whole, place_of_letter), alphabet.name.lower()
    if letter in "-.*":
        advice = "remove gaps and stops from the sequence"
    elif alphabet is Alphabet.NUCLEOTIDE and letter.upper() in Alphabet.PROTEIN.value:
        advice = "this looks like a protein; give its nucleotide sequence"
    else:
        advice = f"give a file of {kind} sequences"
    return f"{letter!r} ({place}) is not a {kind} letter; {advice}"
