"""FASTA or FASTQ files of viruses and proviruses, and of the records with another call."""

import gzip
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import IO, Final, NamedTuple, Protocol, Self

import numpy as np

from virnucpro.arrays import BoolArray, ByteArray, IntArray, RealArray, slices
from virnucpro.classifier.consensus import Call, Status
from virnucpro.classifier.regions import Regions
from virnucpro.console import as_word, sample_names
from virnucpro.durable import write_file
from virnucpro.sequences.builder import repeated_values
from virnucpro.sequences.index import SequenceIndex
from virnucpro.sequences.mates import JOINT
from virnucpro.sequences.translation import reverse_complement
from virnucpro.tables.cells import decimals, integers, named
from virnucpro.tables.source import TOPOLOGIES, RunScores
from virnucpro.tables.write import blocks

_LINE: Final = 80
_LETTERS_AT_ONCE: Final = _LINE << 13
_FEW: Final = 10 * _LINE
_GZIP_LEVEL: Final = 6
_STRETCH: Final = re.compile(r"\|provirus_\d+_\d+$")
_MOST_ADDED: Final = 2
"""Number of parts that an id may have beside the name: sample, record."""


class _Pieces(NamedTuple):
    """Pieces of records: arrays ``(n,)`` of record, start and end (bases, half open).

    `names` returns the names of the pieces with given numbers, `fields` the first fields of their
    headers. `second` are the pieces that are second mates: they are written as they were read.
    """

    names: Callable[[IntArray], list[str]]
    record: IntArray
    start: IntArray
    end: IntArray
    fields: Callable[[IntArray], dict[str, Sequence[str]]]
    second: BoolArray | None = None


class NamedRecords(Protocol):
    """Interface of an index for `UniqueIds`, whose methods are those of `SequenceIndex`."""

    n_records: int

    @property
    def input_names(self) -> list[str]:
        """Return the names of the input files."""

    def record_names(self, records: IntArray) -> list[str]:
        """Return the names of records."""

    def record_origins(self, records: IntArray) -> tuple[IntArray, IntArray]:
        """Return input file and number of records."""


def hashed_ids(ids: Sequence[str]) -> tuple[IntArray, dict[int, int]]:
    """Return the hash of each id, and of the start of those that end as the id of a stretch.

    Equal in all processes; the keys are the positions in `ids`.
    """
    ends = enumerate(map(_STRETCH.search, ids))
    starts = {place: _hash(end.string[: end.start()]) for place, end in ends if end}
    return np.fromiter(map(_hash, ids), np.int64, len(ids)), starts


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


class UniqueIds:
    """Which parts the ids of the records of a run have: they do not depend on calls.

    The id of a record is its name; if another record has this name, ``sample|name``, where the
    sample is one of `sample_names`; if that is no unique id either, ``sample|name|record`` with the
    number of the record in its file. An id that a stretch of another record can have is not unique.

    Parameters
    ----------
    run
        Names of all records.
    hashes, starts
        As `hashed_ids` of the names; the hashes are changed here.

    Attributes
    ----------
    n_repeats, repeated
        Number of records with the name of an earlier one, and the first with a repeated name.
    """

    def __init__(self, run: NamedRecords, hashes: IntArray, starts: dict[int, int]) -> None:
        self.n_repeats = self.repeated = 0
        self._samples = sample_names(run.input_names)
        self._n_added = np.zeros(run.n_records, np.uint8)
        while True:
            keys = np.array([*starts.values()], np.int64)
            present = {*hashes[np.isin(hashes, keys)].tolist()}
            stretches = np.array([one for one in starts if starts[one] in present], np.int64)
            counts, equal = zip(*repeated_values(hashes), strict=True)
            if not self._n_added.any() and sum(counts):
                self.n_repeats, self.repeated = sum(counts), int(np.concatenate(equal).min())
            changed = np.unique(np.concatenate([stretches, *equal]))
            changed = changed[self._n_added[changed] < _MOST_ADDED]
            if not len(changed):
                return
            self._n_added[changed] += 1
            for rows in blocks(len(changed)):
                records = changed[rows]
                hashes[records], of_these = hashed_ids(self.of(run, records))
                starts |= {int(records[place]): start for place, start in of_these.items()}

    @classmethod
    def of_index(cls, index: SequenceIndex) -> Self:
        """Return the ids of an index with all records of a run."""
        hashes, starts = np.empty(index.n_records, np.int64), dict[int, int]()
        for records in blocks(index.n_records):
            hashes[records], of_these = hashed_ids(index.record_names(records))
            starts |= {int(records[place]): start for place, start in of_these.items()}
        return cls(index, hashes, starts)

    def of(self, index: NamedRecords, records: IntArray, n_before: int = 0) -> list[str]:
        """Return the ids of records of an index, which follow `n_before` records of the run."""
        ids, n_added = index.record_names(records), self._n_added[n_before + records]
        files, numbers = index.record_origins(records)
        for place in np.flatnonzero(n_added).tolist():
            ids[place] = f"{self._samples[files[place]]}|{ids[place]}"
            if n_added[place] == _MOST_ADDED:
                ids[place] += f"|{numbers[place]}"
        return ids


