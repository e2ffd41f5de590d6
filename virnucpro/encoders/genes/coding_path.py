"""Find the coding path of a span: the codons of its best way through six frames that may shift.

A path is a row of codons from left to right, with bases outside of them. From one codon to the next
it stays in its frame, shifts it by one base (the next codon shares a base, or leaves one out), or
changes the strand; or it leaves and starts again. Each but the first has a cost. The best path has
the highest sum of codon scores less its costs, in units of `genes.UNIT`.

In reads with errors genes are broken at each lost or added base; the path goes on.
"""

from functools import partial, reduce
from typing import Final

import numpy as np
from numpy.typing import NDArray

from virnucpro.arrays import AnyArray, ByteArray, IntArray, table
from virnucpro.encoders.composition.features import AMINO_ACIDS
from virnucpro.encoders.composition.letters import UNKNOWN_CODON
from virnucpro.encoders.genes.genes import CODE, UNIT, Spans

SHIFT_COST: Final = 20
START_COST: Final = 28
CHANGE_COST: Final = 40

STEPS: Final = (
    "path codons",
    "forward path codons",
    "frame shifts",
    "strand changes",
    "path starts",
    "path score",
)
_SAME, _CHANGE, _SHARED, _LEFT_OUT, _START = range(5)
_BACK: Final = np.array([3, 3, 2, 4, 3])
"""Bases from the end of a codon to the end of what is before it, for each of these steps."""
_COSTS: Final = (0, CHANGE_COST, SHIFT_COST, SHIFT_COST, START_COST)
_RANKS: Final = (4, 3, 2, 1, 0)
_ROOM: Final = 8
_NEVER: Final = -(1 << 27)
_N: Final = len(AMINO_ACIDS)
_RESIDUES: Final = np.array(
    [AMINO_ACIDS.find(bytes([CODE[codon]])) for codon in range(64)] + [-1] * 64
)
"""Number of the amino acid of each codon; -1 for stops and unknown codons."""


def coding_paths(spans: Spans, scored: NDArray[np.int16]) -> tuple[IntArray, IntArray, IntArray]:
    """Return the sums of the coding path of each span.

    Parameters
    ----------
    scored
        `Spans.scored`.

    Returns
    -------
    tuple
        ``(n, 64)`` codons; ``(n, 400)`` pairs of residues that follow each other in one frame;
        ``(n, len(STEPS))``.
    """
    steps, inside, best = _search(_by_place(scored))
    row, end, strand = _trace(steps, inside)
    n, codon = len(best), _by_place(spans.frames)[end - 3, strand, row]
    step, residue, known = steps[end, strand, row], _RESIDUES[codon], codon < UNKNOWN_CODON
    # Of two codons that follow each other in one frame, the right one comes first.
    right = np.flatnonzero((step == _SAME)[:-1] & (residue[:-1] >= 0) & (residue[1:] >= 0))
    forward = strand[right] == 0
    first, second = residue[right + forward], residue[right + ~forward]
    pairs = table(row[right], first * _N + second, n, _N**2)
    columns = [np.bincount(row[known & (strand < side)], minlength=n) for side in (2, 1)]
    kinds = np.isin(step, (_SHARED, _LEFT_OUT)), step == _CHANGE, step == _START
    columns += [np.bincount(row[kind], minlength=n) for kind in kinds]
    by_codon = table(row[known], codon[known], n, 64)
    return by_codon, pairs, np.column_stack((*columns, best // UNIT))


def _trace(steps: ByteArray, inside: ByteArray) -> tuple[IntArray, IntArray, IntArray]:
    """Return span, end and strand of all codons on the best paths, span by span from the right."""
    numbers = np.arange(len(inside))[:, None]
    last_inside = np.maximum.accumulate(np.where(inside > 0, numbers, 0), axis=0)
    row = np.arange(inside.shape[1])
    end, strand = last_inside[-1], np.full(len(row), -1)
    rows, ends, strands = [], [], []
    while True:
        end = np.where(strand < 0, last_inside[end, row], end)
        going = np.flatnonzero(end)
        row, end, strand = row[going], end[going], strand[going]
        strand = np.where(strand < 0, inside[end, row] - np.int64(1), strand)
        rows.append(row)
        ends.append(end)
        strands.append(strand)
        if not len(row):
            break
        step = steps[end, strand, row]
        end = end - _BACK[step]
        strand = np.where(step == _START, -1, np.where(step == _CHANGE, 1 - strand, strand))
    row = np.concatenate(rows)
    order = np.argsort(row, kind="stable")
    return row[order], np.concatenate(ends)[order], np.concatenate(strands)[order]


def _by_place(frames: AnyArray) -> AnyArray:
    """Return ``(width, 2, n)`` of `Spans.frames`: codons of both strands by their leftmost base."""
    strands = frames[:, :3, :-1], frames[:, 3:, -2::-1]
    return np.stack([s.transpose(2, 1, 0).reshape(-1, len(frames)) for s in strands], axis=1)


def _search(scores: NDArray[np.int16]) -> tuple[ByteArray, ByteArray, IntArray]:
    """Return the best steps.

    Parameters
    ----------
    scores
        ``(width, 2, n)``, by `_by_place`.

    Returns
    -------
    tuple
        The first two have a row for each number of bases before an end. ``(width + 1, 2, n)``: the
        step before the codon of each strand that ends there; ``(width + 1, n)``: 1 plus the strand
        of the codon that best ends there, 0 if it is better to be outside; ``(n,)``: the score of
        the path.
    """
    width, _, n = scores.shape
    # All scores are multiples of `_ROOM`: of options with a rank added, the highest is the first
    # of the best ones, and its rest is its rank. Row i + 1 is after i bases.
    gain = scores.astype(np.int32) * _ROOM
    costs = [cost * _ROOM - rank for rank, cost in zip(_RANKS, _COSTS, strict=True)]
    on = np.full((width + 2, 2, n), _NEVER, np.int32)
    outside = np.zeros((width + 2, n), np.int32)
    best, ends = np.zeros((width + 1, 2, n), np.int32), np.full((width + 1, n), 2, np.int32)
    for end in range(3, width + 1):
        same, shared, left_out = on[end - 2], on[end - 1], on[end - 3]
        before = (same, same[::-1], shared, left_out, outside[end - 2])
        options = [from_there - cost for from_there, cost in zip(before, costs, strict=True)]
        reduce(partial(np.maximum, out=best[end]), options)
        np.bitwise_and(best[end], -_ROOM, out=on[end + 1])
        on[end + 1] += gain[end - 3]
        forward, reverse = on[end + 1]
        np.maximum(np.maximum(outside[end] + 2, forward + 1), reverse, out=ends[end])
        np.bitwise_and(ends[end], -_ROOM, out=outside[end + 1])
    steps = _RANKS[0] - (best & (_ROOM - 1))
    inside = 2 - (ends & (_ROOM - 1))
    return steps.astype(np.uint8), inside.astype(np.uint8), outside[-1].astype(np.int64) // _ROOM
