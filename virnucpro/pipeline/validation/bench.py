"""How fast an encoder is on this machine, and how near to what the machine can multiply."""

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import torch

from virnucpro.bundles.bundle import open_bundle
from virnucpro.encoders.base import EncoderSpec, IntArray, Precision
from virnucpro.encoders.batching import Filling, batches, longest_first
from virnucpro.encoders.ceiling import GemmCeiling
from virnucpro.encoders.encoder import Encoder
from virnucpro.encoders.memory.memory_needed import bytes_of, require_room
from virnucpro.encoders.memory.placement import dtype_of, free_bytes, open_device
from virnucpro.encoders.memory.token_budget import BATCH_TOKENS
from virnucpro.encoders.registry import config_of, load_encoder, shapes_of, size_named
from virnucpro.encoders.weights.random_weights import write_random_encoder
from virnucpro.pipeline.jobs.job import PrecisionChoice
from virnucpro.pipeline.jobs.precision import precision_on
from virnucpro.pipeline.validation.synthetic import SIX_FRAME, synthetic_items
from virnucpro.pipeline.validation.torch_device import device_of, kind_of

__all__ = [
    "STAGES",
    "EncoderFigures",
    "Measuring",
    "measure_bundle",
    "measure_encoder",
    "measure_model",
]

STAGES: Final = ("tokenise", "collate", "encode", "fetch")

_SEQUENCES: Final = 1_000
"""Items that are made up. A unit of a run has about as many."""

_BATCHES: Final = 8
"""Of them all, those that are measured."""

_TURNS: Final = 3
"""How often each batch is done at least: a single try may be any time slower than the best."""

_LONG_BATCH: Final = 60.0
"""Seconds of a batch that is not done again."""

_CEILING_SHARE: Final = 0.1
"""Of the time for an encoder that goes to its ceiling before the batches, and after them."""

Result = TypeVar("Result")


def _untold(_: str) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Measuring:
    """What to measure, and how long.

    Attributes
    ----------
    device, precision
        As `load_encoder` takes them, or ``auto``.
    threads
        Of the CPU, for matrix products and all else.
    lengths
        As `synthetic_items` takes them.
    seconds
        For one encoder, its ceiling included, its loading not. One batch is measured at least,
        several times unless it takes longer than a minute.
    """

    device: str = "auto"
    precision: PrecisionChoice = "auto"
    threads: int = 1
    lengths: str = SIX_FRAME
    seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class EncoderFigures:
    """What was measured of one encoder.

    Attributes
    ----------
    batch_tokens
        Budget of a batch: that with which a run begins.
    unused
        Share of the budgets of all batches of all sequences that no token takes.
    load_seconds
        From its files to ready.
    sequences, tokens
        Of the batches that were done at least once; special tokens included.
    batches
        How many different batches were done.
    turns
        How often each of them was done at least. Where that is once, `seconds` may be too many.
    seconds
        What those sequences take by stage, each batch at its fastest.
    linear_operations
        For one token: 2 * layers * (numbers in * numbers out) of all matrix products of a layer.
    attention_operations
        For one token, on average of these lengths: 4 * layers * width * length.
    ceilings
        Operations a second at the shapes of a layer, by what multiplies: see `GemmCeiling`.
    """

    encoder: str
    device: str
    precision: str
    threads: int
    lengths: str
    batch_tokens: int
    unused: float
    load_seconds: float
    sequences: int
    tokens: int
    batches: int
    turns: int
    seconds: Mapping[str, float]
    linear_operations: int
    attention_operations: float
    ceilings: Mapping[str, float]

    @property
    def tokens_per_second(self) -> float:
        """All stages one behind the other."""
        return self.tokens / sum(self.seconds.values())

    @property
    def sequences_per_second(self) -> float:
        """All stages one behind the other."""
        return self.sequences / sum(self.seconds.values())

    @property
    def rate(self) -> float:
        """Operations a second while the model computes."""
        operations = self.linear_operations + self.attention_operations
        return operations * self.tokens / self.seconds["encode"]

    @property
    def ceiling(self) -> float:
        """The highest of `ceilings`."""
        return max(self.ceilings.values())

    @property
    def share_of_ceiling(self) -> float:
        """`rate` by `ceiling`."""
        return self.rate / self.ceiling

    def as_dict(self) -> dict[str, Any]:
        """Give plain data for JSON, what is derived included."""
        return asdict(self) | {
            "tokens_per_second": self.tokens_per_second,
            "sequences_per_second": self.sequences_per_second,
            "rate": self.rate,
            "ceiling": self.ceiling,
            "share_of_ceiling": self.share_of_ceiling,
        }


