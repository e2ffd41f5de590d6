"""Reads of SAM, BAM and CRAM files, aligned or not, through pysam (extra `bam`).

A read is given once and as it was sequenced: secondary and supplementary alignments are skipped,
and reads on the reverse strand are turned back. Reads that are flagged as first or second mate have
names with ``/1`` or ``/2``, as by ``samtools fastq``.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from virnucpro.console import shortened
from virnucpro.errors import InputError
from virnucpro.extras import require_extra
from virnucpro.sequences.entries import Input, read_blocks

_HEADER_LINE: Final = re.compile(rb"@(HD|SQ|RG|PG|CO)\t")
_AS_FASTQ: Final = bytes(min(quality, 93) + 33 for quality in range(256))
_ADVICE: Final = "repair the file, or give FASTQ (samtools fastq)"


def is_alignment(start: bytes, path: Input) -> bool:
    """Return whether a file has alignments, by its first bytes without compression.

    A SAM file without header lines is recognised by its name.
    """
    if start.startswith((b"BAM\1", b"CRAM")) or _HEADER_LINE.match(start):
        return True
    return bool(start) and str(path).endswith((".sam", ".sam.gz"))


def has_alignments(path: Input) -> bool:
    """Return whether an input is a file of alignments; False for a pipe, which can be read once."""
    if not isinstance(path, str) or not Path(path).is_file():
        return False
    return is_alignment(next(read_blocks(path), b""), path)


def split_alignments(path: Input) -> Iterator[tuple[bytes, bytes, bytes | None]]:
    """Yield name, bases and qualities of each read of a SAM, BAM or CRAM file.

    Qualities are as in FASTQ; None for a read without.

    Raises
    ------
    UsageError
        If pysam is not installed.
    InputError
        If the input is no file on disk, or cannot be read.
    """
    require_extra("bam", f"{path}: a SAM, BAM or CRAM file")
    import pysam  # noqa: PLC0415 - an extra

    if not isinstance(path, str) or not Path(path).is_file():
        raise InputError(
            f"{path}: alignments can be read from a file on disk only; give its path, or a stream "
            "of samtools fastq"
        )
    quiet = pysam.set_verbosity(0)  # its errors are raised here
    name = ""
    try:
        with pysam.AlignmentFile(path, "r", check_sq=False) as file:
            for read in file.fetch(until_eof=True):
                if read.is_secondary or read.is_supplementary:
                    continue
                name = read.query_name or ""
                qualities = read.get_forward_qualities()
                yield (
                    _with_mate(name, read.flag).encode(errors="surrogateescape"),
                    (read.get_forward_sequence() or "").encode(),
                    None if qualities is None else bytes(qualities).translate(_AS_FASTQ),
                )
    except (OSError, ValueError) as error:
        after = f" after read {shortened(name)}" if name else ""
        raise InputError(
            f"{path}: the alignments cannot be read{after} ({error}); {_ADVICE}. CRAM may need its "
            "reference: set REF_PATH"
        ) from error
    finally:
        pysam.set_verbosity(quiet)


_PAIRED, _FIRST, _SECOND = 0x1, 0x40, 0x80


def _with_mate(name: str, flag: int) -> str:
    for bit, suffix in ((_FIRST, "/1"), (_SECOND, "/2")):
        if flag & _PAIRED and flag & (_FIRST | _SECOND) == bit:
            return name.removesuffix(suffix) + suffix
    return name
