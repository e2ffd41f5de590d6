"""Rules for trouble in input files: what is refused, and what is answered with a warning.

Trouble in a record concerns this record alone, as long as most records of its file are valid.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np

from virnucpro.arrays import IntArray
from virnucpro.console import encoded_name, shortened
from virnucpro.errors import InputError, UsageError
from virnucpro.sequences.entries import MAX_RECORD, lacks_bgzf_end
from virnucpro.sequences.records import UNNAMED, Alphabet, Record
from virnucpro.sequences.spec import InputFile

_SHOWN: Final = 3
_LEAST_LETTERS: Final = 100
"""Fewer letters are not judged: a peptide of ten residues may consist of A, C, G and T."""
_LOOKS_LIKE_DNA: Final = 0.95
_LOOKS_LIKE_PROTEIN: Final = 0.6
"""Shares of A, C, G, T, U and N. In natural proteins these letters are a quarter; in a file of
nucleotides, all but the rare IUPAC codes.
"""

_VALID_QUALITIES: Final = bytes(range(ord("!"), ord("~") + 1))
"""Characters of qualities. Source: Cock et al. 2010, doi:10.1093/nar/gkp1137."""
_LONG_READ: Final = 1_000
"""Bases of the shortest read whose qualities are judged."""
_ERROR_OF_QUALITY: Final = 10.0 ** (-np.arange(-33, 256 - 33) / 10)
"""Probability of an error by the character of the quality: Phred, offset 33."""
_NOISY: Final = 0.01
_ERRORS: Final = (0, 0.01, 0.02, 0.05)
_FOUND: Final = {"10 kb": (1, 0.95, 0.88, 0.73), "3 kb": (1, 0.93, 0.78, 0.54)}
"""Share of viruses found at each rate of errors, of those found without: docs/reads.md."""


@dataclass(frozen=True, slots=True)
class InputRules:
    """Choices of the user about input files.

    They do not change the results of accepted records.

    Attributes
    ----------
    strict
        Refuse gaps, invalid letters and too long records, instead of answering the other records.
    any_alphabet
        Accept files that look like the other alphabet, or of which most records are invalid.
    max_record
        Maximum letters of a record; a longer one has no score.

    Raises
    ------
    UsageError
        If `max_record` is not a positive integer.
    """

    strict: bool = False
    any_alphabet: bool = False
    max_record: int = MAX_RECORD

    def __post_init__(self) -> None:
        if type(self.max_record) is not int or self.max_record < 1:
            raise UsageError(
                f"invalid largest length {self.max_record!r} of a record: give a number of letters"
            )


def nucleotide_share(sequences: Sequence[bytes]) -> float | None:
    """Return the share of A, C, G, T, U and N of all letters; None if there are too few letters."""
    n_letters = sum(map(len, sequences))
    if n_letters < _LEAST_LETTERS:
        return None
    others = sum(len(sequence.translate(None, b"ACGTUN")) for sequence in sequences)
    return 1 - others / n_letters


@dataclass(slots=True)
class _File:
    """Counts of one input file."""

    path: str
    records: int = 0
    filled: int = 0
    invalid: list[str] = field(default_factory=list)
    n_invalid: int = 0
    qualities: IntArray = field(default_factory=lambda: np.zeros(256, np.int64))

    def cut_off(self) -> str:
        """Return a warning if the file is BGZF without its last block, else ""."""
        if not lacks_bgzf_end(self.path):
            return ""
        return (
            f"{self.path}: the block that ends a BGZF file is missing, so the file is probably cut "
            "off; compare its size with that of the source"
        )

    def noise(self, *, pieces: bool) -> str:
        """Return a warning if long reads have many errors by their qualities, else "".

        `pieces` is whether records are judged by their pieces, as in `mini`: its losses are known.
        """
        if np.count_nonzero(self.qualities) < 2:  # no long read, or a placeholder
            return ""
        rate = float(self.qualities @ _ERROR_OF_QUALITY / self.qualities.sum())
        if rate <= _NOISY:
            return ""
        effect = "insertions and deletions break open frames"
        if pieces:
            about = "about" if rate <= _ERRORS[-1] else "at most"
            found = (f"{np.interp(rate, _ERRORS, y):.0%} ({at})" for at, y in _FOUND.items())
            effect = (
                f"at this rate mini finds {about} {' to '.join(found)} of the viruses that it "
                "finds without errors"
            )
        return (
            f"{self.path}: mean error rate of long reads by qualities {100 * rate:.2g} %: "
            f"{effect}; see docs/reads.md"
        )


_COUNTS: Final = ("records", "filled", "n_invalid")
_RUN_COUNTS: Final = ("_n_gapped", "_n_gaps", "_n_unnamed", "_n_encoded", "_n_too_long")
"""Counts of `_File` and of `InputNotes` that are sums over the blocks of a file."""


class InputNotes:
    """Counts the trouble of all inputs of a run, and refuses inputs that are not sequences.

    Parameters
    ----------
    alphabet
        Alphabet of the sequences.
    rules
        Choices of the user.
    judged
        Whether files are compared with the other alphabet by their first sequences.
    pieces
        Whether records are judged by their pieces.
    """

    def __init__(
        self, alphabet: Alphabet, rules: InputRules, *, judged: bool, pieces: bool
    ) -> None:
        self._alphabet = alphabet
        self._rules = rules
        self._judged = judged and not rules.any_alphabet
        self._pieces = pieces
        self._files: list[_File] = []
        self._n_gapped = self._n_gaps = self._n_unnamed = self._n_encoded = self._n_too_long = 0
        self._invalid_qualities = self._too_long = ""

    def begin(self, path: str) -> None:
        """Begin the next input."""
        self._files.append(_File(path))

    def add(self, number: int, record: Record) -> None:
        """Count a record with gaps, an odd name or none, invalid letters, or too many letters.

        Parameters
        ----------
        number
            Number of the record in its file, from 1.
        """
        file = self._files[-1]
        if record.gaps:
            self._n_gapped += 1
            self._n_gaps += record.gaps
        if record.name == f"{UNNAMED}{number}":
            self._n_unnamed += 1
        self._n_encoded += encoded_name(record.name) != record.name
        place = f"{file.path}: record {number} ({shortened(record.name)})"
        if record.too_long:
            self._n_too_long += 1
            self._too_long = self._too_long or f"{place}: {record.too_long:,} letters"
        if record.problem:
            file.n_invalid += 1
            if len(file.invalid) < _SHOWN:
                file.invalid.append(f"{place}: {record.problem}")

    def check(
        self, names: Sequence[bytes], sequences: Sequence[bytes], *, judged: bool = True
    ) -> None:
        """Count the next records; compare the first ones of a file with the other alphabet.

        Parameters
        ----------
        judged
            False if these are not the first records of the file.

        Raises
        ------
        InputError
            If the first records look like sequences of the other alphabet.
        """
        file = self._files[-1]
        if judged and self._judged and not file.records and sequences:
            self._refuse_other_alphabet(names[0].decode(), sequences)
        file.records += len(sequences)
        file.filled += sum(map(bool, sequences))

    def accept_qualities(
        self, names: Sequence[bytes], qualities: Sequence[bytes], *, paired: bool
    ) -> bool:
        """Return whether the qualities of the next records may be written to FASTQ files.

        Those of long single reads are counted.
        """
        place = _first_invalid(qualities)
        reads = () if paired else qualities
        if long := b"".join(letters for letters in reads if len(letters) >= _LONG_READ):
            counts = np.bincount(np.frombuffer(long, np.uint8), minlength=256)
            self._files[-1].qualities += counts
        if place is not None and not self._invalid_qualities:
            name = shortened(names[place].decode())
            self._invalid_qualities = f"{self._files[-1].path}: record {name}"
        return place is None

    def as_json(self) -> dict[str, Any]:
        """Return the counts of one block as JSON values, for `add_block`."""
        (file,) = self._files
        chars = np.flatnonzero(file.qualities).tolist()
        return {
            "file": {name: getattr(file, name) for name in _COUNTS},
            "run": {name: getattr(self, name) for name in _RUN_COUNTS},
            "invalid": file.invalid,
            "qualities": [[char, int(file.qualities[char])] for char in chars],
            "first": [self._too_long, self._invalid_qualities],
        }

    def add_block(self, counts: Mapping[str, Any]) -> None:
        """Add the counts of the next block of the current input."""
        file = self._files[-1]
        for owner, part in ((file, counts["file"]), (self, counts["run"])):
            for name, number in part.items():
                setattr(owner, name, getattr(owner, name) + number)
        file.invalid += counts["invalid"][: _SHOWN - len(file.invalid)]
        for char, number in counts["qualities"]:
            file.qualities[char] += number
        too_long, invalid_qualities = counts["first"]
        self._too_long = self._too_long or too_long
        self._invalid_qualities = self._invalid_qualities or invalid_qualities

    def end(self) -> None:
        """End the current input.

        Raises
        ------
        InputError
            If more than half of its records that are not empty are invalid.
        """
        file = self._files[-1]
        if 2 * file.n_invalid > file.filled and not self._rules.any_alphabet:
            raise InputError(
                f"{file.invalid[0]} ({file.n_invalid:,} of {file.filled:,} records have such "
                "letters)"
            )

    def _refuse_other_alphabet(self, name: str, sequences: Sequence[bytes]) -> None:
        share = nucleotide_share(sequences)
        if share is None:
            return
        wanted, found = self._alphabet.name.lower(), None
        if self._alphabet is Alphabet.PROTEIN and share >= _LOOKS_LIKE_DNA:
            found, advice = "nucleotides", "give proteins or an encoder for nucleotides"
        if self._alphabet is Alphabet.NUCLEOTIDE and share < _LOOKS_LIKE_PROTEIN:
            found, advice = "proteins", "give nucleotides or an encoder for proteins"
        if found is not None:
            raise InputError(
                f"{self._files[-1].path}: record 1 ({shortened(name)}) and the next ones look like "
                f"{found} ({share:.0%} of their letters are A, C, G, T, U or N), but the encoder "
                f"reads {wanted} sequences; {advice}, or use --force-alphabet"
            )

    def warnings(
        self, inputs: Sequence[InputFile], n_repeated: int, repeated: str
    ) -> Iterator[str]:
        """Yield one warning for each kind of trouble that was found.

        Parameters
        ----------
        inputs
            Digests of all inputs.
        n_repeated, repeated
            Number of records with the name of an earlier record, and one of these names.
        """
        kind = self._alphabet.name.lower()
        if empty := [file.path for file in self._files if not file.records]:
            where = f"{len(empty):,} ({_listed(empty)})"
            yield f"inputs without sequences: {where}. Check the step that wrote them"
        if n_invalid := sum(file.n_invalid for file in self._files):
            shown = [text.partition(";")[0] for file in self._files for text in file.invalid]
            yield (
                f"sequences with letters that are not {kind} letters: {n_invalid:,}. They have the "
                f"status invalid_letters and no score; --strict refuses them. "
                f"{'; '.join(shown[:_SHOWN])}{'; ...' * (n_invalid > len(shown[:_SHOWN]))}"
            )
        if self._n_too_long:
            yield (
                f"sequences of more than {self._rules.max_record:,} letters: {self._n_too_long:,} "
                f"(first: {self._too_long}). They have the status too_long and no score: split "
                "them, or give a larger --max-record (it needs several times as many bytes of "
                "memory)"
            )
        if self._n_gapped:
            yield (
                f"gaps (- and .) were removed: {self._n_gaps:,} from {self._n_gapped:,} sequences. "
                "Lengths and positions in all outputs are those without gaps"
            )
        if self._n_unnamed:
            yield (
                f"sequences without a name: {self._n_unnamed:,}. They are called {UNNAMED}N, where "
                "N is the number of the record in its file"
            )
        if self._n_encoded:
            yield (
                "sequence names with control characters, or that begin like a formula or a BED "
                f"header: {self._n_encoded:,}. These characters are percent-encoded in all "
                "outputs, for example %1B for the escape character, %3D for = at the start, and "
                "%251B for the letters %1B"
            )
        if self._invalid_qualities:
            yield (
                "qualities with characters outside ! to ~, which FASTQ does not allow (first: "
                f"{self._invalid_qualities}). The sequences are written as FASTA"
            )
        of_files = ((file.cut_off(), file.noise(pieces=self._pieces)) for file in self._files)
        yield from filter(None, chain.from_iterable(of_files))
        if n_repeated:
            yield (
                f"sequences with the name of an earlier sequence: {n_repeated:,} (first: "
                f"{shortened(repeated)}). Tables have the order of the input. In the outputs of "
                "predict, file and record distinguish them, and their ids begin with the sample"
            )
        if same := _repeated(inputs):
            yield (
                f"inputs with the content of an earlier input: {len(same):,} ({_listed(same)}). "
                "Their sequences are answered again"
            )


def _repeated(inputs: Sequence[InputFile]) -> list[str]:
    """Return the inputs that have the content of an earlier one, with the path of that one."""
    first: dict[str, str] = {}
    same: list[str] = []
    for file in inputs:
        known = first.get(file.sha256)
        if known is None:
            first[file.sha256] = file.path
        elif file.n_bases:
            same.append(f"{file.path}, as {known}" if known != file.path else file.path)
    return same


def _listed(paths: Sequence[str]) -> str:
    return "; ".join(paths[:_SHOWN]) + "; ..." * (len(paths) > _SHOWN)


def _first_invalid(qualities: Sequence[bytes]) -> int | None:
    """Return the position of the first qualities with other characters than ``!`` to ``~``.

    Returns None if all are valid.
    """
    if not b"".join(qualities).translate(None, _VALID_QUALITIES):
        return None
    return next(
        n for n, quality in enumerate(qualities) if quality.translate(None, _VALID_QUALITIES)
    )
