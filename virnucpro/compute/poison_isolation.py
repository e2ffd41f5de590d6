"""Find the row that kills its worker: compute suspected rows last, in halves.

Pure functions. A restarted worker receives the positions at which earlier workers died. It computes
all other batches first. A batch in which workers died twice is computed last, in two halves. If a
worker dies in one half, only that half stays suspected. One row out of n is therefore found after
about log2(n) restarts.

The task of a `TaskSpan` is a unit. Its stage is the position of an encoder in the order of the
run, a result of `tokenising_stage`, or `FINISHING`. Its items are positions of the unit's rows,
sorted by descending length for an encoder, else in input order. They do not depend on batch sizes.
"""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from virnucpro.arrays import IntArray
from virnucpro.encoders.batching import batches
from virnucpro.runtime.policy import Findings, TaskSpan

FINISHING = -1
"""Number of the stage after the encoders: classify and store all rows of a unit together."""


def tokenising_stage(encoder: int) -> int:
    """Return the stage number (negative) of the tokenising for encoder number `encoder`."""
    return FINISHING - 1 - encoder


def suspects_in(findings: Findings, stage: int) -> list[range]:
    """Return the position ranges of the suspected rows of a stage; they are computed last."""
    return _ranges(findings.suspects, stage)


def isolated_in(findings: Findings, stage: int) -> dict[int, str]:
    """Return position and reason of each isolated row of a stage; it is not computed."""
    why = "kills_process: the worker dies even if it encodes this row alone"
    return {
        span.first: f"{why}: {fault.reason}"
        for span, fault in findings.isolated
        if span.stage == stage
    }


def encoder_batches(
    lengths: IntArray, budget: Callable[[int], int], findings: Findings, encoder: int
) -> Iterator[IntArray]:
    """Yield the batches of a unit's rows for one encoder; see `suspects_last` for the order.

    Parameters
    ----------
    lengths
        (n,) tokens of each row, descending.
    budget
        Token budget as for `batches`. Rows of a batch in which workers died are divided into two
        halves, to find the row that kills workers; the budget also limits these halves.
    findings
        Suspected and isolated rows of the unit.

    Yields
    ------
    (k,) int64, k >= 1
        Ascending positions in `lengths`. Each position occurs exactly once, except the positions of
        isolated rows (known to kill workers).
    """
    for piece, suspected in suspects_last(
        batches(lengths, budget), len(lengths), findings, encoder
    ):
        if not suspected:
            yield piece
            continue
        for batch in batches(lengths[piece], budget):
            yield piece[batch.start : batch.stop]


def suspects_last(
    whole_batches: Iterable[range], n_rows: int, findings: Findings, stage: int
) -> Iterator[tuple[IntArray, bool]]:
    """Yield the batches of a stage in an order that computes suspected rows last.

    Isolated rows (known to kill workers) are removed from all batches. Batches in which no worker
    died come first. Batches in which a worker died once follow. Suspected spans come last, each in
    two halves.

    Parameters
    ----------
    whole_batches
        The batches as ranges of positions, together all positions from 0 to ``n_rows - 1``.
    findings
        Suspected and isolated rows of the unit.

    Yields
    ------
    (k,) int64, k >= 1
        Ascending positions. Each position occurs exactly once, except the positions of isolated
        rows.
    bool
        Whether the positions are suspected.
    """
    isolated = isolated_in(findings, stage)
    suspects = suspects_in(findings, stage)
    seen = _ranges(findings.seen, stage)  # taken late

    def kept(positions: range) -> list[IntArray]:
        rows = np.arange(positions.start, positions.stop)
        if isolated:
            rows = rows[~np.isin(rows, list(isolated))]
        return [rows] if len(rows) else []

    late: list[range] = []
    for batch in whole_batches:
        for part in _around(batch, suspects):
            if any(_overlap(part, span) for span in seen):
                late.append(part)
            else:
                yield from ((piece, False) for piece in kept(part))
    for part in late:
        yield from ((piece, False) for piece in kept(part))
    for span in suspects:
        for piece in kept(range(span.start, min(span.stop, n_rows))):
            yield from ((half, True) for half in np.array_split(piece, 2) if len(half))


def _ranges(spans: tuple[TaskSpan, ...], stage: int) -> list[range]:
    return sorted(
        (range(span.first, span.stop) for span in spans if span.stage == stage),
        key=lambda positions: positions.start,
    )


def _overlap(rows: range, other: range) -> bool:
    return max(rows.start, other.start) < min(rows.stop, other.stop)


def _around(batch: range, suspects: list[range]) -> Iterator[range]:
    """Yield the parts of a batch outside of the position ranges `suspects`, in order."""
    start = batch.start
    for span in suspects:
        if _overlap(batch, span):
            yield range(start, span.start)
            start = span.stop
    yield range(start, batch.stop)
