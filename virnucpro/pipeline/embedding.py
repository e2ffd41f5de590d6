"""One unit of rows through the encoders and the head: the numbers of a segment."""

import time
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

from virnucpro.classify.head import Head, load_head
from virnucpro.encoders.batching import longest_first
from virnucpro.encoders.registry import load_encoder
from virnucpro.pipeline.poison import Place, Suspicion, Watch, pieces
from virnucpro.pipeline.rank_task import RankTask
from virnucpro.sequences.index import SequenceIndex
from virnucpro.store.schema import RowState
from virnucpro.store.segment import Segment, finite_rows

__all__ = ["RowEmbedder"]

_DTYPES: Mapping[str, type[np.floating]] = {"fp16": np.float16, "fp32": np.float32}


class RowEmbedder:
    """Turns rows of an index into segments.

    Batches are made within a unit, so that their composition, and with it the last bit of every
    number, does not depend on which rank does the unit.
    """

    def __init__(self, task: RankTask, index: SequenceIndex) -> None:
        torch.set_num_threads(task.threads)
        self._task = task
        self._index = index
        self._encoders = [
            load_encoder(spec, task.torch_device, task.precision) for spec in task.encoders
        ]
        self._head = None if task.head is None else load_head(task.head, task.torch_device)
        self.seconds = {"tokenise": 0.0, "encode": 0.0, "score": 0.0}

    def embed(
        self, unit: int, first: int, last: int, watch: Watch, suspicion: Suspicion
    ) -> Segment:
        """Make the segment of `unit`, rows ``first`` to ``last - 1``.

        A row whose vector or score is not finite is quarantined, and so is one that `suspicion`
        convicts: zeros, and said so in its state.

        Parameters
        ----------
        watch
            Told before each batch which rows are in it, and after it how far the unit is.
        suspicion
            What earlier attempts at this unit taught.
        """
        rows = np.arange(first, last, dtype=np.int64)
        through = 0

        def count(n_rows: int) -> None:
            nonlocal through
            through += n_rows
            watch.through(through // len(self._encoders))

        reasons: dict[int, str] = {}
        parts = []
        for number, encoder in enumerate(self._encoders):
            started = time.perf_counter()
            tokens = encoder.tokenise(self._index.sequences(rows, encoder.view))
            self.seconds["tokenise"] += time.perf_counter() - started
            lengths = np.array([len(ids) for ids in tokens], np.int64)
            order = longest_first(lengths)
            for position, reason in suspicion.convicted_in(number).items():
                reasons.setdefault(int(order[position]), reason)
            vectors = torch.zeros(len(rows), encoder.dim)
            started = time.perf_counter()
            for piece in pieces(lengths[order], self._budget, suspicion, number):
                watch.at(Place(unit, number, int(piece[0]), int(piece[-1]) + 1))
                positions = order[piece]
                batch = encoder.encode([tokens[position] for position in positions])
                vectors[torch.from_numpy(positions)] = batch.to("cpu", torch.float32)
                count(len(positions))
            self.seconds["encode"] += time.perf_counter() - started
            parts.append(vectors)
        vectors = torch.cat(parts, 1)
        scores = None if self._head is None else self._scores(self._head, vectors)
        embeddings = self._stored(vectors)
        state, why = _quarantine(rows, vectors, embeddings, scores, reasons)
        return Segment(
            unit=unit,
            fingerprint=self._task.fingerprint,
            rows=rows,
            state=state,
            embeddings=embeddings,
            scores=scores,
            reasons=why,
        )

    def _budget(self, _longest: int) -> int:
        return self._task.batch_tokens

    def _scores(self, head: Head, vectors: torch.Tensor) -> NDArray[np.float32]:
        started = time.perf_counter()
        scores = head.scores(vectors.to(self._task.torch_device)).cpu().numpy()
        self.seconds["score"] += time.perf_counter() - started
        return np.array(scores, np.float32)

    def _stored(self, vectors: torch.Tensor) -> NDArray[np.floating] | None:
        if self._task.embeddings == "none":
            return None
        with np.errstate(over="ignore"):  # an overflow to infinity is quarantined, not warned of
            stored: NDArray[np.floating] = vectors.numpy().astype(_DTYPES[self._task.embeddings])
            return stored


def _quarantine(
    rows: NDArray[np.int64],
    vectors: torch.Tensor,
    embeddings: NDArray[np.floating] | None,
    scores: NDArray[np.float32] | None,
    known: Mapping[int, str],
) -> tuple[NDArray[np.uint8], dict[int, str]]:
    """Set rows aside that are not finite or `known` (by position): zeros, and the reason why."""
    state = np.full(len(rows), RowState.DONE, np.uint8)
    state[list(known)] = RowState.QUARANTINED
    reasons = {int(rows[position]): reason for position, reason in known.items()}
    checks = (
        (vectors.numpy(), "an encoder gave a vector that is not finite"),
        (embeddings, "the vector overflows the precision it is stored in"),
        (scores, "the head gave a score that is not finite"),
    )
    for values, reason in checks:
        if values is None:
            continue
        bad = np.flatnonzero(~finite_rows(values) & (state == RowState.DONE))
        state[bad] = RowState.QUARANTINED
        reasons |= {int(rows[position]): reason for position in bad}
    for values in (embeddings, scores):
        if values is not None:
            values[state == RowState.QUARANTINED] = 0
    return state, reasons
