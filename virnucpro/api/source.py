"""The sequences of a call of the Python API: files, or pairs of name and sequence."""

import itertools
import os
import re
import reprlib
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, SupportsBytes, TypeAlias

from virnucpro.console import CONTROL, shortened
from virnucpro.errors import FingerprintError, InputError, UsageError
from virnucpro.pipeline.jobs.job import inputs_of

__all__ = ["InputFiles", "Letters", "Source", "input_files"]

Letters: TypeAlias = str | bytes | SupportsBytes
"""A sequence: text, bytes, or an object such as ``Bio.Seq.Seq``."""

Source: TypeAlias = (
    str
    | os.PathLike[str]
    | Iterable[str | os.PathLike[str] | tuple[str, Letters]]
    | Mapping[str, Letters]
)
"""One file, several files, or pairs of name and sequence."""

_FOLDER: Final = "virnucpro-input-"
_FILE: Final = "sequences.fasta"
_OF_PAIRS: Final = re.compile(rf"\S*/{_FOLDER}[^/\s]+/{re.escape(_FILE)}")
_SPACE: Final = b" \t\n\r\v\f"


class InputFiles(NamedTuple):
    """Input files of a run: their paths, and whether the only one is a temporary file of pairs."""

    paths: tuple[str, ...]
    temporary: bool = False

    def described(self, text: str) -> str:
        """Return a message with ``source`` instead of the paths of temporary files.

        A resumed run names the temporary file of the first call.
        """
        if not self.temporary:
            return text
        return _OF_PAIRS.sub("source", text.replace(self.paths[0], "source"))


@contextmanager
def input_files(source: Source) -> Iterator[InputFiles]:
    """Yield the input files of `source`, for a run.

    Pairs of name and sequence are written into a temporary FASTA file, which is removed at the end
    of the block. In errors about this file, ``source`` replaces its path.

    Raises
    ------
    UsageError
        If an entry is neither a path nor a pair, a name cannot be kept unchanged in the tables, or
        there is no entry.
    """
    if isinstance(source, str | bytes | os.PathLike):
        yield InputFiles(inputs_of(source))
        return
    if not isinstance(source, Iterable):
        raise UsageError(
            "source must be a path, several paths, or pairs (name, sequence), "
            f"not {reprlib.repr(source)}"
        )
    entries: Iterator[Any] = iter(source.items() if isinstance(source, Mapping) else source)
    first = next(entries, None)
    if first is None:
        raise UsageError("source is empty: give a path or at least one pair (name, sequence)")
    entries = itertools.chain([first], entries)
    if isinstance(first, str | os.PathLike):
        yield InputFiles(inputs_of(entries))
        return
    with tempfile.TemporaryDirectory(prefix=_FOLDER) as folder:
        path = Path(folder, _FILE)
        with path.open("wb") as stream:
            _write_pairs(stream, entries)
        inputs = InputFiles((str(path),), temporary=True)
        try:
            yield inputs
        except (InputError, FingerprintError) as error:
            raise type(error)(inputs.described(str(error))) from error


def _write_pairs(stream: IO[bytes], entries: Iterable[object]) -> None:
    """Write pairs as FASTA, one line per sequence; the reader of the run checks the letters."""
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, tuple | list) or len(entry) != 2:
            raise UsageError(
                f"source, entry {number}: give a pair (name, sequence), "
                f"not {reprlib.repr(entry)}; of records of Biopython: ((one.id, one.seq) for one "
                "in records)"
            )
        name, letters = entry
        stream.write(b">%b\n%b\n" % (_name(name, number), _letters(letters, number)))


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
