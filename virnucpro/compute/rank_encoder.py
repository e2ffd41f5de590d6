"""Loaded encoders and classifier of a rank: encode the rows of a unit, and retry single rows."""

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from virnucpro.arrays import Float32Array, IntArray, IntegerArray
from virnucpro.classifier.head import CLASSES, Head, load_head
from virnucpro.compute.encoder_pass import EncoderPass, UnitTokens
from virnucpro.compute.poison_isolation import (
    FINISHING,
    encoder_batches,
    isolated_in,
    suspects_in,
)
from virnucpro.encoders.base import Encoder, EncoderSpec, Precision
from virnucpro.encoders.batching import BATCH_TOKENS, MOST_TOKENS, TokenBudget
from virnucpro.encoders.device import (
    Shortage,
    free_bytes,
    open_device,
    probe,
    try_batch,
    within_memory,
)
from virnucpro.encoders.memory import require_memory
from virnucpro.encoders.registry import config_of, load_encoder, shapes_of
from virnucpro.errors import DeviceError
from virnucpro.runtime.devices import Kind
from virnucpro.runtime.policy import Findings, TaskSpan
from virnucpro.sequences.items import PIECE_ITEM, WINDOW_ITEM

if TYPE_CHECKING:
    from virnucpro.compute.rank_main import RankTask
    from virnucpro.run.job import Job


class Retry(NamedTuple):
    """Result of one row that was encoded again, alone.

    Attributes
    ----------
    vectors
        (vectors of the row, dim) float32; None if the row could not be encoded.
    attempts
        Text with all attempts and their precisions; part of the reason if the row is quarantined.
    too_large
        Reason of the quarantine if the row does not fit into memory; otherwise "".
    """

    vectors: Float32Array | None
    attempts: str
    too_large: str = ""


def encode_alone(encoder: Encoder, ids: IntegerArray) -> Float32Array | Shortage:
    """Return the vectors of one row, (1, dim) float32, or a `Shortage` of memory.

    With one vector per token, the result has one line per token.
    """
    return within_memory(partial(encoder.vectors, [ids]))


_BOTH: Final = "in a batch and alone"
_ORDINARY_TOKENS = 1_024
"""Tokens of a sequence that every usable device must encode.

This is the longest training sequence of ESM-2 plus two special tokens.
"""


