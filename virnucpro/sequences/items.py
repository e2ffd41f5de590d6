"""Windows, items and digests of items in a batch of records."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from virnucpro.sequences.spec import IndexSpec, RecordStatus
from virnucpro.sequences.translation import (
    GeneticCode,
    OpenFrames,
    genetic_code,
    open_frames,
    peptide,
    reverse_complement,
)
from virnucpro.sequences.windows import IntArray, Windows, tile_all

__all__ = ["DIGEST_BYTES", "Items", "cut"]

DIGEST_BYTES = 16
"""128 bits: with 2e9 distinct items, the probability of two equal digests is 6e-21."""

# Bases whose codons are classified at once: few enough for a dozen passes in the CPU's cache.
_BLOCK_BASES = 1 << 17


@dataclass(frozen=True, slots=True)
class Items:
    """The windows and items of several records, in input order.

    Attributes
    ----------
    windows
        Of all records.
    status
        ``(n_records,)`` uint8 of `RecordStatus`.
    per_window
        ``(n_windows,)`` int64: number of items.
    frame
        ``(n_items,)`` uint8.
    length
        ``(n_items,)`` int32: residues of the frame, or letters of the whole sequence.
    digests
        `DIGEST_BYTES` per item; items with equal views have equal digests.
    """

    windows: Windows
    status: npt.NDArray[np.uint8]
    per_window: IntArray
    frame: npt.NDArray[np.uint8]
    length: npt.NDArray[np.int32]
    digests: bytes


def cut(sequences: Sequence[bytes], spec: IndexSpec) -> Items:
    """Divide records into windows and items.

    Parameters
    ----------
    sequences
        One per record, in the spelling of `virnucpro.sequences.records.Record`.
    spec
        Rules that divide records into items.
    """
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    if spec.kind == "whole":
        return _cut_whole(sequences, lengths)
    assert spec.window is not None
    assert spec.tiling is not None
    assert spec.genetic_code is not None
    windows = tile_all(lengths, spec.window, spec.tiling)
    return _cut_frames(b"".join(sequences), lengths, windows, genetic_code(spec.genetic_code))


def _cut_whole(sequences: Sequence[bytes], lengths: IntArray) -> Items:
    filled = lengths > 0
    first = np.concatenate(([0], np.cumsum(filled, dtype=np.int64)))
    n_items = int(first[-1])
    ends = lengths[filled]
    return Items(
        windows=Windows(first, np.zeros(n_items, np.int64), ends),
        status=np.where(filled, RecordStatus.SCORABLE, RecordStatus.TOO_SHORT).astype(np.uint8),
        per_window=np.ones(n_items, np.int64),
        frame=np.zeros(n_items, np.uint8),
        length=ends.astype(np.int32),
        digests=b"".join(_digest(sequence) for sequence in sequences if sequence),
    )


def _cut_frames(text: bytes, lengths: IntArray, windows: Windows, code: GeneticCode) -> Items:
    record_start = np.repeat(np.cumsum(lengths) - lengths, np.diff(windows.first))
    starts, ends = windows.starts + record_start, windows.ends + record_start
    found: list[OpenFrames] = []
    digests: list[bytes] = []
    for block in _blocks(starts):
        low, high = int(starts[block.start]), int(ends[block.stop - 1])
        part = text[low:high]
        frames = open_frames(part, starts[block] - low, ends[block] - low, code)
        found.append(frames)
        digests += _frame_digests(part, starts[block] - low, ends[block] - low, frames, code)
    counts = [np.bincount(frames.window, minlength=len(frames.translatable)) for frames in found]
    per_window = _joined(counts, np.int64)
    translatable = _joined([frames.translatable for frames in found], np.bool_)
    return Items(
        windows=windows,
        status=_status(lengths, windows.first, translatable, per_window),
        per_window=per_window,
        frame=_joined([frames.frame for frames in found], np.uint8),
        length=_joined([frames.residues for frames in found], np.int32),
        digests=b"".join(digests),
    )


def _blocks(starts: IntArray) -> Iterator[slice]:
    """Divide windows into runs whose starts are within `_BLOCK_BASES` of each other."""
    first = 0
    while first < len(starts):
        last = int(np.searchsorted(starts, starts[first] + _BLOCK_BASES))
        yield slice(first, last)
        first = last


def _joined(parts: Sequence[npt.NDArray[np.generic]], dtype: type[np.generic]) -> npt.NDArray[Any]:
    return np.concatenate((np.empty(0, dtype), *parts), dtype=dtype)


def _status(
    lengths: IntArray, first: IntArray, translatable: npt.NDArray[np.bool_], per_window: IntArray
) -> npt.NDArray[np.uint8]:
    def in_record(values: npt.NDArray[np.generic]) -> IntArray:
        reach = np.concatenate(([0], np.cumsum(values, dtype=np.int64)))
        return reach[first[1:]] - reach[first[:-1]]

    status = np.select(
        [in_record(per_window) > 0, lengths < 3, in_record(translatable) == 0],
        [RecordStatus.SCORABLE, RecordStatus.TOO_SHORT, RecordStatus.AMBIGUOUS_BASES],
        RecordStatus.NO_OPEN_FRAME,
    )
    return status.astype(np.uint8)


def _frame_digests(
    text: bytes, starts: IntArray, ends: IntArray, frames: OpenFrames, code: GeneticCode
) -> list[bytes]:
    """Return a digest of each frame: of its bases, and of a peptide that these do not determine."""
    both = text + reverse_complement(text)
    forward, offset = frames.frame < 3, frames.frame % 3
    start, end = starts[frames.window], ends[frames.window]
    low = np.where(forward, start, len(both) - end) + offset
    limit = np.where(forward, end, len(both) - start)
    high = np.minimum(low + 3 * frames.residues + 1, limit)
    spans = zip(low.tolist(), high.tolist(), strict=True)
    digests = [blake2b(both[a:b], digest_size=DIGEST_BYTES).digest() for a, b in spans]
    for i in np.flatnonzero((limit - low) // 3 != frames.residues).tolist():
        digests[i] = _digest_with_dropped_codons(both[low[i] : limit[i]], high[i] - low[i], code)
    return digests


def _digest_with_dropped_codons(frame: bytes, n_bases: int, code: GeneticCode) -> bytes:
    bases, residues = frame[:n_bases], peptide(frame, code)
    # If all dropped codons are after these bases, a frame without them has the same content.
    return _digest(bases if peptide(bases, code) == residues else bases + b"\0" + residues)


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=DIGEST_BYTES).digest()