def measure_model(
    name: str, measuring: Measuring, tell: Callable[[str], None] = _untold
) -> EncoderFigures:
    """Measure random weights of a published size; they are written to a temporary folder.

    Parameters
    ----------
    tell
        Hears what is done next, some of which takes minutes.

    Raises
    ------
    UsageError
        When there is no such size, or no room for the file; as `measure_encoder`.
    DeviceError
        When there is no such device, or not memory enough: before anything is written.
    """
    shapes = list(size_named(name).tensor_shapes().values())
    device, precision = _place({name: shapes}, measuring)
    with tempfile.TemporaryDirectory(prefix="virnucpro-bench-") as folder:
        tell(f"writing random weights of {name}")
        spec = write_random_encoder(Path(folder), name)
        return measure_encoder(spec, measuring, device, precision, tell)


def measure_bundle(
    name: str, measuring: Measuring, tell: Callable[[str], None] = _untold
) -> list[EncoderFigures]:
    """Measure each encoder of a bundle; see `measure_model`.

    Raises
    ------
    BundleError
        When there is no such bundle, or it is damaged; as `measure_encoder`.
    DeviceError
        When there is no such device, or not memory enough: before any is measured.
    """
    encoders = open_bundle(name).encoders
    device, precision = _place({spec.name: shapes_of(spec) for spec in encoders}, measuring)
    return [measure_encoder(spec, measuring, device, precision, tell) for spec in encoders]


def _place(
    encoders: Mapping[str, Sequence[tuple[int, ...]]], measuring: Measuring
) -> tuple[str, Precision]:
    """Settle device and precision, and refuse encoders that have no room, one at a time, there."""
    device = device_of(measuring.device)
    n_bytes = sum(bytes_of(shapes, "fp32") for shapes in encoders.values())
    precision = precision_on(measuring.precision, kind_of(device), n_bytes)
    room = free_bytes(open_device(device))
    for name, shapes in encoders.items():
        require_room(name, shapes, precision, device, room, free=True)
    return device, precision


def measure_encoder(
    spec: EncoderSpec,
    measuring: Measuring,
    device: str,
    precision: Precision,
    tell: Callable[[str], None] = _untold,
) -> EncoderFigures:
    """Load an encoder, and let it encode made-up sequences.

    The stages follow each other, so that each can be measured; a run lays batches out and fetches
    vectors beside the model. A batch's time is the least of several: machines have other work. The
    ceiling is measured between all tries, too, so that neither has the machine's best times alone.

    Raises
    ------
    BundleError, DeviceError, UsageError
        As `load_encoder`, `synthetic_items` and `config_of`.
    """
    work, torch_device = config_of(spec).work(), open_device(device)
    batch_tokens = BATCH_TOKENS[kind_of(device)]
    sequences = synthetic_items(_SEQUENCES, measuring.lengths).of(spec.view)
    torch.set_num_threads(measuring.threads)
    tell(f"loading {spec.name} on {device}, {precision}")
    loading = _Clock(torch_device)
    encoder = loading.timed("load", lambda: load_encoder(spec, device, precision))
    tell(f"measuring {spec.name} for {measuring.seconds:g} s, or as long as a batch takes")
    ceiling = GemmCeiling(work.products, batch_tokens, torch_device, dtype_of(precision))
    ceiling.measure(_CEILING_SHARE * measuring.seconds)
    course = _Course(encoder, torch_device, sequences, batch_tokens)
    course.run((1 - 2 * _CEILING_SHARE) * measuring.seconds, ceiling.turn)
    ceiling.measure(_CEILING_SHARE * measuring.seconds)
    lengths = course.lengths
    tokens = int(lengths.sum())
    return EncoderFigures(
        encoder=spec.name,
        device=device,
        precision=precision,
        threads=measuring.threads,
        lengths=measuring.lengths,
        batch_tokens=batch_tokens,
        unused=course.unused,
        load_seconds=loading.seconds["load"],
        sequences=len(lengths),
        tokens=tokens,
        batches=len(course.done),
        turns=course.turns,
        seconds=course.seconds,
        linear_operations=work.linear,
        attention_operations=work.attention(lengths) / tokens,
        ceilings=ceiling.rates,
    )


