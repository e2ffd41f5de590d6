"""Recognise input files that are unchanged since a run read them, without reading them again.

A file is unchanged if its size, inode, times of modification and of status change, and a sample of
its content are equal. A program can set the time of modification, but not that of the status
change: a file that was replaced, edited, copied or moved is read completely.
"""

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from virnucpro.sequences.builder import input_digests
from virnucpro.sequences.entries import STANDARD_INPUT
from virnucpro.sequences.input_rules import InputRules
from virnucpro.sequences.spec import IndexSpec, InputFile

_BLOCKS = 64
_BLOCK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class InputStamp:
    """State of an input file when a run had read it.

    Attributes
    ----------
    size, inode, mtime_ns, ctime_ns
        Size in bytes, inode, and times of modification and status change, as in `os.stat`.
    sample
        SHA-256 of 64 blocks of 64 KiB, evenly spread from the first to the last byte; of all bytes
        of a file of at most 4 MiB. Empty before the sample is read.
    """

    size: int
    inode: int
    mtime_ns: int
    ctime_ns: int
    sample: str = ""


class InputStamps:
    """The stamps of input files that are being read; create this object before reading them."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._before = [(path, _state(path)) for path in paths]

    def after_reading(self) -> tuple[InputStamp | None, ...]:
        """Return the stamp of each file; None for a pipe, and for a file that changed meanwhile.

        Raises
        ------
        OSError
            If a file cannot be read any more.
        """
        return tuple(
            _sampled(path, before) if before is not None and before == _state(path) else None
            for path, before in self._before
        )


def is_unchanged(path: str, stamp: InputStamp | None) -> bool:
    """Return whether a file is unchanged since a run read it; reads at most 4 MiB.

    Raises
    ------
    OSError
        If the file cannot be read.
    """
    if stamp is None or _state(path) != replace(stamp, sample=""):
        return False
    return _sampled(path, stamp) == stamp


def current_digests(
    paths: Sequence[str],
    known: Sequence[InputFile],
    stamps: Sequence[InputStamp | None],
    spec: IndexSpec,
    rules: InputRules | None = None,
) -> tuple[InputFile, ...]:
    """Return the digests of all inputs; read completely only those that may have changed.

    Parameters
    ----------
    paths
        Inputs of the resume; ``-`` is standard input.
    known, stamps
        Digests and stamps of the run's inputs. If their number differs from that of `paths`, or
        one of paired files has changed, all inputs are read.
    rules
        As for `input_digests`.

    Raises
    ------
    InputError
        As `input_digests`.
    OSError
        If an unchanged file cannot be read.
    """
    if not len(paths) == len(known) == len(stamps):
        return input_digests(paths, spec, rules)
    same = [is_unchanged(path, stamp) for path, stamp in zip(paths, stamps, strict=True)]
    if spec.pairs == "files" and not all(same):
        return input_digests(paths, spec, rules)
    changed = [path for path, kept in zip(paths, same, strict=True) if not kept]
    read = iter(input_digests(changed, spec, rules))
    return tuple(
        replace(old, path=path) if kept else next(read)
        for path, old, kept in zip(paths, known, same, strict=True)
    )


def _state(path: str) -> InputStamp | None:
    """Return the stamp of a regular file without its sample; None for anything else."""
    try:
        if path == STANDARD_INPUT or not stat.S_ISREG(Path(path).stat().st_mode):
            return None
        # NFS asks the server for the state of a file when it is opened, not at every stat.
        with Path(path).open("rb") as stream:
            found = os.fstat(stream.fileno())
    except OSError:
        return None  # the reader of the file reports the error
    return InputStamp(found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns)


def _sampled(path: str, stamp: InputStamp) -> InputStamp:
    digest = hashlib.sha256()
    last = max(0, stamp.size - _BLOCK_BYTES)
    with Path(path).open("rb") as stream:
        if stamp.size <= _BLOCKS * _BLOCK_BYTES:
            digest.update(stream.read())
        else:
            for block in range(_BLOCKS):
                start = last * block // (_BLOCKS - 1)
                digest.update(os.pread(stream.fileno(), _BLOCK_BYTES, start))
    return replace(stamp, sample=digest.hexdigest())
