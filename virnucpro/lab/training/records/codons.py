"""Codon scores of the gene finder, learned from long runs without a stop."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from virnucpro.encoders.genes.genes import (
    FRAMES,
    GC_CLASSES,
    HIGHEST_SCORE,
    IS_STOP,
    UNIT,
    Scores,
    Spans,
    open_frames,
)

_LEAST: Final = 200


def learn_scores(spans: Sequence[bytes]) -> Scores:
    """Return codon scores, learned from the runs of at least `_LEAST` codons in `spans`."""
    genes, others = np.full((GC_CLASSES, 64), 20.0), np.full((GC_CLASSES, 64), 20.0)
    for start in range(0, len(spans), 256):
        batch = Spans.of(spans[start : start + 256])
        m = batch.frames.shape[2]
        found = open_frames(batch.frames, _LEAST)
        for span, left, codons, place in zip(
            found.span, found.left, found.codons, found.place, strict=True
        ):
            of, gc = batch.frames[span], batch.gc[span]
            frame, begin = divmod(place - span * of.size, m)
            genes[gc] += np.bincount(of[frame, begin : begin + codons], minlength=64)[:64]
            first = left // 3
            both = (slice(first, first + codons), slice(m - 1 - first - codons, m - 1 - first))
            for other in range(FRAMES):
                if other != frame:
                    shadow = of[other, both[other // 3]]
                    others[gc] += np.bincount(shadow, minlength=128)[:64]
    odds = np.log(genes / genes.sum(axis=1, keepdims=True))
    odds -= np.log(others / others.sum(axis=1, keepdims=True))
    scores = np.zeros((GC_CLASSES, 128), np.int16)
    scores[:, :64] = np.clip(np.rint(UNIT * odds), -HIGHEST_SCORE, HIGHEST_SCORE)
    scores[:, IS_STOP] = -HIGHEST_SCORE
    return scores