class _Clock:
    """Adds up seconds by stage; a GPU's work counts where it was asked for."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seconds: dict[str, float] = {}

    def timed(self, stage: str, do: Callable[[], Result]) -> Result:
        self._wait()
        started = time.perf_counter()
        result = do()
        self._wait()
        self.seconds[stage] = time.perf_counter() - started
        return result

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


class _Course:
    """Takes the same batches through an encoder again and again.

    Attributes
    ----------
    done
        Position of a batch -> its least seconds by stage.
    unused
        Share of all batches' budgets that no token takes.
    """

    def __init__(
        self, encoder: Encoder, device: torch.device, sequences: Sequence[bytes], batch_tokens: int
    ) -> None:
        self._encoder = encoder
        self._device = device
        clock = _Clock(device)
        self._ids = clock.timed("tokenise", lambda: encoder.tokenise(sequences))
        again = _Clock(device)
        again.timed("tokenise", lambda: encoder.tokenise(sequences))
        self._lengths = np.array([len(ids) for ids in self._ids], np.int64)
        self._tokenise = min(one.seconds["tokenise"] for one in (clock, again))
        order = longest_first(self._lengths)
        planned = batches(self._lengths[order], lambda _: batch_tokens)
        self._batches = [order[one.start : one.stop] for one in planned]
        filling = sum(
            (Filling().after(int(self._lengths[one].sum()), batch_tokens) for one in self._batches),
            Filling(),
        )
        self.unused = filling.unused
        self.done: dict[int, dict[str, float]] = {}
        self._turns: Counter[int] = Counter()

    def run(self, seconds: float, between: Callable[[], None]) -> None:
        """Do batches for so long, a few of all lengths again and again, and each often enough.

        Parameters
        ----------
        seconds
            What is done `between` any two tries included.
        between
            Called after each of them.
        """
        until = time.perf_counter() + seconds
        for number in cycle(_spread(len(self._batches))[:_BATCHES].tolist()):
            self._take(number)
            between()
            while self._turns[number] < _TURNS and _total(self.done[number]) < _LONG_BATCH:
                self._take(number)
                between()
            if time.perf_counter() >= until:
                return

    def _take(self, number: int) -> None:
        now = self._once(self._batches[number])
        self.done[number] = min(now, self.done.get(number, now), key=_total)
        self._turns[number] += 1

    def _once(self, rows: IntArray) -> dict[str, float]:
        clock = _Clock(self._device)
        ids = [self._ids[row] for row in rows]
        laid_out = clock.timed("collate", lambda: self._encoder.collate(ids))
        vectors = clock.timed("encode", lambda: self._encoder.encode(laid_out))
        clock.timed("fetch", vectors.cpu)
        return clock.seconds

    @property
    def turns(self) -> int:
        """How often each batch that was done was done at least."""
        return min(self._turns.values())

    @property
    def lengths(self) -> IntArray:
        """(n,) tokens of each sequence of the batches that were done."""
        rows = np.concatenate([self._batches[number] for number in self.done])
        lengths: IntArray = self._lengths[rows]
        return lengths

    @property
    def seconds(self) -> dict[str, float]:
        """What the batches that were done take, by stage."""
        share = int(self.lengths.sum()) / int(self._lengths.sum())
        sums = {
            stage: sum(batch[stage] for batch in self.done.values())
            for stage in STAGES
            if stage != "tokenise"
        }
        return {"tokenise": self._tokenise * share} | sums


def _total(seconds: Mapping[str, float]) -> float:
    return sum(seconds.values())


def _spread(n: int) -> IntArray:
    """Order positions so that any first few of them lie all over: halves, quarters, eighths."""
    bits = max(1, (n - 1).bit_length())
    reversed_bits = [int(f"{number:0{bits}b}"[::-1], 2) for number in range(1 << bits)]
    return np.array([number for number in reversed_bits if number < n], np.int64)
