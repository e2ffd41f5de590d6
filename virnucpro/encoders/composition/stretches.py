"""The longest stretch without a stop in each of the six frames of windows.

A stretch is a run of consecutive codons of one frame that are known and no stops. A codon of the
other strand stands at the position of its leftmost base. So the frames of both strands are the
three remainders modulo 3 of positions.

Frames are ordered relative to the best frame, in its reading direction: the best frame, the
frames that start one and two bases later on the same strand, then the frame of the other strand
with the same codon borders, and those one and two bases later. Thus a window and its reverse
complement have the same frames in the same order.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from virnucpro.arrays import IntArray
from virnucpro.encoders.composition.letters import GAP, UNKNOWN_CODON, Letters
from virnucpro.sequences.translation import GeneticCode

FRAMES = 6
_PHASES = 3
_STOP = ord("*")

_PLACE_BITS = 24
"""Bits of a place in a window: windows are shorter than 2 ** 24 bases."""
_TIE_BITS = 16
_SUM_BITS = 32
"""Bits of the sum of all `_tie_weight` of a stretch; `_TIE_BITS` of them decide ties."""


@dataclass(frozen=True, slots=True)
class Stretches:
    """Stretches of n windows.

    Attributes
    ----------
    first
        ``(n,)`` int64: position of the first codon of the best stretch, in reading direction.
    step
        ``(n,)`` int64: 3 on the given strand, -3 on the other.
    codons
        ``(n,)`` int64: number of codons of the best stretch; may be 0.
    longest
        ``(n, 6)`` int64: codons of the longest stretch of each frame.
    stops
        ``(n, 6)`` int64: stops of each frame.
    known
        ``(n, 6)`` int64: codons of each frame without unknown letters.
    """

    first: IntArray
    step: IntArray
    codons: IntArray
    longest: IntArray
    stops: IntArray
    known: IntArray


_CODONS = np.arange(UNKNOWN_CODON)
OPPOSITE = np.full(2 * UNKNOWN_CODON, UNKNOWN_CODON, np.uint8)
OPPOSITE[:UNKNOWN_CODON] = (_CODONS & 3 ^ 2) << 4 | (_CODONS & 12 ^ 8) | _CODONS >> 4 ^ 2
"""Number of the reverse complement of each codon."""


def find_stretches(letters: Letters, code: GeneticCode) -> Stretches:
    """Return the stretches of all windows.

    Of stretches of equal length the one with the highest sum of `_tie_weight`, up to 65,535, is the
    best, and then the last one.
    """
    frames = _Frames(letters)
    forward = _strand(frames, code, reverse=False)
    backward = _strand(frames, code, reverse=True)
    keys = np.concatenate((forward.keys, backward.keys), axis=1)
    # A window without any stretch has its first frame as the best one.
    best = np.where(keys.max(axis=1) > 0, keys.argmax(axis=1), letters.starts % _PHASES)
    rows = np.arange(len(best))
    codons = np.concatenate((forward.longest, backward.longest), axis=1)
    last = np.concatenate((forward.last, backward.last), axis=1)[rows, best]
    length = codons[rows, best]
    on_reverse = best >= _PHASES
    first = np.where(on_reverse, last, last - 3 * (length - 1))
    order = _relative_order()[best]
    known = np.concatenate((frames.known, frames.known), axis=1)
    stops = np.concatenate((forward.stops, backward.stops), axis=1)
    return Stretches(
        first=first,
        step=np.where(on_reverse, -3, 3),
        codons=length,
        longest=np.take_along_axis(codons, order, axis=1),
        stops=np.take_along_axis(stops, order, axis=1),
        known=np.take_along_axis(known, order, axis=1),
    )


@dataclass(frozen=True, slots=True)
class _Strand:
    """One strand's longest stretches and stops, all ``(n_windows, 3)``: a column a phase.

    Attributes
    ----------
    keys
        Comparison key of the longest stretch.
    longest
        Its codons.
    last
        Position of its last codon from left to right.
    stops
        Number of stops.
    """

    keys: IntArray
    longest: IntArray
    last: IntArray
    stops: IntArray


class _Frames:
    """The codons of three phases one after the other, in the order of positions in each."""

    def __init__(self, letters: Letters) -> None:
        self.rows = -(-len(letters.codons) // _PHASES)
        missing = self.rows * _PHASES - len(letters.codons)
        # The gap at the end is unknown in every frame, so copies of its codons change nothing.
        filled = np.concatenate((letters.codons, letters.codons[:missing]))
        self.codons = filled.reshape(self.rows, _PHASES).T.ravel()
        self.n_windows = len(letters.starts)
        # Frames of a window end with the gap after it, the first frames start with the first gap.
        ends = letters.starts[:-1] + letters.lengths[:-1] + GAP
        begins = (ends[None, :] - np.arange(_PHASES)[:, None] + _PHASES - 1) // _PHASES
        offsets = np.arange(_PHASES)[:, None] * self.rows
        leading = np.zeros((_PHASES, 1), np.int64)
        self.segments = (np.concatenate((leading, begins), axis=1) + offsets).ravel()
        self.starts = np.tile(letters.starts, _PHASES)
        sure = (self.codons < UNKNOWN_CODON).view(np.uint8)
        self.known = self.by_window(np.add.reduceat(sure, self.segments, dtype=np.int64))

    def by_window(self, values: IntArray) -> IntArray:
        """Return ``(n_windows, 3)`` values from one per phase and window."""
        return values.reshape(_PHASES, self.n_windows).T


def _strand(frames: _Frames, code: GeneticCode, *, reverse: bool) -> _Strand:
    """Return the longest stretch of each frame by one running sum over all codons.

    A break is a codon that ends a stretch: a stop or an unknown codon. The weight of a stretch is
    the difference of the running sums at two breaks. A codon weighs 2 ** 32 plus its `_tie_weight`,
    so that the weight has the number of codons in its bits from 32 on. The key of a stretch has the
    number of its codons, the sum of their tie weights (at most 65,535), and the place of its break
    in bases from the start of the window. The largest key of a frame is that of its longest
    stretch.
    """
    weights = codon_weights(code, reverse)[frames.codons]
    breaks = np.flatnonzero(weights == 0)
    sums = np.cumsum(weights, dtype=np.int64)[breaks]
    # Stretch i ends at break i. The first codon of all is in a gap, thus a break.
    weights = np.diff(sums, prepend=0)
    segments = np.searchsorted(breaks, frames.segments)
    starts = np.repeat(frames.starts, np.diff(segments, append=len(breaks)))
    place = breaks % frames.rows * _PHASES + breaks // frames.rows - starts
    # The place in the window decides between equal stretches, so other windows have no influence.
    ties = np.minimum(weights & ((1 << _SUM_BITS) - 1), (1 << _TIE_BITS) - 1)
    keys = weights >> _SUM_BITS << _TIE_BITS + _PLACE_BITS | ties << _PLACE_BITS | place
    keys = np.maximum.reduceat(np.where(weights > 0, keys, 0), segments)
    longest = keys >> _TIE_BITS + _PLACE_BITS
    last = (keys & ((1 << _PLACE_BITS) - 1)) + frames.starts - _PHASES
    is_stop = frames.codons[breaks] < UNKNOWN_CODON
    stops = np.add.reduceat(is_stop, segments, dtype=np.int64)
    return _Strand(*map(frames.by_window, (keys, longest, last, stops)))


@lru_cache
def codon_weights(code: GeneticCode, reverse: bool) -> IntArray:  # noqa: FBT001 - a cached lookup
    """Return the weight of each codon of a strand in the choice of a stretch; 0 for breaks."""
    weights = np.zeros(2 * UNKNOWN_CODON, dtype=np.int64)
    for codon in range(UNKNOWN_CODON):
        read = int(OPPOSITE[codon]) if reverse else codon
        if code[read] != _STOP:
            weights[codon] = (1 << _SUM_BITS) + _tie_weight(read)
    return weights


def _tie_weight(codon: int) -> int:
    """Return 0 to 191: genes prefer a purine as first and a pyrimidine as third letter.

    Source of the preference: J. C. W. Shepherd, PNAS 78, 1596 (1981). The last six bits separate
    codons, so that ties are rare.
    """
    first, third = codon >> 4, codon & 3
    return 64 * ((first >= 2) + (third < 2)) + codon


@lru_cache
def _relative_order() -> IntArray:
    """Return the order of frames for each best frame, (6, 6)."""
    orders = []
    for best in range(FRAMES):
        strand, phase = divmod(best, _PHASES)
        direction = -1 if strand else 1
        phases = [(phase + direction * shift) % _PHASES for shift in range(_PHASES)]
        orders.append([s * _PHASES + p for s in (strand, 1 - strand) for p in phases])
    return np.array(orders)