class RecordIds:
    """Unique ids of the records of an index, see `UniqueIds`.

    Parameters
    ----------
    index
        Index of a run, or of a part of it.
    unique
        The ids of the run; None if the index has all its records.
    n_before
        Number of the run's records before those of the index.
    """

    def __init__(
        self, index: SequenceIndex, unique: UniqueIds | None = None, n_before: int = 0
    ) -> None:
        self.index, self.n_before = index, n_before
        self._unique = unique or UniqueIds.of_index(index)

    def of(self, records: IntArray) -> list[str]:
        """Return the ids of records."""
        return self._unique.of(self.index, records, self.n_before)


def extract_texts(
    ids: RecordIds,
    chosen: BoolArray,
    score: RealArray,
    probability: RealArray,
    *,
    fastq: bool = False,
) -> Iterator[bytes]:
    """Yield the content of a file of the chosen records, in input order.

    A header has the id of the record, then ``probability=0.9912 score=0.9731 name=c17 length=5386
    file=contigs.fa record=17``; missing numbers are NA. White space in the name of the file is
    percent-encoded. Sequences are normalised: upper case, T instead of U. Equal data give equal
    bytes.

    Paired reads are two entries, first and second mate, as in the input, with one id; their headers
    have the field ``mate``, 1 or 2.

    Parameters
    ----------
    chosen, score, probability
        ``(n_records,)``; NaN without a score or a calibration.
    fastq
        Write FASTQ, in four lines per record; the index must have qualities. Otherwise FASTA.
    """
    index = ids.index

    def texts(part: slice) -> Iterator[bytes]:
        records = part.start + np.flatnonzero(chosen[part])
        pieces = _Pieces(
            lambda rows: ids.of(records[rows]),
            records,
            np.zeros_like(records),
            index.record_lengths[records],
            lambda rows: {
                "probability": decimals(probability[records[rows]]),
                "score": decimals(score[records[rows]]),
            },
        )
        return _entries(index, _mates(index, pieces), fastq=fastq)

    return chain.from_iterable(map(texts, slices(index.n_records)))


def virus_texts(
    ids: RecordIds,
    viral: BoolArray,
    score: RealArray,
    probability: RealArray,
    inserted: Regions,
    topology: ByteArray,
    *,
    fastq: bool = False,
) -> Iterator[bytes]:
    """Yield the content of a file of viral records, and of viral stretches, as `extract_texts`.

    Headers begin with the fields ``kind`` (virus or provirus), ``probability``, ``score``,
    ``start`` and ``end`` (1-based, inclusive), ``topology``. The id of a stretch is
    ``id|provirus_start_end``, as that of geNomad. Entries are in the order of the input.

    Parameters
    ----------
    viral, score, probability, topology
        ``(n_records,)``: the records to write whole; the numbers, and the position in `TOPOLOGIES`,
        of each record.
    inserted
        The stretches, with numbers of their own.
    """
    index = ids.index

    def texts(part: slice) -> Iterator[bytes]:
        whole = part.start + np.flatnonzero(viral[part])
        first, last = np.searchsorted(inserted.record, [part.start, part.stop]).tolist()
        own = inserted.select(np.arange(first, last))
        record = np.concatenate((whole, own.record))
        start = np.concatenate((np.zeros_like(whole), own.start))
        order = np.lexsort((start, record))
        end = np.concatenate((index.record_lengths[whole], own.end))[order]
        numbers = {
            "probability": np.concatenate((probability[whole], own.probability))[order],
            "score": np.concatenate((score[whole], own.score))[order],
        }
        record, start, stretch = record[order], start[order], order >= len(whole)

        def names(rows: IntArray) -> list[str]:
            places = zip((start[rows] + 1).tolist(), end[rows].tolist(), strict=True)
            ends = (f"|provirus_{low}_{high}" for low, high in places)
            return [
                name + end * part
                for name, end, part in zip(
                    ids.of(record[rows]), ends, stretch[rows].tolist(), strict=True
                )
            ]

        def fields(rows: IntArray) -> dict[str, Sequence[str]]:
            return {
                "kind": named(("virus", "provirus"), stretch[rows]),
                **{name: decimals(values[rows]) for name, values in numbers.items()},
                "start": integers(start[rows] + 1),
                "end": integers(end[rows]),
                "topology": named(TOPOLOGIES, topology[record[rows]]),
            }

        pieces = _mates(index, _Pieces(names, record, start, end, fields))
        return _entries(index, pieces, fastq=fastq)

    return chain.from_iterable(map(texts, slices(index.n_records)))