class RankEncoder:
    """An encoder with its token budget.

    Parameters
    ----------
    number
        Position in the order of the run's encoders.
    spec, device, precision
        As for `load_encoder`.
    first_budget
        Initial token budget of a batch, if the architecture has none of its own.

    Attributes
    ----------
    name
        Name of the encoder.
    encoder, budget
        The encoder and its token budget.
    """

    def __init__(
        self,
        number: int,
        spec: EncoderSpec,
        device: str,
        precision: Precision,
        first_budget: int,
    ) -> None:
        self.number = number
        self._own_budget = config_of(spec).batch_tokens
        if spec.pooling.outputs == "pseudo_perplexity":
            self._own_budget = 1  # a sequence is many batches of its copies
        self.budget = TokenBudget(self._own_budget or first_budget)
        self.encoder = load_encoder(spec, device, precision)
        self.name = spec.name
        self._spec, self._device, self._precision = spec, device, precision

    def find_budget(self, sequence: bytes, first: int) -> None:
        """Find an initial token budget with test batches of increasing size.

        Parameters
        ----------
        sequence
            The longest sequence of the run. Only its length is used. Test batches contain synthetic
            tokens: a real row may kill the process, and its position would not be known.
        first
            Number of tokens of the first test batch.
        """
        if self.budget.probed or self._own_budget:
            return
        (ids,) = self.encoder.tokenise([sequence])
        self.budget.begin_with(len(ids), probe(self.encoder, len(ids), first, MOST_TOKENS))

    def vectors(
        self,
        tokens: UnitTokens,
        findings: Findings,
        report_next: Callable[[TaskSpan], None],
        report_encoded: Callable[[int], None],
        *,
        prefetch: bool = False,
    ) -> EncoderPass:
        """Encode the rows of a unit, and return this pass; rows without tokens are skipped.

        Parameters
        ----------
        report_next
            Called with the span of each batch, before the batch is encoded.
        report_encoded
            Called with the number of rows of each batch, after the batch is encoded.
        prefetch
            Whether to queue the next batch while the device computes the current batch. If the
            process then dies, the cause may be the batch before the last reported batch.

        Raises
        ------
        MemoryError
            If a row does not fit into memory although rows of its length have fitted before, or a
            row of ordinary length does not fit.
        """
        work = EncoderPass(
            self.encoder,
            self.budget,
            tokens,
            lambda positions: report_next(self._span(tokens, positions)),
            report_encoded,
            prefetch=prefetch,
        )
        sizes = tokens.lengths[tokens.order]
        sizes = sizes[sizes > 0]
        work.run(encoder_batches(sizes, self.budget, findings, self.number))
        if work.shortages:
            # If the process dies from here on, no single row is the cause.
            report_next(TaskSpan(tokens.unit, FINISHING, 0, 0))
            self._require_memory(min(int(sizes.max()), _ORDINARY_TOKENS))
            work.reasons |= self._too_large(tokens, work.shortages)
        self._learn_from(findings, sizes)
        for position, reason in isolated_in(findings, self.number).items():
            work.reasons[int(tokens.order[position])] = reason
        return work

    def _require_memory(self, n_tokens: int) -> None:
        """Encode a synthetic sequence of `n_tokens`, to check that the device has enough memory.

        Raises
        ------
        MemoryError
            If the sequence does not fit into memory.
        """
        shortage = try_batch(self.encoder, n_tokens, n_tokens)
        if shortage is not None:
            raise MemoryError(
                f"one sequence of {n_tokens:,} tokens does not fit into the memory for "
                f"{self.name}{_wanted(shortage)}. Another process uses the memory of this "
                "device, or the device is too small for this encoder. Stop the other process or "
                "use a larger device."
            )
        self.budget.fitted(n_tokens)

    def _too_large(self, tokens: UnitTokens, shortages: Mapping[int, Shortage]) -> dict[int, str]:
        """Return the reason of the quarantine for each row that does not fit into memory.

        A row is quarantined only if no row of its length has fitted in this process. Otherwise the
        device is faulty, or another process uses its memory, and MemoryError is raised.
        """
        least = min(shortages, key=lambda row: int(tokens.lengths[row]))
        if tokens.lengths[least] <= self.budget.longest_fitted:
            raise MemoryError(
                f"{self._does_not_fit(tokens, least, shortages[least])}. Earlier, rows of up "
                f"to {self.budget.longest_fitted:,} tokens fitted. Another process uses the memory "
                "of this device, or the device is faulty. Check the device with nvidia-smi or top."
            )
        return {
            row: f"out_of_memory: {self._does_not_fit(tokens, row, shortage)}"
            for row, shortage in shortages.items()
        }

    def encode_again(
        self, tokens: UnitTokens, row: int, report_next: Callable[[TaskSpan], None]
    ) -> Retry:
        """Encode one row again, alone; return its vector, or the reason why there is no vector.

        The precision is fp32. `report_next` is called with the span of the row before the row is
        encoded.

        Raises
        ------
        BundleError
            If the weights have been damaged since the run started.
        """
        report_next(self._span(tokens, np.flatnonzero(tokens.order == row)))
        encoder = self._at_fp32
        if encoder is None:
            few = f"at {self._precision} in a batch; the memory of {self._device} is too small for"
            return Retry(None, f"{few} {self.name} at fp32")
        half = self._precision != "fp32"
        attempts = f"at {self._precision} in a batch and at fp32 alone" if half else _BOTH
        vectors = encode_alone(encoder, tokens.ids[row])
        if isinstance(vectors, Shortage):
            reason = f"{self._does_not_fit(tokens, row, vectors)}; tried {attempts}"
            return Retry(None, attempts, f"out_of_memory: {reason}")
        return Retry(vectors, attempts)

    @cached_property
    def _at_fp32(self) -> Encoder | None:
        """Return the encoder at fp32, loaded for the first retry; None if it does not fit.

        The free memory is checked before loading, because the system kills a process that needs
        more memory.
        """
        if self._precision == "fp32":
            return self.encoder
        device = open_device(self._device)
        if device.type == "cuda":
            import torch  # noqa: PLC0415 - loaded by `open_device`

            torch.cuda.empty_cache()  # the memory of earlier batches is free afterwards
        room = free_bytes(device)
        try:
            require_memory(self.name, shapes_of(self._spec), "fp32", self._device, room)
        except DeviceError:
            return None
        loaded = within_memory(partial(load_encoder, self._spec, self._device, "fp32"))
        return None if isinstance(loaded, Shortage) else loaded

    def try_alone(self, tokens: UnitTokens, position: int) -> None:
        """Encode the row ``tokens.order[position]`` alone, to test whether it kills the process.

        The vector is discarded.
        """
        ids = tokens.ids[int(tokens.order[position])]
        if len(ids):
            encode_alone(self.encoder, ids)

    def _learn_from(self, findings: Findings, sizes: IntArray) -> None:
        """Lower the token budget below the size of batches that killed a process.

        The likely cause is a batch that exceeded the memory: the kernel then kills the process
        without a Python exception. A batch is considered only if its halves were encoded later. If
        the process died for another reason, smaller batches cost little time.
        """
        for span in suspects_in(findings, self.number):
            died = sizes[span.start : span.stop]
            if len(died) > 1:
                self.budget.lower(int(died[0]), int(died.sum()))

    def _span(self, tokens: UnitTokens, positions: IntArray) -> TaskSpan:
        return TaskSpan(tokens.unit, self.number, int(positions[0]), int(positions[-1]) + 1)

    def _does_not_fit(self, tokens: UnitTokens, row: int, shortage: Shortage) -> str:
        return (
            f"a sequence of {tokens.lengths[row]:,} tokens does not fit into the memory for "
            f"{self.name}, even alone{_wanted(shortage)}"
        )


