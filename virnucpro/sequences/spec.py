"""What a sequence index is made by, and what it is made of."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any, Literal

from virnucpro.errors import UsageError
from virnucpro.sequences.genetic_codes import genetic_code
from virnucpro.sequences.records import Alphabet
from virnucpro.sequences.windows import TILINGS, WINDOWS, Tiling, is_window

__all__ = [
    "SCHEMA_VERSION",
    "ContentDigest",
    "IndexSpec",
    "InputFile",
    "RecordStatus",
    "fingerprint",
]

SCHEMA_VERSION = 1
"""Of the index's files; another number is another layout or another meaning."""


class RecordStatus(IntEnum):
    """Whether a record has items, and if not, why."""

    SCORABLE = 0
    TOO_SHORT = 1
    """No whole codon; in an index of whole sequences, no letter."""
    AMBIGUOUS_BASES = 2
    """No codon of A, C, G, T alone."""
    NO_OPEN_FRAME = 3
    """A stop in every frame of every window."""


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """How records become items.

    Attributes
    ----------
    kind
        ``frames``: nucleotides are cut into windows, and every open frame is an item.
        ``whole``: every record that is not empty is one item.
    alphabet
        Which letters are legal.
    window, tiling, genetic_code
        For ``frames`` alone; see `virnucpro.sequences.windows` and `genetic_code`.

    Raises
    ------
    UsageError
        When the parts do not go together, or one of them is unknown.
    """

    kind: Literal["frames", "whole"]
    alphabet: Alphabet
    window: int | None = None
    tiling: Tiling | None = None
    genetic_code: int | None = None

    def __post_init__(self) -> None:
        if self.kind == "frames":
            self._check_frames()
        elif self.kind != "whole":
            raise UsageError(f"unknown kind of index {self.kind!r}: choose frames or whole")
        elif (self.window, self.tiling, self.genetic_code) != (None, None, None):
            raise UsageError("whole sequences have no windows: give no window, tiling or code")

    def _check_frames(self) -> None:
        if self.alphabet is not Alphabet.NUCLEOTIDE:
            raise UsageError("only nucleotides have frames: give the alphabet NUCLEOTIDE")
        if not is_window(self.window):
            raise UsageError(
                f"no window can have {self.window!r} bases: give a whole number from {WINDOWS[0]} "
                f"to {WINDOWS[-1]:,}"
            )
        if self.tiling not in TILINGS:
            raise UsageError(f"unknown tiling {self.tiling!r}: choose one of {', '.join(TILINGS)}")
        genetic_code(self.genetic_code or 0)

    def as_json(self) -> dict[str, Any]:
        """Put the specification into plain values."""
        return {**asdict(self), "alphabet": self.alphabet.name.lower()}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "IndexSpec":
        """Read what `as_json` made.

        Raises
        ------
        KeyError, TypeError, UsageError
            When it was something else.
        """
        return cls(**{**values, "alphabet": Alphabet[values["alphabet"].upper()]})


@dataclass(frozen=True, slots=True)
class InputFile:
    """One input, by its content.

    Attributes
    ----------
    path
        As it was given.
    sha256
        Of the names and the sequences in one spelling, so that compression, line lengths, case and
        comments do not matter; see `ContentDigest`.
    n_records, n_bases
        Bases, or residues of proteins.
    """

    path: str
    sha256: str
    n_records: int
    n_bases: int


class ContentDigest:
    """Takes up the records of one input file, and sums them up as an `InputFile`.

    Digested is, record after record: the name in UTF-8, a line end, the sequence, a line end. A
    name holds no white space and a sequence is of letters alone, so that no two lists of records
    are digested alike.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._hash = hashlib.sha256()
        self._records = 0
        self._bases = 0

    def add(self, names: Sequence[bytes], sequences: Sequence[bytes]) -> None:
        """Take up some records."""
        lines = [line for pair in zip(names, sequences, strict=True) for line in pair]
        lines.append(b"")
        self._hash.update(b"\n".join(lines))
        self._records += len(sequences)
        self._bases += sum(map(len, sequences))

    def result(self) -> InputFile:
        """Sum up what was taken."""
        return InputFile(self._path, self._hash.hexdigest(), self._records, self._bases)


def fingerprint(inputs: Iterable[InputFile], spec: IndexSpec) -> str:
    """Sum up all that determines an index: the inputs' content in their order, and how it is cut.

    Paths, times and compression are not part of it; how the records are divided into files is.

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
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
