"""Index parameters, input fingerprints and the status of records."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, Literal

from virnucpro.errors import UsageError
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.translation import genetic_code
from virnucpro.sequences.windows import TILINGS, WINDOWS, Tiling, is_window

SCHEMA_VERSION = 4
"""Version of the index files; it changes with their layout or meaning."""

Kind = Literal["frames", "stretches", "windows", "whole"]

Pairs = Literal["files", "interleaved"]
"""Where the mates of paired reads are: in two files, or in turn in one file."""

KIND_OF_ITEMS: Final[dict[str, Kind]] = {
    "open_frames": "frames",
    "longest_stretch": "stretches",
    "window": "windows",
}
"""`IndexSpec.kind` for each kind of items of a bundle."""


class RecordStatus(IntEnum):
    """Status of a record: SCORABLE if it has items, else the reason why it has no item.

    New codes are added at the end: indexes contain them.
    """

    SCORABLE = 0
    TOO_SHORT = 1
    """The record is shorter than the least length, or has no complete codon; in an index of whole
    sequences, it has no letter.
    """
    AMBIGUOUS_BASES = 2
    """No codon of the record consists of A, C, G and T only."""
    NO_OPEN_FRAME = 3
    """Every frame of every window has a stop codon, or no window has a long stop-free stretch."""
    INVALID_LETTERS = 4
    """The record has letters outside the alphabet."""
    TOO_LONG = 5
    """The record has more than the maximum of letters; the index does not contain them."""


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """Rules that divide records into items.

    Attributes
    ----------
    kind
        ``frames``: nucleotides are divided into windows; every open (stop-free) frame is an item.
        ``stretches``: nucleotides are divided into windows; each window's longest stop-free stretch
        of at least 30 codons in six frames is an item, see `virnucpro.sequences.stretches`.
        ``windows``: nucleotides are divided into windows; every window is an item as a whole, if
        it has at least 60 bases of which at least 90 % are A, C, G or T. In a record without such a
        window, 60 bases and half of the window suffice.
        ``whole``: every record that is not empty is one item.
    alphabet
        Allowed letters.
    window, tiling, genetic_code
        Not for ``whole``; see `virnucpro.sequences.windows` and `genetic_code`.
    fallback
        Only for ``frames`` and ``stretches``: a window without such an item is an item as in
        ``windows``.
    min_length
        Shorter records are not divided. Not for ``whole``.
    piece
        Maximum bases of a piece: a record with an item is also cut into pieces, see
        `virnucpro.sequences.windows`. None for no pieces. Not for ``whole``.
    pairs
        Where the mates of paired reads are; two mates are one record, see
        `virnucpro.sequences.mates`. None for single sequences. Not for ``whole``.

    Raises
    ------
    UsageError
        When window, tiling, genetic code, least length or piece is invalid.
    """

    kind: Kind
    alphabet: Alphabet
    window: int | None = None
    tiling: Tiling | None = None
    genetic_code: int | None = None
    fallback: bool = False
    min_length: int = 0
    piece: int | None = None
    pairs: Pairs | None = None

    def __post_init__(self) -> None:
        if self.kind == "whole":
            return
        if not is_window(self.window):
            raise UsageError(
                f"invalid window {self.window!r}: give a whole number of bases from {WINDOWS[0]} "
                f"to {WINDOWS[-1]:,}"
            )
        if self.tiling not in TILINGS:
            raise UsageError(f"unknown tiling {self.tiling!r}: choose one of {', '.join(TILINGS)}")
        genetic_code(self.genetic_code or 0)
        if type(self.min_length) is not int or self.min_length < 0:
            raise UsageError(
                f"invalid least length {self.min_length!r}: give a whole number of bases, 0 or more"
            )
        if self.piece is not None and (type(self.piece) is not int or self.piece < 1):
            raise UsageError(f"invalid piece {self.piece!r}: give a whole number of bases")

    def as_json(self) -> dict[str, Any]:
        """Return the specification as a dict of JSON values."""
        return {**asdict(self), "alphabet": self.alphabet.name.lower()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "IndexSpec":
        """Return the specification from the values that `as_json` returned."""
        return cls(**{**values, "alphabet": Alphabet[values["alphabet"].upper()]})


def default_min_length(spec: IndexSpec, callable_bases: int | None) -> int:
    """Return the default least length of a record, in bases.

    `callable_bases` are the fewest bases that the calibration of the bundle can call. Without a
    calibration, it is a third of a window, rounded up. The published tool scores every record, so
    that there is no limit with its tiling.
    """
    if spec.window is None or spec.tiling == "published":
        return 0
    return -(-spec.window // 3) if callable_bases is None else callable_bases


@dataclass(frozen=True, slots=True)
class InputFile:
    """One input file and its content.

    Attributes
    ----------
    path
        Path as given by the user.
    sha256
        Digest of the names and the normalised sequences, so that compression, line lengths, case
        and comments have no effect; see `ContentDigest`.
    n_records, n_bases
        Number of records that begin in the file (none in a file of second mates), and of bases or
        residues.
    """

    path: str
    sha256: str
    n_records: int
    n_bases: int


class ContentDigest:
    """Computes digest and size of an input file, record by record; `result` returns both.

    For each record, the digest covers the name in UTF-8, a line end, the sequence, a line end. A
    name contains no white space and a sequence only letters, so different records have different
    digests. Of a too long record, which has no results, the number of letters is covered.

    Attributes
    ----------
    n_records, n_bases
        Numbers of records and letters that have been added.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._hash = hashlib.sha256()
        self.n_records = 0
        self.n_bases = 0

    def add(
        self,
        names: Sequence[bytes],
        sequences: Sequence[bytes],
        too_long: Mapping[int, int] = MappingProxyType({}),
        *,
        second: bool = False,
    ) -> None:
        """Add names and sequences of the next records, or of their second mates, to the digest.

        `too_long` are the letters of too long records, by their positions.
        """
        lines = [b""] * (2 * len(names) + 1)
        lines[:-1:2], lines[1::2] = names, sequences
        for place, n_letters in too_long.items():
            lines[2 * place + 1] = b"%d letters" % n_letters
        self._hash.update(b"\n".join(lines))
        self.n_records += 0 if second else len(sequences)
        self.n_bases += sum(map(len, sequences)) + sum(too_long.values())

    def result(self) -> InputFile:
        """Return path, digest and size of the input, with all records added so far."""
        return InputFile(self.path, self._hash.hexdigest(), self.n_records, self.n_bases)


def fingerprint(inputs: Iterable[InputFile], spec: IndexSpec) -> str:
    """Return a digest of the inputs' content, their order, the specification and the index version.

    The division of records into files has an effect; paths, times and compression have none.

    Returns
    -------
    str
        SHA-256, in hexadecimal digits.
    """
    content = {
        "schema": SCHEMA_VERSION,
        "spec": spec.as_json(),
        "inputs": [[file.sha256, file.n_records, file.n_bases] for file in inputs],
    }
    return json_digest(content)


def json_digest(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 of JSON content in hexadecimal digits; the order of keys has no effect."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