def _mates(index: SequenceIndex, whole: _Pieces) -> _Pieces:
    """Return the pieces with two pieces, its mates, for each whole pair."""
    if index.mate_lengths is None:
        return whole
    lengths = index.record_lengths[whole.record]
    paired = (whole.end - whole.start == lengths) & (index.mate_lengths[whole.record] < lengths)
    origin = np.repeat(np.arange(len(paired)), 1 + paired)
    second = np.append(False, origin[1:] == origin[:-1])[: len(origin)]
    start, end, pair = whole.start[origin], whole.end[origin], paired[origin]
    mate = index.mate_lengths[whole.record[origin]]
    start[second] = mate[second] + len(JOINT)
    end[pair & ~second] = mate[pair & ~second]

    def fields(rows: IntArray) -> dict[str, Sequence[str]]:
        found = whole.fields(origin[rows])
        if "start" in found:  # of a mate in itself
            found |= {"start": integers(np.where(pair, 1, start + 1)[rows])}
            found |= {"end": integers(np.where(pair, end - start, end)[rows])}
        return found | {"mate": named(("NA", "1", "2"), np.where(pair, 1 + second, 0)[rows])}

    names = whole.names
    return _Pieces(
        lambda rows: names(origin[rows]), whole.record[origin], start, end, fields, second
    )


def texts_of_call(ids: RecordIds, scores: RunScores, call: int, *, fastq: bool) -> Iterator[bytes]:
    """Yield the content of the file of records with a call, and of proviruses for viral ones.

    Too long sequences are left out: their letters are not in the index.
    """
    chosen = (scores.calls.call == call) & (scores.records.status != Status.TOO_LONG)
    numbers = scores.records.score, scores.calls.probability
    if call != Call.VIRAL:
        return extract_texts(ids, chosen, *numbers, fastq=fastq)
    viruses = chosen & ~scores.provirus, *numbers, scores.inserted, scores.topology
    return virus_texts(ids, *viruses, fastq=fastq)


@contextmanager
def extract_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a file as `write_file`; it is compressed if its name ends in .gz."""
    with write_file(path) as raw, ExitStack() as stack:
        stream: IO[bytes] = raw
        if path.suffix == ".gz":
            packed = gzip.GzipFile("", "wb", _GZIP_LEVEL, raw, mtime=0)
            stream = stack.enter_context(io.BufferedWriter(stack.enter_context(packed)))
        yield stream


def write_texts(path: Path, texts: Iterable[bytes]) -> None:
    """Write the content of a file as `extract_file`; an existing file is unchanged on an error."""
    with extract_file(path) as stream:
        stream.writelines(texts)


def _headers(index: SequenceIndex, pieces: _Pieces) -> Iterator[str]:
    """Yield the header of each piece, without its first character."""
    files = list(map(as_word, index.input_names))
    for rows in blocks(len(pieces.record)):
        fields = {
            **pieces.fields(rows),
            "name": index.record_names(pieces.record[rows]),
            "length": integers(pieces.end[rows] - pieces.start[rows]),
            "file": named(files, index.record_origins(pieces.record[rows])[0]),
            "record": integers(index.record_origins(pieces.record[rows])[1]),
        }
        columns = [[f"{name}={cell}" for cell in cells] for name, cells in fields.items()]
        yield from map(" ".join, zip(pieces.names(rows), *columns, strict=True))


def _entries(index: SequenceIndex, pieces: _Pieces, *, fastq: bool) -> Iterator[bytes]:
    headers = _headers(index, pieces)
    for rows in blocks(len(pieces.record)):
        spans = (array[rows].tolist() for array in (pieces.record, pieces.start, pieces.end))
        second = np.zeros(len(rows), np.bool_) if pieces.second is None else pieces.second[rows]
        for record, start, end, reverse in zip(*spans, second.tolist(), strict=True):
            yield f"{'@' if fastq else '>'}{next(headers)}\n".encode()
            letters = _parts(index.record_sequence, record, start, end)
            if reverse:
                letters = [reverse_complement(b"".join(letters))]
            if not fastq:
                yield from map(_in_lines, letters)
                continue
            qualities = _parts(index.record_qualities, record, start, end)
            if reverse:
                qualities = [b"".join(qualities)[::-1]]
            yield from chain(letters, [b"\n+\n"], qualities, [b"\n"])


def _parts(
    read: Callable[[int, int, int], bytes], record: int, start: int, end: int
) -> Iterable[bytes]:
    """Return the text from start to end of a record in parts of about 0.6 MB."""
    if 0 < end - start <= _LETTERS_AT_ONCE:
        return [read(record, start, end)]
    lows = range(start, end, _LETTERS_AT_ONCE)
    return (read(record, low, min(low + _LETTERS_AT_ONCE, end)) for low in lows)


def _in_lines(letters: bytes) -> bytes:
    """Return letters in lines of 80, each with its end."""
    if len(letters) < _FEW:
        return b"".join([letters[n : n + _LINE] + b"\n" for n in range(0, len(letters), _LINE)])
    n_lines = len(letters) // _LINE
    lines = np.full((n_lines, _LINE + 1), ord("\n"), np.uint8)
    lines[:, :_LINE] = np.frombuffer(letters, np.uint8, n_lines * _LINE).reshape(n_lines, _LINE)
    rest = letters[n_lines * _LINE :]
    return lines.tobytes() + (rest + b"\n" if rest else b"")
