"""One unit of rows through the encoders and the head: the numbers of a segment."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from virnucpro.classify.head import Head
from virnucpro.encoders.batching import Filling
from virnucpro.pipeline.worker.models import Models
from virnucpro.pipeline.worker.nan_check import RowNumbers, problems
from virnucpro.pipeline.worker.poison_isolation import (
    FINISHING,
    Suspicion,
    UnitSpan,
    Watch,
    arranged,
    tokenising,
)
from virnucpro.pipeline.worker.rank_encoder import Again, RankEncoder
from virnucpro.pipeline.worker.rank_task import RankTask
from virnucpro.pipeline.worker.unit_tokens import UnitTokens
from virnucpro.sequences.index import SequenceIndex
from virnucpro.store.schema import RowState
from virnucpro.store.segment import Segment

__all__ = ["RowEmbedder"]

_NO_TOKENS = np.empty(0, np.int64)

_DTYPES: Mapping[str, type[np.floating]] = {"fp16": np.float16, "fp32": np.float32}


class RowEmbedder:
    """Turns rows of an index into segments.

    Batches are made within a unit, so that their composition, and with it the last bit of every
    number, does not depend on which rank does the unit, as long as no memory runs out.

    Parameters
    ----------
    task, index
        What to compute, and of which rows.
    learnt
        What `learnt` of a former embedder on the same kind of device gave. On a GPU of which
        nothing is known, a first budget is found by trial.
    models
        Loaded before, for a task with the same encoders, head, precision and device.

    Attributes
    ----------
    seconds
        Time spent so far, by stage; of tokens that were fed, the time spent waiting for them.
    again
        Rows that were not finite in their batch and are when alone: how many have their numbers
        from which precision, the coarsest where encoders differ.
    filling
        How full the batches of all encoders were so far.
    """

    def __init__(
        self,
        task: RankTask,
        index: SequenceIndex,
        learnt: Mapping[str, int] | None = None,
        models: Models | None = None,
    ) -> None:
        torch.set_num_threads(task.threads)
        self._task = task
        self._index = index
        models = models or Models.of(task, learnt)
        self._encoders, self._head = models.encoders, models.head
        self.seconds = {"tokenise": 0.0, "encode": 0.0, "score": 0.0, "again": 0.0}
        self.again: Counter[str] = Counter()
        self.filling = Filling()
        if task.torch_device == "cuda":
            self._find_budgets()

    @property
    def learnt(self) -> dict[str, int]:
        """How many tokens fit at once: plain data for the next embedder on such a device."""
        return {key: n for one in self._encoders for key, n in one.budget.learnt.items()}

    def feed(self, unit: int, first: int, last: int) -> list[UnitTokens]:
        """Turn a unit's rows into the tokens of each encoder, for `embed`, in whatever thread."""
        return [
            UnitTokens(unit, self._tokenised(one, np.arange(first, last))) for one in self._encoders
        ]

    def embed(
        self,
        unit: int,
        first: int,
        last: int,
        watch: Watch,
        suspicion: Suspicion,
        fed: Future[list[UnitTokens]] | None = None,
    ) -> Segment:
        """Make the segment of `unit`, rows ``first`` to ``last - 1``.

        A batch that does not fit into memory is split, and smaller ones are made from then on. A
        row with a number that is not finite is tried once more, alone, at fp32 or as near to it as
        there is room for. Rows that do not fit alone, that stay not finite, or that `suspicion`
        convicts are quarantined: zeros, and the reason beside them.

        Parameters
        ----------
        watch
            Told before each batch which rows are in it, and after it how far the unit is.
        suspicion
            What earlier attempts at this unit taught.
        fed
            What `feed` gives of this unit, where it is under way: only of one in which nothing has
            died. Else rows become tokens here and now.
        """
        work = _UnitWork(len(self._encoders), watch)
        ready = None if fed is None else self._wait_for(fed, unit, last - first, watch)
        # A CPU has nothing to gain: what runs beside takes the very cores that encode.
        ahead = ready is not None and self._task.torch_device != "cpu"
        for encoder in self._encoders:
            if ready is None:
                tokens = self._tokens(encoder, unit, first, last, suspicion, watch)
            else:
                tokens = ready[encoder.number]
            with self._timed("encode"):
                encoded = encoder.vectors(
                    tokens,
                    suspicion,
                    watch.at,
                    work.through,
                    shortest=partial(self._shortest, encoder),
                    ahead=ahead,
                )
            self.filling += encoded.filling
            untold = suspicion.convicted_in(tokenising(encoder.number))
            work.add(tokens, encoded.vectors, {**encoded.reasons, **untold})
        watch.at(UnitSpan(unit, FINISHING, 0, 0))
        numbers = self._numbers(work.vectors)
        if failing := problems(numbers).keys() - work.reasons.keys():
            numbers = self._once_more(work, sorted(failing))
        return self._segment(unit, first, numbers, work.reasons)

    def try_alone(
        self, place: UnitSpan, first: int, last: int, watch: Watch, suspicion: Suspicion
    ) -> None:
        """Do again, alone and first of all, what an earlier attempt died of after other work.

        Parameters
        ----------
        place
            Of one row, in a unit that has the rows ``first`` to ``last - 1``.
        """
        number = place.stage if place.stage >= 0 else tokenising(0) - place.stage
        encoder = self._encoders[number]
        if place.stage < 0:
            watch.at(place)
            self._tokenised(encoder, np.array([first + place.first], np.int64))
            return
        tokens = self._tokens(encoder, place.unit, first, last, suspicion, watch)
        watch.at(place)
        encoder.try_alone(tokens, place.first)

    def _wait_for(
        self, fed: Future[list[UnitTokens]], unit: int, n_rows: int, watch: Watch
    ) -> list[UnitTokens]:
        """Take what the feeder made; should it fail or hang, it did so on this unit's rows."""
        watch.at(UnitSpan(unit, tokenising(0), 0, n_rows))
        with self._timed("tokenise"):
            return fed.result()

    def _tokens(
        self,
        encoder: RankEncoder,
        unit: int,
        first: int,
        last: int,
        suspicion: Suspicion,
        watch: Watch,
    ) -> UnitTokens:
        """Turn a unit's rows into tokens: none for a row that may not be tried."""
        stage = tokenising(encoder.number)
        ids = [_NO_TOKENS] * (last - first)
        with self._timed("tokenise"):
            for piece, _ in arranged([range(last - first)], last - first, suspicion, stage):
                watch.at(UnitSpan(unit, stage, int(piece[0]), int(piece[-1]) + 1))
                for row, tokens in zip(piece, self._tokenised(encoder, first + piece), strict=True):
                    ids[row] = tokens
        return UnitTokens(unit, ids)

    def _tokenised(self, encoder: RankEncoder, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        return encoder.encoder.tokenise(self._index.sequences(rows, encoder.encoder.view))

    def _numbers(self, vectors: Sequence[torch.Tensor]) -> RowNumbers:
        """Finish what is stored of some rows."""
        joined = torch.cat(list(vectors), 1)
        names = [spec.name for spec in self._task.encoders]
        return RowNumbers(
            [(name, part.numpy()) for name, part in zip(names, vectors, strict=True)],
            self._stored(joined),
            None if self._head is None else self._scores(self._head, joined),
        )

    def _scores(self, head: Head, vectors: torch.Tensor) -> NDArray[np.float32]:
        with self._timed("score"):
            scores = head.scores(vectors.to(self._task.torch_device)).cpu().numpy()
        return np.array(scores, np.float32)

    def _stored(self, vectors: torch.Tensor) -> NDArray[np.floating] | None:
        if self._task.embeddings == "none":
            return None
        with np.errstate(over="ignore"):  # an overflow to infinity is quarantined, not warned of
            stored: NDArray[np.floating] = vectors.numpy().astype(_DTYPES[self._task.embeddings])
            return stored

    def _once_more(self, work: "_UnitWork", rows: Sequence[int]) -> RowNumbers:
        """Encode rows that are not finite again, alone; note those that stay so."""
        with self._timed("again"):
            tried = {row: self._encode_alone(work, row) for row in rows}
        numbers = self._numbers(work.vectors)
        for row, problem in problems(numbers).items():
            if row not in work.reasons:
                how = "; ".join(dict.fromkeys(again.how for again in tried[row]))
                work.reasons[row] = f"{problem}, {how}"
        for row in tried.keys() - work.reasons.keys():
            precisions = {again.precision for again in tried[row]}
            self.again["bf16" if "bf16" in precisions else "fp32"] += 1
        return numbers

    def _encode_alone(self, work: "_UnitWork", row: int) -> list[Again]:
        """Encode a row by every encoder whose vector is not finite, or by all if none is."""
        culprits = [
            number for number, part in enumerate(work.vectors) if not part[row].isfinite().all()
        ]
        tried: list[Again] = []
        for number in culprits or range(len(self._encoders)):
            again = self._encoders[number].alone(work.tokens[number], row, work.watch.at)
            tried.append(again)
            if again.too_large:
                work.reasons[row] = again.too_large
            if again.vector is not None:
                work.vectors[number][row] = again.vector
        return tried

    def _segment(
        self, unit: int, first: int, numbers: RowNumbers, reasons: Mapping[int, str]
    ) -> Segment:
        n_rows = len(numbers.vectors[0][1])
        state = np.full(n_rows, RowState.DONE, np.uint8)
        state[list(reasons)] = RowState.QUARANTINED
        for values in (numbers.stored, numbers.scores):
            if values is not None:
                values[state == RowState.QUARANTINED] = 0
        return Segment(
            unit=unit,
            fingerprint=self._task.fingerprint,
            rows=np.arange(first, first + n_rows, dtype=np.int64),
            state=state,
            embeddings=numbers.stored,
            scores=numbers.scores,
            reasons={first + row: reason for row, reason in sorted(reasons.items())},
        )

    def _find_budgets(self) -> None:
        for encoder in self._encoders:
            longest = self._sequence(encoder, 0)  # rows stand longest first
            encoder.find_budget(longest, self._task.batch_tokens)

    def _shortest(self, encoder: RankEncoder) -> int:
        """Give the tokens that the run's shortest row has at the most: its letters, and two."""
        return len(self._sequence(encoder, self._index.n_rows - 1)) + 2

    def _sequence(self, encoder: RankEncoder, row: int) -> bytes:
        (sequence,) = self._index.sequences(np.array([row]), encoder.encoder.view)
        return sequence

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[stage] += time.perf_counter() - started


class _UnitWork:
    """What is known of one unit while it is computed; rows are counted within the unit."""

    def __init__(self, n_encoders: int, watch: Watch) -> None:
        self.watch = watch
        self.tokens: list[UnitTokens] = []
        self.vectors: list[torch.Tensor] = []
        self.reasons: dict[int, str] = {}
        self._n_encoders = n_encoders
        self._through = 0

    def through(self, rows: int) -> None:
        """Count rows that are through one encoder."""
        self._through += rows
        self.watch.through(self._through // self._n_encoders)

    def add(self, tokens: UnitTokens, vectors: torch.Tensor, reasons: Mapping[int, str]) -> None:
        """Take what one encoder gave; the first reason of a row counts."""
        self.tokens.append(tokens)
        self.vectors.append(vectors)
        self.reasons = {**reasons, **self.reasons}
