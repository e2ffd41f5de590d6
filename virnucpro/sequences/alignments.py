"""Reads of SAM, BAM and CRAM files, aligned or not, through pysam (extra `bam`).

A read is given once and as it was sequenced: secondary and supplementary alignments are skipped,
and reads on the reverse strand are turned back. Reads that are flagged as first or second mate have
names with ``/1`` or ``/2``, as by ``samtools fastq``.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from virnucpro.console import shortened
from virnucpro.errors import InputError
from virnucpro.extras import require_extra
from virnucpro.sequences.entries import (
    SIGNATURE_BYTES,
    Entry,
    FilePart,
    Input,
    compression_of,
    read_blocks,
)

_HEADER_LINE: Final = re.compile(rb"@(HD|SQ|RG|PG|CO)\t")
_AS_FASTQ: Final = bytes(min(quality, 93) + 33 for quality in range(256))
_PAIRED, _FIRST, _SECOND = 0x1, 0x40, 0x80


def is_alignment(start: bytes, path: Input) -> bool:
    """Return whether a file has alignments, by its first bytes without compression.

    A SAM file without header lines is recognised by its name.
    """
    if isinstance(path, FilePart):
        return False
    if start.startswith((b"BAM\1", b"CRAM")) or _HEADER_LINE.match(start):
        return True
    return bool(start) and str(path).endswith((".sam", ".sam.gz"))


def has_alignments(path: Input) -> bool:
    """Return whether an input is a file of alignments; False for a pipe, which can be read once."""
    if isinstance(path, FilePart):
        return path.aligned
    if not isinstance(path, str) or not Path(path).is_file():
        return False
    return is_alignment(next(read_blocks(path), b""), path)


def split_alignments(path: Input) -> Iterator[Entry]:
    """Yield the reads of a SAM, BAM or CRAM file; qualities are as in FASTQ.

    Raises
    ------
    UsageError
        If pysam is not installed.
    InputError
        If the input is not a file on disk, or cannot be read.
    """
    require_extra("bam", f"{path}: a SAM, BAM or CRAM file")
    import pysam  # noqa: PLC0415 - an extra

    if not isinstance(path, str) or not Path(path).is_file():
        raise InputError(
            f"{path}: alignments can be read from a file on disk only; give its path, or a stream "
            "of samtools fastq"
        )
    with Path(path).open("rb") as stream:
        compression = compression_of(stream.read(SIGNATURE_BYTES))
    if compression not in {None, "gz"}:  # pysam would end the process at xz
        raise InputError(
            f"{path}: alignments can be compressed with gzip only, not {compression}; decompress "
            "the file"
        )
    quiet = pysam.set_verbosity(0)  # its errors are raised here
    name = ""
    try:
        with pysam.AlignmentFile(path, "r", check_sq=False) as file:
            if file.is_cram:
                _check_cram_end(path)
            for read in file.fetch(until_eof=True):
                if read.is_secondary or read.is_supplementary:
                    continue
                name = read.query_name or ""
                # A reverse read without letters or qualities has no forward ones in pysam.
                letters = read.get_forward_sequence() if read.query_sequence else ""
                qualities = read.get_forward_qualities() if read.query_qualities else None
                yield Entry(
                    _with_mate(name, read.flag).encode(errors="surrogateescape"),
                    (letters or "").encode(),
                    None if qualities is None else bytes(qualities).translate(_AS_FASTQ),
                )
    except (OSError, ValueError, NotImplementedError) as error:  # the last: BAM in plain gzip
        after = f" after read {shortened(name)}" if name else ""
        raise InputError(
            f"{path}: the alignments cannot be read{after} ({error}); repair the file, or give "
            "FASTQ (samtools fastq). CRAM may need its reference: set REF_PATH"
        ) from error
    finally:
        pysam.set_verbosity(quiet)


def _with_mate(name: str, flag: int) -> str:
    for bit, suffix in ((_FIRST, "/1"), (_SECOND, "/2")):
        if flag & _PAIRED and flag & (_FIRST | _SECOND) == bit:
            return name.removesuffix(suffix) + suffix
    return name


_CRAM_TAIL: Final = 38
_CRAM_END: Final = b"\xe0EOF"
"""In the last 38 bytes of CRAM since version 2.1. Source: CRAM specification, EOF container."""


def _check_cram_end(path: str) -> None:
    """Raise OSError for CRAM without its last container, which pysam checks in BAM alone."""
    with Path(path).open("rb") as stream:
        has_end = stream.read(6) >= b"CRAM\2\1"
        stream.seek(-_CRAM_TAIL, os.SEEK_END)
        if has_end and _CRAM_END not in stream.read():
            raise OSError("no container that ends CRAM; the file is probably cut off")
