"""The sequences of a call of the Python API: files, streams, tables, or objects with sequences."""

import itertools
import os
import re
import reprlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, SupportsBytes, TypeAlias

from virnucpro.console import CONTROL, described, shortened
from virnucpro.errors import FingerprintError, InputError, UsageError, VirnucproError
from virnucpro.run.job import inputs_of
from virnucpro.sequences.entries import BlockStream, Input, OpenInput
from virnucpro.temporary import owned_prefix

Letters: TypeAlias = str | bytes | SupportsBytes
"""A sequence: text, bytes, or an object such as ``Bio.Seq.Seq``."""


class _Readable(Protocol):
    """An open file."""

    def read(self, size: int, /) -> Any: ...  # noqa: ANN401 - text or bytes


class _WithSeq(Protocol):
    """A record, such as ``Bio.SeqRecord.SeqRecord``."""

    @property
    def seq(self) -> Any: ...  # noqa: ANN401 - of any package


class _WithSequence(Protocol):
    """A record, such as ``dnaio.SequenceRecord``."""

    @property
    def sequence(self) -> Any: ...  # noqa: ANN401 - of any package


Source: TypeAlias = (
    str | os.PathLike[str] | SupportsBytes | Iterable[Any] | _Readable | _WithSeq | _WithSequence
)
"""Sequences: a path or several; an open FASTA or FASTQ file; pairs (name, sequence) of an iterable
or a mapping; records with ``id`` or ``name`` and ``seq`` or ``sequence``; a pandas DataFrame or
Series; a bare sequence or several."""

_PURPOSE: Final = "input"
_NAME: Final = "source"
_OF_PAIRS: Final = re.compile(rf"\S*/virnucpro-{_PURPOSE}-[^/\s]+/{_NAME}")
_SPACE: Final = b" \t\n\r\v\f"
_BARE: Final = re.compile(r"[A-Za-z*\s-]{20,}")
_PLACE: Final = (", entry {}", " ({})")
_NAMES: Final = ("id", "name", "seq_name")
_SEQUENCES: Final = ("seq", "sequence")
_IN_MEMORY: Final = 64 << 20
_BLOCK_BYTES: Final = 64 << 10


class InputFiles(NamedTuple):
    """Input files of a run: their paths, and whether the only one is a temporary file."""

    paths: tuple[str, ...]
    temporary: bool = False

    def described(self, text: str) -> str:
        """Return a message with ``source`` instead of the paths of temporary files.

        A resumed run names the temporary file of the first call.
        """
        if not self.temporary:
            return text
        return _OF_PAIRS.sub(_NAME, text.replace(self.paths[0], _NAME))


@contextmanager
def _errors_at(place: list[Any]) -> Iterator[None]:
    """Raise exceptions of the user's own source as InputError.

    `place` is empty, or has the number and the name of an entry; the block may change it.
    """
    try:
        yield
    except (VirnucproError, MemoryError):
        raise
    except Exception as error:
        where = "".join(form.format(one) for form, one in zip(_PLACE, place, strict=False) if one)
        raise InputError(
            f"source{where}: cannot be read ({described(error)}); repair or remove it"
        ) from error


@contextmanager
def inputs_from(source: Source) -> Iterator[tuple[Input, ...]]:
    """Yield the paths of `source`, or its content as one open stream of FASTA or FASTQ.

    The stream is in memory up to 64 MiB, and then in a temporary file. Errors are those of
    `streams_of`.
    """
    inputs = streams_of(source)
    content = inputs[0] if inputs else ""
    if isinstance(content, str):
        yield inputs
        return
    stream: Any
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as stream:
        shutil.copyfileobj(content.stream, stream)
        stream.seek(0)
        yield (OpenInput(_NAME, stream),)


@_errors_at([])
def streams_of(given: Source) -> tuple[Input, ...]:
    """Return the paths of a source, or one stream of FASTA or FASTQ that reads it in blocks.

    Raises
    ------
    UsageError
        If an entry is neither a path nor a sequence with a name, or a name cannot be kept unchanged
        in the tables.
    InputError
        If an object of the caller raises an exception, which is its cause.
    """
    source: Any = given
    if not hasattr(source, "iloc") and any(hasattr(source, name) for name in _SEQUENCES):
        source = [source]
    elif isinstance(source, SupportsBytes) and not isinstance(source, os.PathLike):
        source = bytes(source).decode(errors="replace")
    if isinstance(source, str) and (not source.strip() or source.lstrip().startswith((">", "@"))):
        raise UsageError(
            f"source is {'empty text' if not source.strip() else 'the text of a file'}: give a "
            "path, pairs (name, sequence), or the text as io.StringIO(text)"
        )
    if isinstance(source, str) and _is_sequence(source):
        source = [source]
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[0], str):
        name, letters = source
        if isinstance(letters, str) and _is_sequence(letters) and not _is_sequence(name):
            raise UsageError("source is one pair (name, sequence): give a list, [(name, sequence)]")
    if isinstance(source, str | os.PathLike):
        return inputs_of(source)
    if callable(getattr(source, "read", None)):
        blocks = _blocks(source)
    else:
        entries = _entries(source)
        with _errors_at([1]):
            first = [*itertools.islice(entries, 1)]
        if any(isinstance(one, str | os.PathLike) and not _is_sequence(one) for one in first):
            return inputs_of(itertools.chain(first, entries))
        blocks = _fasta(itertools.chain(first, entries))
    stream: Any = BlockStream(blocks)
    return (OpenInput(_NAME, stream),)


