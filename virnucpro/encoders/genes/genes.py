"""Find genes in spans of a record: open frames, scored by their codons.

A span is a piece of at most `SPAN` bases. Its six frames are rows of codons in reading direction.
A candidate is a run of at least `LEAST` codons without a stop, from its first start codon on, or
from the border of the span. Its score is the sum of log odds of its codons: in genes against the
other five frames at the same place, at the GC content of the span. Candidates are chosen by score;
a chosen one excludes others that overlap it by more than `_OVERLAP` bases.

The genes of a span depend on its bases and the codon scores alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from virnucpro.arrays import BoolArray, ByteArray, IntArray
from virnucpro.encoders.composition.letters import NUMBERS, UNKNOWN_CODON, codon_number
from virnucpro.encoders.composition.stretches import OPPOSITE
from virnucpro.sequences.translation import genetic_code

SPAN: Final = 4_000
"""Maximum bases of a span."""
LEAST: Final = 30
"""Minimum codons of a gene."""
GC_CLASSES: Final = 8
"""Classes of GC content, 10 % each; the first one ends at 20 %, the last one starts at 80 %."""
UNIT: Final = 8
"""Codon scores are integers, in nats divided by this."""
HIGHEST_SCORE: Final = 4 * UNIT
"""Highest absolute score of a codon, and that of a stop; sums of many spans have 32 bits."""
STRANDS: Final = 2
FRAMES: Final = 6
CODE: Final = genetic_code(11)

_LEAST_SCORE: Final = 8 * UNIT
_OVERLAP: Final = 60
_OVERLAP_SHARE: Final = 0.4

Scores = NDArray[np.int16]
"""(GC_CLASSES, 128) int16: the score of each codon; of unknown codons 0."""

IS_STOP: Final = np.array([CODE[codon] == ord("*") for codon in range(64)] + [False] * 64)
_BREAKS: Final = IS_STOP | (np.arange(128) >= UNKNOWN_CODON)


STARTS: Final = tuple(map(codon_number, ("ATG", "GTG", "TTG")))
_IS_START: Final = np.isin(np.arange(128), STARTS)


@dataclass(frozen=True, slots=True)
class Spans:
    """Several spans, as letters and frames.

    Attributes
    ----------
    letters
        ``(n, width)`` uint8: numbers in `CODON_LETTERS`; 4 for other letters and after the end.
    lengths
        ``(n,)`` int64, bases.
    frames
        ``(n, 6, m)`` uint8: codons in reading direction, three frames of each strand, with at least
        one unknown codon at the end of each row. Codon j of frame f starts at ``f + 3 * j``; the
        one of frame 3 + f has its leftmost base at ``f + 3 * (m - 2 - j)``.
    gc
        ``(n,)`` int64: class of GC content.
    """

    letters: ByteArray
    lengths: IntArray
    frames: ByteArray
    gc: IntArray

    @classmethod
    def of(cls, spans: Sequence[bytes]) -> "Spans":
        """Return the letters and frames of spans."""
        lengths = np.fromiter(map(len, spans), np.int64, len(spans))
        width = -(-(int(lengths.max()) + 2) // 3) * 3
        padded = b"".join(span.translate(NUMBERS).ljust(width, b"\x04") for span in spans)
        letters = np.frombuffer(padded, np.uint8).reshape(len(spans), width)
        numbers, unknown = letters & np.uint8(3), letters >> np.uint8(2)
        codons = np.full(letters.shape, UNKNOWN_CODON, np.uint8)
        first = codons[:, :-2]
        first[:] = numbers[:, :-2] << np.uint8(4)
        first |= numbers[:, 1:-1] << np.uint8(2)
        first |= numbers[:, 2:]
        first |= (unknown[:, :-2] | unknown[:, 1:-1] | unknown[:, 2:]) << np.uint8(6)
        rows = codons.reshape(len(spans), -1, 3).transpose(0, 2, 1)
        frames = np.full((len(spans), FRAMES, rows.shape[2] + 1), UNKNOWN_CODON, np.uint8)
        frames[:, :3, :-1] = rows
        frames[:, 3:, :-1] = OPPOSITE[rows[:, :, ::-1]]
        # The letters are T, C, A, G: those of odd number are C and G.
        n_gc = np.count_nonzero(letters & np.uint8(1), axis=1)
        n_known = letters.shape[1] - np.count_nonzero(unknown, axis=1)
        gc = 10 * n_gc // np.maximum(n_known, 1) - 1
        return cls(letters, lengths, frames, np.clip(gc, 0, GC_CLASSES - 1))

    def scored(self, scores: Scores) -> NDArray[np.int16]:
        """Return the score of each codon of `frames`."""
        cells = self.frames + (self.gc.astype(np.uint16) << 7)[:, None, None]
        return np.take(scores.ravel(), cells)


@dataclass(frozen=True, slots=True)
class Genes:
    """Genes, sorted by span and left end; every array is ``(n,)``.

    Attributes
    ----------
    span
        Number of the span.
    reverse
        Whether the gene is on the other strand.
    left, codons
        Leftmost base in the span, and codons without the stop.
    place
        Place of the first codon in the flat frames.
    open5, open3
        Whether the start or the end is beyond the border of known bases.
    score
        Sum of the codon scores.
    """

    span: IntArray
    reverse: BoolArray
    left: IntArray
    codons: IntArray
    place: IntArray
    open5: BoolArray
    open3: BoolArray
    score: IntArray

    @property
    def right(self) -> IntArray:
        """End of the last codon, in bases of the span."""
        return self.left + 3 * self.codons

    def select(self, rows: IntArray | BoolArray) -> "Genes":
        """Return some of the genes."""
        return Genes(*(getattr(self, name)[rows] for name in self.__slots__))


def find_genes(spans: Spans, scored: NDArray[np.int16]) -> Genes:
    """Return the genes of spans; `scored` is `Spans.scored`."""
    found = open_frames(spans.frames, LEAST)
    sums = np.cumsum(scored.ravel(), dtype=np.int32)
    ends = found.place + found.codons - 1
    score = sums[ends].astype(np.int64) - sums[found.place] + scored.ravel()[found.place]
    found.score[:] = score
    found = found.select(score > _LEAST_SCORE)
    chosen = _chosen(found, len(spans.lengths))
    return found.select(chosen[np.lexsort((found.left[chosen], found.span[chosen]))])


def open_frames(frames: ByteArray, least: int) -> Genes:
    """Return all candidates of at least `least` codons, with scores of 0."""
    flat, m = frames.ravel(), frames.shape[2]
    breaks = np.concatenate(([-1], np.flatnonzero(_BREAKS[flat])))
    long = np.flatnonzero(np.diff(breaks) > least)
    before, end = breaks[long], breaks[long + 1]
    open5 = flat[before] >= UNKNOWN_CODON
    starts = np.append(np.flatnonzero(_IS_START[flat]), len(flat))
    first = starts[np.searchsorted(starts, before + 1)]
    place = np.where(open5, before + 1, first)
    codons = end - place
    kept = codons >= least
    place, codons, open5, end = place[kept], codons[kept], open5[kept], end[kept]
    row, begin = np.divmod(place, m)
    span, frame = np.divmod(row, FRAMES)
    reverse = frame >= FRAMES // STRANDS
    left = frame % 3 + 3 * np.where(reverse, m - 1 - begin - codons, begin)
    open3 = flat[end] >= UNKNOWN_CODON
    return Genes(span, reverse, left, codons, place, open5, open3, np.zeros_like(place))


def _chosen(found: Genes, n_spans: int) -> IntArray:
    """Choose greedily by score: in each round the best remaining candidate of each span."""
    # A place in the frames decides between equal scores.
    alive = np.lexsort((found.place, -found.score, found.span))
    right = found.right
    allowed = np.minimum(_OVERLAP, _OVERLAP_SHARE * 3 * found.codons)
    best_of = np.zeros(n_spans, np.int64)
    chosen = [np.empty(0, np.int64)]
    while len(alive):
        best = alive[np.flatnonzero(np.diff(found.span[alive], prepend=-1))]
        chosen.append(best)
        best_of[found.span[best]] = best
        other = best_of[found.span[alive]]
        shared = np.minimum(right[alive], right[other])
        shared -= np.maximum(found.left[alive], found.left[other])
        alive = alive[(shared <= allowed[alive]) & (other != alive)]
    return np.concatenate(chosen)