def _wanted(shortage: Shortage) -> str:
    return f" ({shortage.wanted} more needed)" if shortage.wanted else ""


class ScoringPart(NamedTuple):
    """Encoders and head of one classifier.

    Attributes
    ----------
    encoders
        Positions of its encoders in `Models.encoders`.
    head
        The head; None for a run without scores.
    columns
        Number of scores that the head adds to a row: two, and its classes if they are those of the
        run.
    n_facts
        Numbers at the end of a vector that are not inputs of the head, and are stored as they are:
        facts of a piece, and logits of its spans.
    """

    encoders: slice
    head: Head | None
    columns: int
    n_facts: int


class Models:
    """Loaded encoders and classifier of a job.

    Parameters
    ----------
    model
        Its encoders, head and other classifiers are loaded.
    device, precision
        As for `load_encoder`.
    first_budget
        Initial token budget of a batch.

    Attributes
    ----------
    encoders
        The loaded encoders of `model`, then those of its other classifiers.
    parts
        The classifiers: the main one, then the others.
    part_of, part_of_encoder
        Number of the classifier of each kind of rows, ``(n_kinds,)`` int64, and of each encoder.
    width
        Number of scores of a row: two, classes if the head has more than two, and facts.

    Raises
    ------
    BundleError, DeviceError
        If the weights are damaged, or the device cannot be used.
    """

    def __init__(
        self,
        model: "Job | RankTask",
        device: str,
        precision: Precision,
        first_budget: int,
    ) -> None:
        self.part_of = np.zeros(PIECE_ITEM + 1, np.int64)
        self.part_of_encoder: list[int] = []
        self.encoders: list[RankEncoder] = []
        self.parts: list[ScoringPart] = []
        models = [(0, model.encoders, model.head)]
        models += [(kind, other.encoders, other.head) for kind, other in model.others.items()]
        for number, (kind, own, file) in enumerate(models):
            self.part_of[kind] = number
            first = len(self.encoders)
            self.encoders += [
                RankEncoder(first + place, spec, device, precision, first_budget)
                for place, spec in enumerate(own)
            ]
            loaded = None if file is None else load_head(file)
            # The windows' classifier may be of another bundle, with other classes.
            columns = CLASSES if loaded is None or kind == WINDOW_ITEM else loaded.n_scores
            if kind == PIECE_ITEM and loaded is not None:
                self.encoders[-1].encoder = self.encoders[-1].encoder.judging(loaded.logit)
            dims = (encoder.encoder.dim for encoder in self.encoders[first:])
            n_facts = 0 if loaded is None else sum(dims) - loaded.n_inputs
            self.part_of_encoder += [number] * len(own)
            last = len(self.encoders)
            self.parts.append(ScoringPart(slice(first, last), loaded, columns, n_facts))
        self.width = self.parts[0].columns + max(part.n_facts for part in self.parts)

    @classmethod
    def of(cls, job: "Job", kind: Kind) -> Self:
        """Load encoders and classifier of a job on a device of a kind; errors as for `Models`."""
        return cls(job, kind, job.settled_precision, BATCH_TOKENS[kind])
