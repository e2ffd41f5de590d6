"""Divide records into windows, and these into items: frames, stretches, windows or sequences."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from virnucpro.arrays import AnyArray, BoolArray, ByteArray, Int32Array, IntArray
from virnucpro.sequences.spec import IndexSpec, RecordStatus
from virnucpro.sequences.stretches import Stretches, longest_stretches
from virnucpro.sequences.translation import (
    FRAMES,
    GeneticCode,
    OpenFrames,
    genetic_code,
    open_frames,
    peptide,
    reverse_complement,
)
from virnucpro.sequences.windows import (
    Windows,
    count_pieces,
    have_two_mates,
    piece_bounds,
    tile_all,
)

WINDOW_ITEM: Final = len(FRAMES)
"""Code in `item_frame` of an item that is a whole window."""

PIECE_ITEM: Final = WINDOW_ITEM + 1
"""Code in `row_frame` of a row that is a piece of a record."""

ITEM_NAMES: Final = (*FRAMES, "W")
"""Names of the item codes: the frames, and W for a whole window."""

LEAST_BASES: Final = 60
LEAST_KNOWN: Final = 0.9
"""A whole window is an item if it has this many bases and this share of A, C, G and T."""

_HALF_KNOWN: Final = 0.5
"""Share that suffices in a record without such a window; then `LEAST_BASES` of them are known."""

DIGEST_BYTES = 16
"""128 bits: with 2e9 distinct items, the probability of two equal digests is 6e-21."""
_OF_WINDOW = blake2b(digest_size=DIGEST_BYTES, person=b"window")

# Number of bases whose codons are classified at once; small enough for the CPU's cache.
_BLOCK_BASES = 1 << 17

_UNKNOWN_LETTERS = bytes(letter not in b"ACGT" for letter in range(256))

UNKNOWN_RUN: Final = 20
"""Letters of the shortest run other than A, C, G, T that no window of the tiling `even` covers."""


@dataclass(frozen=True, slots=True)
class Items:
    """The windows and items of several records, in input order.

    Attributes
    ----------
    windows
        Windows of all records.
    status
        ``(n_records,)`` uint8 of `RecordStatus`.
    per_window
        ``(n_windows,)`` int64: number of items in each window.
    frame
        ``(n_items,)`` uint8: frame of each item, 0 to 5, or `WINDOW_ITEM`; 0 for a whole sequence.
    length
        ``(n_items,)`` int32: residues of the frame or stretch, or letters of the window or whole
        sequence.
    start, span
        ``(n_items,)`` int32: bases from the start of the window to the part that the frame divides
        into codons, and length of this part; ``0`` and the window's length, except for stretches.
    digests
        Digests of the items, `DIGEST_BYTES` each; items with equal content have equal digests.
    """

    windows: Windows
    status: ByteArray
    per_window: IntArray
    frame: ByteArray
    length: Int32Array
    start: Int32Array
    span: Int32Array
    digests: bytes


@dataclass(frozen=True, slots=True)
class Pieces:
    """The pieces of several records, in input order.

    Attributes
    ----------
    per_record
        ``(n_records,)`` int64: number of pieces; 0 for a record without an item.
    start, length
        ``(n_pieces,)`` int64 bases: start within the record, and length.
    digests
        As `Items.digests`.
    """

    per_record: IntArray
    start: IntArray
    length: IntArray
    digests: bytes


def cut_records(
    sequences: Sequence[bytes], items: Items, spec: IndexSpec, mates: IntArray, joints: IntArray
) -> Pieces:
    """Cut the records with an item into pieces; `items` is the result of `divide_records`.

    A pair of mates with letters has two pieces at least; `mates` and `joints` are as in
    `piece_bounds`.
    """
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    per_record = np.zeros(len(lengths), np.int64)
    if spec.piece is not None:
        scorable = items.status == RecordStatus.SCORABLE
        per_record[scorable] = count_pieces(lengths[scorable], spec.piece)
        pairs = scorable & have_two_mates(lengths, mates, joints)
        per_record[pairs] = np.maximum(per_record[pairs], 2)
    first = np.concatenate(([0], np.cumsum(per_record)))
    start, end = piece_bounds(first, lengths, np.arange(first[-1]), mates, joints)
    record = np.repeat(np.arange(len(lengths)), per_record)
    digests = _piece_digests(sequences, lengths, record, start, end, items)
    return Pieces(per_record, start, end - start, digests)


def _piece_digests(
    sequences: Sequence[bytes],
    lengths: IntArray,
    record: IntArray,
    start: IntArray,
    end: IntArray,
    items: Items,
) -> bytes:
    """Return the digests of pieces: of windows with the same bases, but with all bits inverted.

    A piece that is also a window item of its record has no digest computed for it.
    """
    whole = items.frame == WINDOW_ITEM
    window = np.repeat(np.arange(len(items.per_window)), items.per_window)[whole]
    starts, ends = (np.append(bounds[window], -1) for bounds in _in_text(items.windows, lengths))
    origin = (np.cumsum(lengths) - lengths)[record]
    place = np.searchsorted(starts[:-1], origin + start)
    known = (starts[place] == origin + start) & (ends[place] == origin + end)
    digests = np.empty(len(record), f"V{DIGEST_BYTES}")
    digests[known] = np.frombuffer(items.digests, digests.dtype)[whole][place[known]]
    others = (values[~known].tolist() for values in (record, start, end))
    new = (_window_digest(sequences[number][a:b]) for number, a, b in zip(*others, strict=True))
    digests[~known] = np.frombuffer(b"".join(new), digests.dtype)
    return (~digests.view(np.uint64)).tobytes()


def divide_records(
    sequences: Sequence[bytes],
    spec: IndexSpec,
    left_out: Mapping[int, RecordStatus] = MappingProxyType({}),
    letters: IntArray | None = None,
) -> Items:
    """Divide records into windows, and windows into items; return both in input order.

    Records that are left out, and those shorter than the least length, have neither windows nor
    items.

    Parameters
    ----------
    sequences
        The sequence of each record, normalised as in `virnucpro.sequences.records.Record`.
    spec
        Rules that divide records into items.
    left_out
        Status of the invalid and the too long records, by their positions.
    letters
        ``(n_records,)``, letters that count for the least length; None for all.
    """
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    without = (lengths if letters is None else letters) < spec.min_length
    without[[*left_out]] = True
    if not without.any():
        return _divide(sequences, lengths, spec)
    kept = [b"" if out else text for text, out in zip(sequences, without.tolist(), strict=True)]
    items = _divide(kept, np.where(without, 0, lengths), spec)
    items.status[[*left_out]] = [*left_out.values()]
    return items


def _divide(sequences: Sequence[bytes], lengths: IntArray, spec: IndexSpec) -> Items:
    if spec.kind == "whole":
        return _whole_record_items(sequences, lengths)
    assert spec.window is not None
    assert spec.tiling is not None
    assert spec.genetic_code is not None
    text = b"".join(sequences)
    if spec.tiling == "even" and b"\1" * UNKNOWN_RUN in text.translate(_UNKNOWN_LETTERS):
        windows = _tile_around_unknown(sequences, lengths, spec.window)
    else:
        windows = tile_all(lengths, spec.window, spec.tiling)
    if spec.kind == "windows":
        return _window_items(text, lengths, windows)
    divide = _stretch_items if spec.kind == "stretches" else _frame_items
    items = divide(text, lengths, windows, genetic_code(spec.genetic_code))
    return _with_fallback(text, lengths, items) if spec.fallback else items


def _tile_around_unknown(sequences: Sequence[bytes], lengths: IntArray, window: int) -> Windows:
    """Return windows of the tiling `even` over the parts of records between unknown runs.

    Each part is tiled as a record of its own. A part of a record with such a run has no windows if
    it is shorter than `LEAST_BASES`. A record without a longer part is tiled as a whole.
    """
    # A known letter around each record: no run goes from one record to the next.
    letters = b"A".join((b"", *sequences, b"")).translate(_UNKNOWN_LETTERS)
    unknown = np.frombuffer(letters, np.bool_)
    run_starts, run_ends = (np.flatnonzero(np.diff(unknown)) + 1).reshape(-1, 2).T
    runs = run_ends - run_starts >= UNKNOWN_RUN
    origin = np.cumsum(lengths + 1) - lengths
    record = np.searchsorted(origin, run_starts[runs], side="right") - 1
    n_parts = np.bincount(record, minlength=len(lengths)) + 1
    first = np.concatenate(([0], np.cumsum(n_parts)))
    low, high = np.zeros(first[-1], np.int64), np.repeat(lengths, n_parts)
    before = np.arange(len(record)) + record  # the part before each run
    high[before] = run_starts[runs] - origin[record]
    low[before + 1] = run_ends[runs] - origin[record]
    chosen = high - low >= LEAST_BASES
    whole = np.flatnonzero(np.add.reduceat(chosen, first[:-1], dtype=np.int64) == 0)
    chosen[first[whole]], low[first[whole]], high[first[whole]] = True, 0, lengths[whole]
    first_part = np.concatenate(([0], np.cumsum(chosen)))[first]
    low, high = low[chosen], high[chosen]
    tiled = tile_all(high - low, window, "even")
    shift = np.repeat(low, np.diff(tiled.first))
    return Windows(tiled.first[first_part], tiled.starts + shift, tiled.ends + shift)


def _whole_record_items(sequences: Sequence[bytes], lengths: IntArray) -> Items:
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
        start=np.zeros(n_items, np.int32),
        span=ends.astype(np.int32),
        digests=b"".join(_digest(sequence) for sequence in sequences if sequence),
    )


def _frame_items(text: bytes, lengths: IntArray, windows: Windows, code: GeneticCode) -> Items:
    starts, ends = _in_text(windows, lengths)
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
        start=np.zeros(int(per_window.sum()), np.int32),
        span=np.repeat(ends - starts, per_window).astype(np.int32),
        digests=b"".join(digests),
    )


def _stretch_items(text: bytes, lengths: IntArray, windows: Windows, code: GeneticCode) -> Items:
    starts, ends = _in_text(windows, lengths)
    found: list[Stretches] = []
    origins: list[IntArray] = []
    for block in _blocks(starts):
        low, high = int(starts[block.start]), int(ends[block.stop - 1])
        stretches = longest_stretches(text[low:high], starts[block] - low, ends[block] - low, code)
        found.append(stretches)
        origins.append(stretches.start + low)
    with_item = [np.bincount(part.window, minlength=len(part.translatable)) for part in found]
    per_window = _joined(with_item, np.int64)
    translatable = _joined([part.translatable for part in found], np.bool_)
    frame = _joined([part.frame for part in found], np.uint8)
    codons = _joined([part.codons for part in found], np.int32)
    first = _joined(origins, np.int64)
    offset, forward = frame.astype(np.int64) % 3, frame < 3
    spans = zip(first.tolist(), (first + 3 * codons).tolist(), forward.tolist(), strict=True)
    bases = (text[a:b] if ahead else reverse_complement(text[a:b]) for a, b, ahead in spans)
    # The part of a frame starts with the offset of its frame, on the strand of the frame.
    return Items(
        windows=windows,
        status=_status(lengths, windows.first, translatable, per_window),
        per_window=per_window,
        frame=frame,
        length=codons,
        start=(first - starts[per_window > 0] - np.where(forward, offset, 0)).astype(np.int32),
        span=(3 * codons + offset).astype(np.int32),
        digests=b"".join(map(_digest, bases)),
    )


def _window_items(text: bytes, lengths: IntArray, windows: Windows) -> Items:
    starts, ends = _in_text(windows, lengths)
    chosen = _scorable(text, starts, ends, windows.first)
    per_window = chosen.astype(np.int64)
    status = np.select(
        [_per_record(windows.first, per_window) > 0, lengths < LEAST_BASES],
        [RecordStatus.SCORABLE, RecordStatus.TOO_SHORT],
        RecordStatus.AMBIGUOUS_BASES,
    )
    return Items(
        windows=windows,
        status=status.astype(np.uint8),
        per_window=per_window,
        frame=np.full(int(per_window.sum()), WINDOW_ITEM, np.uint8),
        length=(ends - starts)[chosen].astype(np.int32),
        start=np.zeros(int(per_window.sum()), np.int32),
        span=(ends - starts)[chosen].astype(np.int32),
        digests=b"".join(_window_digests(text, starts[chosen], ends[chosen])),
    )


def _with_fallback(text: bytes, lengths: IntArray, items: Items) -> Items:
    """Add each scorable window without an item as an item; return all items."""
    starts, ends = _in_text(items.windows, lengths)
    scorable = _scorable(text, starts, ends, items.windows.first)
    added = np.flatnonzero((items.per_window == 0) & scorable)
    owners = np.repeat(np.arange(len(items.per_window)), items.per_window)
    position = np.searchsorted(owners, added)
    digests = np.frombuffer(items.digests, f"V{DIGEST_BYTES}")
    new = b"".join(_window_digests(text, starts[added], ends[added]))
    per_window = items.per_window.copy()
    per_window[added] = 1
    answered = _per_record(items.windows.first, per_window) > 0
    return Items(
        windows=items.windows,
        status=np.where(answered, RecordStatus.SCORABLE, items.status).astype(np.uint8),
        per_window=per_window,
        frame=np.insert(items.frame, position, WINDOW_ITEM),
        length=np.insert(items.length, position, (ends - starts)[added]),
        start=np.insert(items.start, position, 0),
        span=np.insert(items.span, position, (ends - starts)[added]),
        digests=np.insert(digests, position, np.frombuffer(new, digests.dtype)).tobytes(),
    )


def _in_text(windows: Windows, lengths: IntArray) -> tuple[IntArray, IntArray]:
    """Return starts and ends of windows in the joined text of all records."""
    record_start = np.repeat(np.cumsum(lengths) - lengths, np.diff(windows.first))
    return windows.starts + record_start, windows.ends + record_start


def _scorable(text: bytes, starts: IntArray, ends: IntArray, first: IntArray) -> BoolArray:
    """Return whether each window is long enough, and known enough, to be an item as a whole.

    `first` are the bounds of the records' windows. A record in which no window is known enough has
    those of which at least half is known.
    """
    unknown = np.frombuffer(text.translate(_UNKNOWN_LETTERS) + b"\0", np.uint8)
    length = ends - starts
    sums = np.zeros_like(length)
    # In blocks, because the sum converts all its letters to eight bytes each.
    for block in _blocks(starts) if unknown.any() else ():
        low, high = starts[block.start], ends[block].max()
        # The sum of each window, then one of no meaning up to the next window.
        bounds = np.stack((starts[block], ends[block]), axis=1).ravel() - low
        sums[block] = np.add.reduceat(unknown[low : high + 1], bounds, dtype=np.int64)[::2]
    known = np.where(length > 0, length - sums, 0)
    scorable: BoolArray = (length >= LEAST_BASES) & (known >= LEAST_KNOWN * length)
    without = np.repeat(_per_record(first, scorable) == 0, np.diff(first))
    if without.any():
        scorable |= without & (known >= np.maximum(LEAST_BASES, _HALF_KNOWN * length))
    return scorable


def _window_digests(text: bytes, starts: IntArray, ends: IntArray) -> Iterator[bytes]:
    """Yield a digest per window, which differs from the digest of a frame with the same bases."""
    for low, high in zip(starts.tolist(), ends.tolist(), strict=True):
        yield _window_digest(text[low:high])


def _window_digest(bases: bytes) -> bytes:
    digest = _OF_WINDOW.copy()  # half the time of a new one
    digest.update(bases)
    return digest.digest()


def _per_record(first: IntArray, values: npt.NDArray[np.generic]) -> IntArray:
    """Return the sum of `values`, which has one entry per window, for each record."""
    reach = np.concatenate(([0], np.cumsum(values, dtype=np.int64)))
    return reach[first[1:]] - reach[first[:-1]]


def _blocks(starts: IntArray) -> Iterator[slice]:
    """Yield slices of ascending `starts` (bases); each slice spans less than `_BLOCK_BASES`."""
    first = 0
    while first < len(starts):
        last = int(np.searchsorted(starts, starts[first] + _BLOCK_BASES))
        yield slice(first, last)
        first = last


def _joined(parts: Sequence[npt.NDArray[np.generic]], dtype: type[np.generic]) -> AnyArray:
    return np.concatenate((np.empty(0, dtype), *parts), dtype=dtype)


def _status(
    lengths: IntArray, first: IntArray, translatable: BoolArray, per_window: IntArray
) -> ByteArray:
    status = np.select(
        [_per_record(first, per_window) > 0, lengths < 3, _per_record(first, translatable) == 0],
        [RecordStatus.SCORABLE, RecordStatus.TOO_SHORT, RecordStatus.AMBIGUOUS_BASES],
        RecordStatus.NO_OPEN_FRAME,
    )
    return status.astype(np.uint8)


def _frame_digests(
    text: bytes, starts: IntArray, ends: IntArray, frames: OpenFrames, code: GeneticCode
) -> list[bytes]:
    """Return one digest per frame, computed from the frame's bases.

    If codons are dropped and the bases do not determine the peptide, the digest also covers the
    peptide.
    """
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
    # If all dropped codons come after these bases, the bases alone determine the peptide.
    return _digest(bases if peptide(bases, code) == residues else bases + b"\0" + residues)


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=DIGEST_BYTES).digest()