@contextmanager
def input_files(inputs: tuple[Input, ...]) -> Iterator[InputFiles]:
    """Yield the input files of a run; a stream is a temporary file until the end of the block.

    In errors about this file, ``source`` replaces its path.
    """
    paths = tuple(source for source in inputs if isinstance(source, str))
    streams = [source.stream for source in inputs if isinstance(source, OpenInput)]
    if not streams:
        yield InputFiles(paths)
        return
    with tempfile.TemporaryDirectory(prefix=owned_prefix(_PURPOSE)) as folder:
        path = Path(folder, _NAME)
        with path.open("wb") as copy:
            shutil.copyfileobj(streams[0], copy)
        files = InputFiles((str(path),), temporary=True)
        try:
            yield files
        except (InputError, FingerprintError) as error:
            raise type(error)(files.described(str(error))) from error


def _is_sequence(text: str | os.PathLike[str]) -> bool:
    """Return whether text is a sequence: 20 or more letters, and no file has this name."""
    known = isinstance(text, str) and _BARE.fullmatch(text) is not None
    return known and not os.path.exists(text)  # noqa: PTH110


def _blocks(source: Any) -> Iterator[bytes]:  # noqa: ANN401 - an open file
    with _errors_at([]):
        while block := source.read(_BLOCK_BYTES):
            yield block.encode() if isinstance(block, str) else bytes(memoryview(block))


def _entries(source: Any) -> Iterator[Any]:  # noqa: ANN401 - a Source
    if hasattr(source, "iloc"):  # of pandas
        return zip(*_columns(source), strict=True)
    if isinstance(source, Mapping):
        return iter(source.items())
    if not isinstance(source, Iterable):
        raise UsageError(
            "source must be a path, several paths, an open file, a sequence, or pairs "
            f"(name, sequence), not {reprlib.repr(source)}"
        )
    return iter(source)


def _columns(table: Any) -> tuple[Iterable[object], Iterable[object]]:  # noqa: ANN401 - of pandas
    """Return names and sequences of a DataFrame or a Series, whose names are in its index."""
    if not hasattr(table, "columns"):
        return _names_in(table.index), table
    own = [next((name for name in known if name in table), None) for known in (_NAMES, _SEQUENCES)]
    if own[1] is None:
        raise UsageError(
            f"source has the columns {', '.join(map(str, table.columns))}: rename that of the "
            "sequences to seq or sequence, and that of the names to id or name"
        )
    return _names_in(table.index if own[0] is None else table[own[0]]), table[own[1]]


def _names_in(column: Iterable[Any]) -> Iterator[Any]:
    """Yield names; numbers become text. A missing one (None, NaN) stays, and is refused later."""
    return (value if value is None or value != value else str(value) for value in column)  # noqa: PLR0124 - NaN


def _fasta(entries: Iterable[object]) -> Iterator[bytes]:
    """Yield blocks of FASTA, one line per sequence; the reader of the run checks the letters."""
    block, place = bytearray(), [1, None]
    with _errors_at(place):
        for number, entry in enumerate(entries, 1):
            place[1] = _own_name(entry)
            name, letters = _named(entry, place[1], number)
            block += b">%b\n%b\n" % (_name(name, number), _letters(letters, number))
            if len(block) >= _BLOCK_BYTES:
                yield bytes(block)
                block.clear()
            place[:] = number + 1, None
    yield bytes(block)


def _own_name(entry: Any) -> Any:  # noqa: ANN401 - of any package
    if isinstance(entry, tuple | list):
        return entry[0] if len(entry) == 2 else None
    found = (getattr(entry, key, None) for key in _NAMES)
    return next((name for name in found if isinstance(name, str)), None)


def _named(entry: Any, name: Any, number: int) -> tuple[object, object]:  # noqa: ANN401 - see above
    bare = entry
    if isinstance(entry, SupportsBytes) and not any(hasattr(entry, name) for name in _SEQUENCES):
        bare = bytes(entry).decode(errors="replace")
    if isinstance(bare, str) and _is_sequence(bare):
        return f"sequence_{number}", bare
    if isinstance(entry, tuple | list) and len(entry) == 2:
        return name, entry[1]
    letters = next((key for key in _SEQUENCES if hasattr(entry, key)), None)
    if name is None or letters is None:
        raise UsageError(
            f"source, entry {number}: give a pair (name, sequence), or an object with id and seq "
            f"or name and sequence, not {reprlib.repr(entry)}"
        )
    return name, getattr(entry, letters)


def _name(name: object, number: int) -> bytes:
    where = f"source, entry {number}"
    if not isinstance(name, str):
        raise UsageError(f"{where}: the name must be text, not {reprlib.repr(name)}")
    if not name:
        raise UsageError(f"{where}: the name is empty; give each sequence a name")
    try:
        text = name.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{where}: the name {name!a} is not valid Unicode text") from error
    if CONTROL.search(name) or text.translate(None, _SPACE) != text:
        raise UsageError(
            f"{where}: the name {shortened(name)!r} has white space or control characters, which "
            'would end it in a FASTA file; replace them, for example by "_".join(name.split())'
        )
    return text


def _letters(letters: object, number: int) -> bytes:
    letters = getattr(letters, "seq", letters)  # a dict of records
    if isinstance(letters, str):
        text = letters.encode(errors="replace")
    elif isinstance(letters, bytes | SupportsBytes):
        text = bytes(letters)
    else:
        raise UsageError(
            f"source, entry {number}: the sequence must be text or bytes, "
            f"not {reprlib.repr(letters)}"
        )
    return text.translate(None, _SPACE)
