"""Compute the vectors and scores of one unit of rows, which are the content of a segment."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from virnucpro.arrays import BoolArray, Float32Array, IntArray, IntegerArray, RealArray, finite_rows
from virnucpro.compute.encoder_pass import UnitTokens
from virnucpro.compute.poison_isolation import (
    FINISHING,
    isolated_in,
    suspects_last,
    tokenising_stage,
)
from virnucpro.compute.rank_encoder import Models, RankEncoder, Retry
from virnucpro.compute.rank_main import RankTask, UnitProgress
from virnucpro.encoders.batching import Filling
from virnucpro.runtime.policy import Findings, TaskSpan
from virnucpro.sequences.index import SequenceIndex
from virnucpro.store.schema import OVERFLOW, RowState
from virnucpro.store.segment import Segment


class RowNumbers(NamedTuple):
    """Vectors and scores of n rows.

    Attributes
    ----------
    vectors
        Name and vectors, (n, dim) float32, of each encoder, in the order of the run.
    stored
        (n, D) float16 or float32, the joined vectors as stored; None if no vectors are stored.
    scores
        (n, `Models.width`) float32; None without a classifier.
    owners
        (vectors,) int64, row of each vector; None if each row has one vector.
    """

    vectors: Sequence[tuple[str, Float32Array]]
    stored: RealArray | None
    scores: Float32Array | None
    owners: IntArray | None = None

    def owner(self, vector: int) -> int:
        """Return the row of a vector."""
        return vector if self.owners is None else int(self.owners[vector])


def unstorable_rows(numbers: RowNumbers) -> dict[int, str]:
    """Return a description of the error for each row with numbers that cannot be stored."""
    found: dict[int, str] = {}
    for name, values in numbers.vectors:
        for row in np.flatnonzero(~finite_rows(values)).tolist():
            bad = np.count_nonzero(~np.isfinite(values[row]))
            evidence = (
                f"{bad} of {values.shape[1]} numbers of the {name} vector are NaN or infinite"
            )
            found.setdefault(numbers.owner(row), f"not_finite: {evidence}")
    if numbers.stored is not None:
        for row in np.flatnonzero(~finite_rows(numbers.stored)).tolist():
            largest = max(float(np.abs(values[row]).max()) for _, values in numbers.vectors)
            evidence = (
                f"the vector has numbers up to {largest:.3g}, too large for "
                f"{numbers.stored.dtype} (start a new run with --embeddings fp32)"
            )
            found.setdefault(numbers.owner(row), f"{OVERFLOW}: {evidence}")
    if numbers.scores is not None:
        for row in np.flatnonzero(~finite_rows(numbers.scores)).tolist():
            found.setdefault(row, "not_finite: a score of the classifier is NaN or infinite")
    return found


_NO_TOKENS: IntegerArray = np.empty(0, np.int64)

_DTYPES: Mapping[str, type[np.floating]] = {"fp16": np.float16, "fp32": np.float32}


class RowEmbedder:
    """Computation of segments: vectors and scores of the rows of units.

    A batch contains rows of one unit only. If memory suffices, the results of a unit are therefore
    bitwise equal on all ranks.

    Parameters
    ----------
    task, index
        Parameters of the launch, and the index with the rows.
    models
        Loaded models for the encoders, classifier, precision and device of `task`; None to load
        the models here.

    Attributes
    ----------
    seconds
        Seconds of each stage. The stage ``tokenise`` includes only the waiting time for prefetched
        tokens.
    recomputed
        Number of rows that were recomputed alone at fp32. These rows had NaN or infinite numbers
        in the batch, and finite numbers alone.
    filling
        Sums of tokens and token budgets over all batches of all encoders.
    """

    def __init__(
        self,
        task: RankTask,
        index: SequenceIndex,
        models: Models | None = None,
    ) -> None:
        self._task, self._index = task, index
        self._models = models or Models(task, task.torch_device, task.precision, task.batch_tokens)
        self._encoders = self._models.encoders
        self._per_token = any(spec.pooling.per_token for spec in task.encoders)
        self.seconds = {"tokenise": 0.0, "encode": 0.0, "score": 0.0, "recompute": 0.0}
        self.recomputed = 0
        self.filling = Filling()
        if task.torch_device == "cuda":
            all_rows = np.arange(index.n_rows)
            for encoder in self._encoders:
                # Rows are sorted by descending length.
                longest = self._sequence(encoder, int(self._own(encoder, all_rows).argmax()))
                encoder.find_budget(longest, task.batch_tokens)

    def tokenise(self, unit: int, rows: range) -> list[UnitTokens]:
        """Tokenise the rows of a unit for `embed`; may be called in any thread.

        Return the tokens for each encoder, in the order of the run.
        """
        return [
            UnitTokens(unit, self._tokenised(encoder, rows), encoder.encoder.plan)
            for encoder in self._encoders
        ]

    def embed(
        self,
        unit: int,
        rows: range,
        watch: UnitProgress,
        findings: Findings,
        prefetched: Future[list[UnitTokens]] | None = None,
    ) -> Segment:
        """Compute the segment of `unit`, which contains the given rows of the index.

        A batch that does not fit into memory is split, and later batches are smaller. A row with a
        NaN or an infinity is computed again alone, at fp32 if memory suffices. Quarantined rows
        get zeros and a reason: rows that do not fit into memory alone, rows with NaN or infinite
        numbers also alone, and rows that `findings` lists as isolated.

        Parameters
        ----------
        watch
            Receives the rows of each batch before the batch is computed, and the number of
            completed rows after the batch is computed.
        findings
            Rows that may have killed a worker in earlier attempts at this unit.
        prefetched
            Future result of `tokenise`; None to tokenise the rows in this method. If the unit has
            suspected or isolated rows, `prefetched` must be None.
        """
        work = _UnitWork(len(self._encoders), watch)
        ready: list[UnitTokens] | None = None
        if prefetched is not None:
            # All rows are suspected if the process dies.
            watch.report_next(TaskSpan(unit, tokenising_stage(0), 0, len(rows)))
            with self._timed("tokenise"):
                ready = prefetched.result()
        # On a CPU, prefetching would compete with the encoder for cores.
        prefetch = ready is not None and self._task.torch_device != "cpu"
        for encoder in self._encoders:
            if ready is None:
                tokens = self._tokens(encoder, unit, rows, findings, watch)
            else:
                tokens = ready[encoder.number]
            with self._timed("encode"):
                encoded = encoder.vectors(
                    tokens,
                    findings,
                    watch.report_next,
                    work.add_encoded,
                    prefetch=prefetch,
                )
            self.filling += encoded.filling
            work.tokens.append(tokens)
            work.vectors.append(encoded.vectors)
            isolated = isolated_in(findings, tokenising_stage(encoder.number))
            work.reasons = {**encoded.reasons, **isolated, **work.reasons}
        watch.report_next(TaskSpan(unit, FINISHING, 0, 0))
        numbers = self._numbers(rows, work)
        if failing := unstorable_rows(numbers).keys() - work.reasons.keys():
            numbers = self._encode_again(rows, work, sorted(failing))
        return self._segment(unit, rows, numbers, work)

    def try_alone(
        self, span: TaskSpan, rows: range, watch: UnitProgress, findings: Findings
    ) -> None:
        """Tokenise or encode again, alone, the row at which a rank died.

        If the process dies again, this row is the cause.

        Parameters
        ----------
        span
            The row, and its stage: tokenising or encoding.
        rows
            All rows of the unit.
        """
        number = span.stage if span.stage >= 0 else tokenising_stage(0) - span.stage
        encoder = self._encoders[number]
        if span.stage < 0:
            watch.report_next(span)
            self._tokenised(encoder, [rows[span.first]])
            return
        tokens = self._tokens(encoder, span.task, rows, findings, watch)
        watch.report_next(span)
        encoder.try_alone(tokens, span.first)

    def _tokens(
        self,
        encoder: RankEncoder,
        unit: int,
        rows: range,
        findings: Findings,
        watch: UnitProgress,
    ) -> UnitTokens:
        """Return a unit's tokens for one encoder; isolated rows have no tokens."""
        stage = tokenising_stage(encoder.number)
        ids = [_NO_TOKENS] * len(rows)
        with self._timed("tokenise"):
            for piece, _ in suspects_last([range(len(rows))], len(rows), findings, stage):
                watch.report_next(TaskSpan(unit, stage, int(piece[0]), int(piece[-1]) + 1))
                found = self._tokenised(encoder, rows.start + piece)
                for row, tokens in zip(piece, found, strict=True):
                    ids[row] = tokens
        return UnitTokens(unit, ids, encoder.encoder.plan)

    def _tokenised(self, encoder: RankEncoder, rows: ArrayLike) -> list[IntegerArray]:
        """Return the tokens of each row; none for a row that this encoder does not encode."""
        positions = np.asarray(rows, np.int64)
        own = np.flatnonzero(self._own(encoder, positions))
        ids = [_NO_TOKENS] * len(positions)
        sequences = self._index.sequences(positions[own], encoder.encoder.view)
        found = encoder.encoder.tokenise(sequences)
        for row, tokens in zip(own.tolist(), found, strict=True):
            ids[row] = tokens
        return ids

    def _own(self, encoder: RankEncoder, rows: IntArray) -> BoolArray:
        """Return, for each row, whether its classifier has this encoder."""
        own: BoolArray = self._parts(rows) == self._models.part_of_encoder[encoder.number]
        return own

    def _parts(self, rows: IntArray) -> IntArray:
        """Return, for each row, the number of its classifier."""
        parts: IntArray = self._models.part_of[self._index.kinds(rows)]
        return parts

    def _numbers(self, rows: range, work: "_UnitWork") -> RowNumbers:
        """Return vectors and scores of a unit."""
        vectors = work.vectors
        stored: RealArray | None = None
        if self._task.embeddings != "none":
            joined = np.concatenate(vectors[: len(self._task.encoders)], axis=1)
            with np.errstate(over="ignore"):  # `unstorable_rows` finds an overflow to infinity
                stored = joined.astype(_DTYPES[self._task.embeddings])
        with self._timed("score"):
            scores = self._scores(np.asarray(rows, np.int64), vectors)
        names = [encoder.name for encoder in self._encoders]
        parts = list(zip(names, vectors, strict=True))
        return RowNumbers(parts, stored, scores, work.owners if self._per_token else None)

    def _scores(self, rows: IntArray, vectors: Sequence[Float32Array]) -> Float32Array | None:
        """Return the scores of rows, (n, `Models.width`); None without a classifier."""
        models = self._models
        if self._task.head is None:
            return None
        scores = np.zeros((len(rows), models.width), np.float32)
        parts = self._parts(rows)
        for number, (encoders, head, columns, n_facts) in enumerate(models.parts):
            own = np.flatnonzero(parts == number)
            assert head is not None
            own_vectors = [*vectors[encoders]]
            if len(own) < len(rows):
                own_vectors = [part[own] for part in own_vectors]
            joined = own_vectors[0]
            if len(own_vectors) > 1:  # most units have rows of one classifier and one encoder
                joined = np.concatenate(own_vectors, axis=1)
            scores[own, :columns] = head.scores(joined[:, : head.n_inputs])[:, :columns]
            if n_facts:
                scores[own, -n_facts:] = joined[:, -n_facts:]
        return scores

    def _encode_again(self, unit: range, work: "_UnitWork", rows: Sequence[int]) -> RowNumbers:
        """Encode the given rows of the unit one by one, at fp32.

        Return the vectors and scores of all rows of the unit. If a row still has numbers that
        cannot be stored, the reason of its quarantine is added to ``work.reasons``.
        """
        with self._timed("recompute"):
            tried = {row: self._encode_alone(work, row) for row in rows}
        numbers = self._numbers(unit, work)
        for row, problem in unstorable_rows(numbers).items():
            if row not in work.reasons:
                attempts = "; ".join(dict.fromkeys(retry.attempts for retry in tried[row]))
                work.reasons[row] = f"{problem}, {attempts}"
        self.recomputed += len(tried.keys() - work.reasons.keys())
        return numbers

    def _encode_alone(self, work: "_UnitWork", row: int) -> list[Retry]:
        """Encode a row that cannot be stored again, alone, with each encoder that caused this.

        These are the encoders whose vectors have NaN or infinite numbers. If all vectors are
        finite, a score is not finite or fp16 cannot hold a vector; then all encoders of the row are
        used. Return the result of each encoder that was used.
        """
        culprits = [
            number
            for number, part in enumerate(work.vectors)
            if not np.isfinite(part[work.places(number, row)]).all()
        ]
        tried: list[Retry] = []
        encoded = [number for number, tokens in enumerate(work.tokens) if len(tokens.ids[row])]
        for number in culprits or encoded:
            retry = self._encoders[number].encode_again(
                work.tokens[number], row, work.watch.report_next
            )
            tried.append(retry)
            if retry.too_large:
                work.reasons[row] = retry.too_large
            if retry.vectors is not None:
                work.vectors[number][work.places(number, row)] = retry.vectors
        return tried

    def _segment(self, unit: int, rows: range, numbers: RowNumbers, work: "_UnitWork") -> Segment:
        reasons, stored, counts = work.reasons, numbers.stored, None
        state = np.full(len(rows), RowState.DONE, np.uint8)
        state[list(reasons)] = RowState.QUARANTINED
        if numbers.owners is not None and stored is not None:
            stored = stored[state[numbers.owners] == RowState.DONE]
            counts = np.where(state == RowState.DONE, work.tokens[0].n_vectors, 0)
        for values in (stored if counts is None else None, numbers.scores):
            if values is not None:
                values[state == RowState.QUARANTINED] = 0
        return Segment(
            unit=unit,
            fingerprint=self._task.fingerprint,
            rows=np.asarray(rows, np.int64),
            state=state,
            embeddings=stored,
            scores=numbers.scores,
            reasons={rows[row]: reason for row, reason in sorted(reasons.items())},
            counts=counts,
        )

    def _sequence(self, encoder: RankEncoder, row: int) -> bytes:
        (sequence,) = self._index.sequences(np.array([row]), encoder.encoder.view)
        return sequence

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[stage] += time.perf_counter() - started


class _UnitWork:
    """Intermediate results of one unit.

    `tokens` and `vectors` have one entry per encoder; `reasons` maps a row within the unit to the
    reason of its quarantine.
    """

    def __init__(self, n_encoders: int, watch: UnitProgress) -> None:
        self.watch = watch
        self.tokens: list[UnitTokens] = []
        self.vectors: list[Float32Array] = []
        self.reasons: dict[int, str] = {}
        self._n_encoders = n_encoders
        self._encoded = 0

    @property
    def owners(self) -> IntArray:
        """Return the row of each vector of the first encoder: (vectors,) int64."""
        counts = self.tokens[0].n_vectors
        return np.repeat(np.arange(len(counts)), counts)

    def places(self, encoder: int, row: int) -> IntArray:
        """Return the positions of the vectors of a row from an encoder."""
        return self.tokens[encoder].vectors_of(np.array([row]))

    def add_encoded(self, rows: int) -> None:
        """Add `rows` rows that one encoder has encoded; report the mean over all encoders."""
        self._encoded += rows
        self.watch.report_encoded(self._encoded // self._n_encoders)
